# `make help` lists the targets. Each sets up what it needs, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# two test processes on two cores: one thread each, or they would wait for one another; files in their order, in which
# those that train come first: one of them at the end would leave a core idle
PYTEST_ARGS := -n 2 --dist loadfile --no-loadscope-reorder
# tests are compiled once, not by every worker of every call, also where bytecode is switched off
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_ARGS)
# the tests of the core: all but those of the app
CORE_TESTS := tests/functional tests/callbacks tests/compatibility tests/contracts $(wildcard tests/test_*.py) src/as_lightning \
	$(addprefix --ignore=src/as_lightning/,bench comparison report statistics)

.DEFAULT_GOAL := help
.PHONY: help setup demo shell test test-slow test-oldest test-newest trust lint docs format package clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with everything the other targets need

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@

demo: $(STAMP) ## a minute: masking, exact accumulation, the memory of a wide layer, a comparison that decides
	$(BIN)/python docs/demo.py

shell: $(STAMP) ## open a shell in which the commands as-lightning... are found (exit leaves it)
	@PATH="$(CURDIR)/$(BIN):$$PATH" VIRTUAL_ENV="$(CURDIR)/$(VENV)" $${SHELL:-sh}

test: $(STAMP) ## run the whole test suite
	$(PYTEST)

test-slow: $(STAMP) ## run the tests that take long: random losses, killed runs, launchers, notebooks
	$(PYTEST) -m slow

test-oldest: .venv-oldest/.installed ## run the core tests with the oldest torch, lightning and torchmetrics that are supported
	OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest $(PYTEST_ARGS) $(CORE_TESTS)

test-newest: .venv-newest/.installed ## run the core tests with a newer torch, for which torchaudio has no release
	OMP_NUM_THREADS=1 .venv-newest/bin/python -m pytest $(PYTEST_ARGS) $(CORE_TESTS)

.venv-%/.installed: pyproject.toml constraints-%.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-$*.txt --editable ".[test]"
	@touch $@

trust: $(STAMP) ## run the tests that docs/trust.md names, and write their figures into the page
	$(PYTEST) -m "slow or not slow" --junitxml build/trust.xml $$(grep -o 'tests/[^`]*::[^`]*' docs/trust.md)
	$(BIN)/python docs/trust_page.py build/trust.xml

lint: $(STAMP) ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

docs: $(STAMP) ## build the documentation site into site/, strictly: a broken link, command or number is an error
	$(PYTEST) docs/checks/*.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

format: $(STAMP) ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

package: $(STAMP) ## build wheel and sdist into dist/ and check both
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

clean: ## remove the environments, caches and builds (not results, outputs or data)
	rm -rf $(VENV) .venv-oldest .venv-newest build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
