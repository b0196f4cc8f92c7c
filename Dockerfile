# One image; the command selects what it does: serve (the default), migrate, keys, config, compile.

FROM python:3.11-slim-bookworm AS build
WORKDIR /source
RUN python -m venv /opt/foldline
COPY pyproject.toml requirements.lock README.md ./
# The lock file holds the development tools too; as constraints it pins only what the package needs.
RUN sed -e 's/ *\\$//' -e '/^ *--hash/d' requirements.lock > constraints.txt
COPY app app
COPY migrations migrations
RUN /opt/foldline/bin/pip install --no-cache-dir --disable-pip-version-check \
    --constraint constraints.txt .

FROM python:3.11-slim-bookworm
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin foldline \
    && install --directory --owner foldline --mode 700 /var/lib/foldline
COPY --from=build /opt/foldline /opt/foldline
ENV PATH=/opt/foldline/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    FOLDLINE_HOST=0.0.0.0 \
    FOLDLINE_DATA_DIR=/var/lib/foldline
USER 10001
EXPOSE 8080
# Exec form: the process gets SIGTERM itself, drains and ends with 0.
ENTRYPOINT ["foldline"]
CMD ["serve"]
