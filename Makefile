# The two commands: `make search` and `make test`. Both make .venv first; nothing is installed outside it.
#
#   PYTHON        the Python (3.11 or newer) that makes the environment
#   INDEX_URL     another package index for everything        (make search INDEX_URL=...)
#   TORCH_INDEX   another package index for torch alone, for example one of CPU or CUDA wheels
#   TORCH         the torch requirement; default: 2.13.0
#   ARGS          more arguments for `llmzero search`         (make search ARGS="--nodes 12 --seed 3")

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
INDEX_URL ?=
TORCH_INDEX ?=
ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
INDEX_FLAG := $(if $(INDEX_URL),--index-url $(INDEX_URL))
TORCH_FLAG := $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX),$(INDEX_FLAG))
export HF_HUB_DISABLE_TELEMETRY = 1

.PHONY: search test slow check lint clean help

search: $(VENV)/.installed ## set up, then search on the embedded default
	$(BIN)/llmzero search --task chemcot $(ARGS)

test: $(VENV)/.installed-dev ## set up, then run all tests
	$(BIN)/python -m pytest

slow: $(VENV)/.installed-dev ## the long proofs: crash loops, races; tables go to benchmarks/
	$(BIN)/python -m pytest -m slow --timeout 7200

check: $(VENV)/.installed-dev lint test ## lint, types, import rules, tests

lint: $(VENV)/.installed-dev ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check llmzero tests benchmarks
	$(BIN)/ruff format --check llmzero tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "llmzero needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (torch first; a few minutes)" >&2
	@$(PIP) install $(TORCH_FLAG) "$(TORCH)"
	@$(PIP) install $(INDEX_FLAG) -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@$(PIP) install $(INDEX_FLAG) -e ".[dev]"
	@touch $@

clean: ## remove the environment and caches (runs/ stays)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'
