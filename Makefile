# Entrepot's commands for people and for CI. `make help` lists them; each makes first what it needs.
#
# Everything that is installed comes from requirements.lock, by hash, into .venv; the stamps under .make say when.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:
MAKEFLAGS += --no-builtin-rules --no-print-directory
# Python keeps compiled modules, whatever the environment says: the tests start some thousand processes, and one that
# compiles what it imports takes twice as long to start.
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
help: ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: env
env: .make/env ## the Python environment in .venv, as requirements.lock has it

.make/env: requirements.lock requirements-uv.lock pyproject.toml .ci/find-python
	@mkdir -p .make
	python=$$(.ci/find-python)
	[ -x $(BIN)/python ] || "$$python" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-uv.lock
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock requirements-uv.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	touch $@

.PHONY: serve
serve: env ## a gateway on 127.0.0.1 over the site in var/site; PORT= (9000) and SITE= to choose
	@mkdir -p "$$(dirname "$(SITE)")"
	if [ ! -e "$(SITE)/entrepot.toml" ] || [ -e "$(SITE)/.unfinished" ]; then
		$(BIN)/entrepot init "$(SITE)"
	fi
	exec $(BIN)/entrepot serve "$(SITE)" --listen "$(HOST):$(PORT)"

.PHONY: clients
clients: env
	@tests/install-clients

.PHONY: minio
minio: .make/bin/minio ## a MinIO for the tests, built from Go's registry in some minutes

.make/bin/minio:
	@command -v go >/dev/null || { echo "make minio: there is no Go here" >&2; exit 1; }
	GOBIN="$(CURDIR)/.make/bin" CGO_ENABLED=0 go install -trimpath github.com/minio/minio@$(MINIO)

.PHONY: versitygw
versitygw: .make/bin/versitygw ## a versitygw for `make bench-peers`, built from Go's registry

.make/bin/versitygw:
	@command -v go >/dev/null || { echo "make versitygw: there is no Go here" >&2; exit 1; }
	GOBIN="$(CURDIR)/.make/bin" CGO_ENABLED=0 go install -trimpath github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW)

.PHONY: lint
lint: env ## ruff, mypy --strict, and who may import whom
	@$(BIN)/mypy & types=$$!
	trap "kill $$types 2>/dev/null || true" EXIT
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	wait $$types

.PHONY: docs
docs: env ## the docs' links, anchors and code blocks
	@$(PYTEST) -q tests/test_docs.py

# Each test runs once: four at a time, since many of them wait; then those that measure a whole process, by themselves.
# `make soak` runs what repeats.
.PHONY: test
test: env clients lint ## the lint, then every test once
	@$(PYTEST) $(PARALLEL) --durations=20 -m "not alone and not soak and not bench"
	alone=$$(grep -rl 'mark\.alone' tests --include='test_*.py')
	$(PYTEST) --durations=5 -m "alone and not soak and not bench" $$alone

.PHONY: fast
fast: env ## the quick tests
	@$(PYTEST) $(PARALLEL) -m "$(QUICK)"

.PHONY: bench
bench: env clients ## one table of speeds, each beside a ceiling measured in the same run
	@$(BIN)/python -m tests.bench

.PHONY: bench-peers
bench-peers: env clients minio versitygw ## Entrepot, MinIO and versitygw in turns, with the same client
	@$(BIN)/python -m tests.bench.peers

.PHONY: soak
soak: env clients ## what repeats: kills for MINUTES= (30), every power cut, every journey, a thousand examples of each property
	@ENTREPOT_SOAK_MINUTES=$(MINUTES) HYPOTHESIS_PROFILE=soak $(PYTEST) --timeout 0 -m "soak or hypothesis"

.PHONY: lock
lock: env ## compile the lock files anew; UPGRADE=1 takes the newest of everything
	@$(COMPILE) $(if $(UPGRADE),--upgrade) --group build --group lint --group test -o requirements.lock
	$(COMPILE) -c requirements.lock -o requirements-runtime.lock

.PHONY: clean
clean: ## everything that was made, but for the sites under var
	@rm -rf $(VENV) .make .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
