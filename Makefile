# Every target works on a fresh clone that has Python 3.11 or newer, pip and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Extra arguments for pytest, for example: make test PYTEST_ARGS="tests/unit -x"
PYTEST_ARGS ?=
SESSION ?=
# Keeps what `make image` needs for the next time; it needs buildah and debootstrap.
IMAGE_FOLDER ?=
# Arguments of the benchmark, for example: make bench BENCH_ARGS="--json bench.json"
BENCH_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install demo serve test test-slow lint format types imports check bench bench-append bench-load bench-history bench-long bench-survival image lock lock-check clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "%-12s %s\n", $$1, $$2}'

# The stamp is newer than what it was made from, so that nothing is installed twice.
$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

install: $(STAMP) ## create .venv and install the locked dependencies

demo: $(STAMP) ## run the demo; SESSION=file uses your own session
	$(BIN)/foldline demo $(SESSION)

serve: $(STAMP) ## run the service on a private embedded Postgres
	$(BIN)/foldline serve

test: $(STAMP) ## run every test of the default lane
	$(BIN)/python -m pytest -n auto $(PYTEST_ARGS)

test-slow: $(STAMP) ## run the slow lane: thousands of random streams, long faults
	$(BIN)/python -m pytest -n auto -m slow $(PYTEST_ARGS)

lint: $(STAMP) ## format check, lint, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell

format: $(STAMP) ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

imports: $(STAMP) ## who may import whom
	$(BIN)/lint-imports

check: lint types imports test ## all of the above

bench: $(STAMP) ## measure compile against google-adk, simulate prices of folding; takes some minutes
	$(BIN)/python -m tests.benchmarks.bench_compile $(BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.bench_engines
	$(BIN)/python -m tests.benchmarks.simulate_prices

bench-append: $(STAMP) ## measure appends beside their floor, and the event loop; takes a minute
	$(BIN)/python -m tests.benchmarks.bench_append $(BENCH_ARGS)

bench-load: $(STAMP) ## measure many agents at once on one service and two; takes some three minutes
	$(BIN)/python -m tests.benchmarks.bench_load $(BENCH_ARGS)

bench-history: $(STAMP) ## measure what a million masked events cost; takes some minutes
	$(BIN)/python -m tests.benchmarks.bench_history $(BENCH_ARGS)

bench-long: $(STAMP) ## hold a conversation of 10,000 turns; takes some five minutes
	$(BIN)/python -m tests.benchmarks.bench_long_run $(BENCH_ARGS)

image: ## build the Dockerfile without a container engine and run the result; as root on Debian
	deploy/image/build-without-docker $(IMAGE_FOLDER)

bench-survival: $(STAMP) ## measure what survives five folds; takes some minutes
	$(BIN)/python -m tests.benchmarks.survival

COMPILE_LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock" --group dev pyproject.toml

# Not after $(STAMP): the lock must be renewable while it does not match.
lock: ## renew requirements.lock after a change of dependencies
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(COMPILE_LOCK) --output-file requirements.lock $(LOCK_ARGS)

lock-check: $(STAMP) ## fail when requirements.lock does not match pyproject.toml
	@copy=$$(mktemp -d) && trap 'rm -r "$$copy"' EXIT && cp requirements.lock "$$copy/" && \
	$(COMPILE_LOCK) --output-file "$$copy/requirements.lock" && \
	diff -u requirements.lock "$$copy/requirements.lock" && echo "requirements.lock is up to date"

clean: ## remove what the targets made
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .schemathesis
