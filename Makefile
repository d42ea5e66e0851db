# The contributor's guide: `make` lists what can be done.  Every target sets up what it needs.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
SECONDS ?= 600
LOOP ?= asyncio

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
# Hundreds of processes that tests start would each compile the package anew.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
# Two suites at once would each count the other's sandboxes as left over.
.NOTPARALLEL:

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# `$(,)` puts a comma into an argument of `call`.
, := ,
ON_ENGINE = SANDBOXIO_REQUIRE_ENGINE=1 SANDBOXIO_TEST_IMAGE="$$(dev/image --print-base)" \
	dev/no-leftovers $(BIN)/python -m pytest
say = @printf '%s\n' "$@: $(1)"

.PHONY: help engine image demo check test test-units test-contract test-examples test-docker test-docker-units \
	test-docker-contract soak bench wheel clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\n%s\n' "Variables: PYTHON=$(PYTHON) VENV=$(VENV) ARGS='extra arguments for pytest'"

$(INSTALLED): pyproject.toml dev/venv
	@dev/venv "$(PYTHON)" "$(VENV)"

engine: ## make sure a Docker engine answers; install and start one when there is none
	$(call say,looking for an engine)
	@dev/engine

image: engine ## make the images for tests and demo
	$(call say,making what is missing)
	@dev/image

demo: engine image $(INSTALLED) ## run agent code in a real sandbox
	$(call say,running sandboxio demo)
	@$(BIN)/sandboxio demo --backend "docker://$$(dev/image --print-base)"

check: $(INSTALLED) ## lint, formatting and types
	$(call say,ruff$(,) mypy and pyright)
	@# Without a node on the PATH pyright would fetch one by itself; the package index has one too.
	@command -v node >/dev/null || $(BIN)/python -m pip install --quiet 'pyright[nodejs]'
	@export PYRIGHT_PYTHON_IGNORE_WARNINGS=1; failed=; \
		$(BIN)/ruff check || failed+=" ruff-check"; \
		$(BIN)/ruff format --check || failed+=" ruff-format"; \
		$(BIN)/mypy || failed+=" mypy"; \
		$(BIN)/pyright --pythonpath $(BIN)/python || failed+=" pyright"; \
		if [ -n "$$failed" ]; then echo "check: failed:$$failed"; exit 1; fi

test: test-units test-contract ## run the tests that need no engine

test-units: $(INSTALLED) ## run those of them that are not the contract suite
	$(call say,running the tests that need no engine)
	@$(BIN)/python -m pytest -m "not docker" -n 2 --ignore=tests/contract $(ARGS)

test-contract: $(INSTALLED) ## run the contract suite on the fakes
	$(call say,running the contract suite on the fakes)
	@$(BIN)/python -m pytest -m "not docker" -n 2 tests/contract $(ARGS)

test-examples: $(INSTALLED) ## run the contract suite on the adapter of the guide
	$(call say,running the contract suite on the adapter of the guide$(,) which mostly waits)
	@$(BIN)/python -m pytest -n 4 examples/test_local_adapter.py $(ARGS)

test-docker: test-docker-units test-docker-contract ## run the tests in real sandboxes

test-docker-units: engine image $(INSTALLED) ## run those of them that are not the contract suite
	$(call say,running the tests that need an engine)
	@$(ON_ENGINE) -m docker --ignore=tests/contract $(ARGS)

test-docker-contract: engine image $(INSTALLED) ## run the contract suite on a real engine
	$(call say,running the contract suite on a real engine)
	@SBX_TEARDOWN_GRACE=20 $(ON_ENGINE) -m docker -n 2 tests/contract $(ARGS)

soak: engine image $(INSTALLED) ## work under cuts and restarts of an engine of its own, for SECONDS
	$(call say,working for $(SECONDS) s on $(LOOP) under cuts and restarts)
	@SANDBOXIO_TEST_IMAGE="$$(dev/image --print-base)" $(BIN)/python -m tests.soak \
		--seconds $(SECONDS) --loop $(LOOP) $(ARGS)

bench: engine image $(INSTALLED) ## measure every work beside a raw client of the engine
	$(call say,running the benchmarks)
	@SANDBOXIO_TEST_IMAGE="$$(dev/image --print-base)" $(BIN)/python -m benchmarks $(ARGS)

wheel: $(INSTALLED) ## build dist/ and prove that the wheel works in a new environment
	$(call say,building and trying the wheel)
	@dev/wheel "$(BIN)/python"

clean: ## remove environments, builds and caches; keep images and engine
	$(call say,removing environments$(,) builds and caches)
	@rm -rf .venv .venv-* dist build *.egg-info .mypy_cache .pytest_cache .ruff_cache .coverage
	@find . -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
