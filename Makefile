# Commands for developers and for CI. `make help` lists them. Each target first makes what it needs.
#
# The dependencies are installed into .venv from requirements.lock, by hash. The files in .make record when.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:
MAKEFLAGS += --no-builtin-rules --no-print-directory
# Python stores compiled modules, whatever the environment says. The tests start some thousand processes, and a process
# that compiles the modules it imports takes twice as long to start.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
SITE ?= var/site
HOST ?= 127.0.0.1
PORT ?= 9000
MINUTES ?= 30
VERSITYGW := v1.8.0
MINIO := v0.0.0-20260212201848-7aac2a2c5b7c
PARALLEL := -n 4 --dist worksteal
QUICK := not slow and not alone and not soak and not bench
COMPILE := $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url --quiet

.PHONY: help
help: ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: env
env: .make/env ## create the Python environment in .venv from requirements.lock

.make/env: requirements.lock requirements-uv.lock pyproject.toml .ci/find-python
	@mkdir -p .make
	python=$$(.ci/find-python)
	if [ ! -x $(BIN)/python ]; then
		echo "installing the dependencies into $(VENV), once; this takes up to a minute" >&2
		"$$python" -m venv $(VENV)
	else
		echo "updating the dependencies in $(VENV)" >&2
	fi
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-uv.lock
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock requirements-uv.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	touch $@

.PHONY: serve
serve: env ## serve the site in var/site on 127.0.0.1; options: PORT= (9000), SITE=
	@mkdir -p "$$(dirname "$(SITE)")"
	if [ ! -e "$(SITE)/entrepot.toml" ] || [ -e "$(SITE)/.unfinished" ]; then
		$(BIN)/entrepot init "$(SITE)"
	fi
	exec $(BIN)/entrepot serve "$(SITE)" --listen "$(HOST):$(PORT)"

.PHONY: clients
clients: env
	@tests/install-clients

.PHONY: minio
minio: .make/bin/minio ## build a MinIO for the tests, with Go; takes some minutes

.make/bin/minio:
	@command -v go >/dev/null || { echo "make minio: there is no Go here" >&2; exit 1; }
	GOBIN="$(CURDIR)/.make/bin" CGO_ENABLED=0 go install -trimpath github.com/minio/minio@$(MINIO)

.PHONY: versitygw
versitygw: .make/bin/versitygw ## build a versitygw for `make bench-peers`, with Go

.make/bin/versitygw:
	@command -v go >/dev/null || { echo "make versitygw: there is no Go here" >&2; exit 1; }
	GOBIN="$(CURDIR)/.make/bin" CGO_ENABLED=0 go install -trimpath github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW)

.PHONY: lint
lint: env ## run ruff, mypy --strict and import-linter
	@$(BIN)/mypy & types=$$!
	trap "kill $$types 2>/dev/null || true" EXIT
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	wait $$types

.PHONY: docs
docs: env ## check the links, anchors and code blocks of the docs
	@$(PYTEST) -q tests/test_docs.py

# Runs each test once: first four tests at a time, since many of them wait, then one by one those that measure a whole
# process. `make soak` runs the repeating tests.
.PHONY: test
test: env clients lint ## run the lint, then every test once
	@$(PYTEST) $(PARALLEL) --durations=20 -m "not alone and not soak and not bench"
	alone=$$(grep -rl 'mark\.alone' tests --include='test_*.py')
	$(PYTEST) --durations=5 -m "alone and not soak and not bench" $$alone

.PHONY: fast
fast: env ## run the quick tests
	@$(PYTEST) $(PARALLEL) -m "$(QUICK)"

.PHONY: bench
bench: env clients ## print speeds, each beside a limit of the hardware that is measured in the same run
	@$(BIN)/python -m tests.bench

.PHONY: bench-peers
bench-peers: env clients minio versitygw ## compare the speeds of Entrepot, MinIO and versitygw, with the same client
	@$(BIN)/python -m tests.bench.peers

.PHONY: soak
soak: env clients ## run the repeating tests: kills for MINUTES= (30), power cuts, journeys, a thousand examples of each property
	@ENTREPOT_SOAK_MINUTES=$(MINUTES) HYPOTHESIS_PROFILE=soak $(PYTEST) --timeout 0 -m "soak or hypothesis"

.PHONY: lock
lock: env ## compile the lock files; UPGRADE=1 upgrades everything to the newest versions
	@$(COMPILE) $(if $(UPGRADE),--upgrade) --group build --group lint --group test -o requirements.lock
	$(COMPILE) -c requirements.lock -o requirements-runtime.lock

.PHONY: clean
clean: ## delete everything that was made, except the sites in var
	@rm -rf $(VENV) .make .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
