# One image; the command selects what it does: serve (the default), worker, migrate, keys, config,
# compile, verify. It runs as nobody in particular and writes only below FOLDLINE_DATA_DIR, so the root
# may be read-only. It has no HEALTHCHECK: whoever runs it asks /livez and /readyz.

# The digest is that of the index of all architectures. Another base with Python 3.11: --build-arg.
ARG BASE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d

FROM ${BASE} AS build
WORKDIR /source
COPY requirements.lock ./
# The lock file holds the development tools too; as constraints it pins only what is installed.
RUN sed -e 's/ *\\$//' -e '/^ *--hash/d' requirements.lock > constraints.txt \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --disable-pip-version-check \
        --constraint constraints.txt hatchling
COPY pyproject.toml README.md ./
COPY app app
COPY migrations migrations
# What it was built from: `foldline --version`, /v1/info, and the metric foldline_build_info.
ARG REVISION=unknown
RUN printf '%s\n' "${REVISION}" > app/REVISION
# Without pip: what runs installs nothing.
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir wheels . \
    && python -m venv --without-pip /opt/foldline \
    && /opt/build/bin/pip --python /opt/foldline/bin/python install --no-cache-dir \
        --disable-pip-version-check --constraint constraints.txt wheels/*.whl

FROM ${BASE}
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Foldline" \
    org.opencontainers.image.description="A context compiler for LLM agents" \
    org.opencontainers.image.revision="${REVISION}"
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin foldline \
    && install --directory --owner foldline --mode 700 /var/lib/foldline
COPY --from=build /opt/foldline /opt/foldline
ENV PATH=/opt/foldline/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    FOLDLINE_HOST=0.0.0.0 \
    FOLDLINE_DATA_DIR=/var/lib/foldline
# By number, so that Kubernetes can tell that it is not root.
USER 10001:10001
EXPOSE 8080
# Exec form: the process gets SIGTERM itself, drains and ends with 0.
ENTRYPOINT ["foldline"]
CMD ["serve"]
