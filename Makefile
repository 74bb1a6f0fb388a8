# Two commands matter: `make quickstart` shows the product, `make test` proves it.
# Everything lives in .venv; a stamp per set of packages makes the second run quick and independent of the network.

VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$name; break; }; done)
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
comma  := ,
USED   := spark,embed,server
# A download that was cut short or damaged is made once more, past the cache that may have kept it.
install = $(PIP) install -c constraints.txt -e '.[$(1)]' || { echo "a download failed, trying once more"; \
	$(PIP) install --no-cache-dir -c constraints.txt -e '.[$(1)]'; }
USE    := $(VENV)/.installed-use
DEV    := $(VENV)/.installed-dev
BENCH  := $(VENV)/.installed-bench
DOCS   := $(VENV)/.installed-docs
# Torch brings gigabytes of libraries for graphics cards, so it has an environment of its own, and CI leaves it out.
PYG    := .venv-pyg
# One more than the two cores of a small machine: a quarter of the time tests wait for processes and files.
WORKERS ?= 3
PROGRAMS ?= 200
RUN    := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
# Tests start hundreds of processes, each of which would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help quickstart test test-fast test-exhaustive test-pyg soak check format docs bench clean

help: ## Show the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: $(USE) ## Create a graph, load it through Spark, query it, change it, read its past
	@$(BIN)/python -m omnigraph.examples.quickstart

test: $(DEV) ## Run the tests: a share of every loop over faults and seeds, and no clusters
	$(RUN) -m "not exhaustive"

test-fast: $(DEV) ## Run the tests that take no more than a moment and start no Spark
	$(RUN) -m "not long and not spark and not exhaustive"

test-exhaustive: $(DEV) ## Run what `make test` leaves out, as CI does: every fault of every write, more programs, clusters
	$(RUN) -m exhaustive

test-pyg: $(PYG)/.installed ## Run the tests of PyTorch Geometric in .venv-pyg, which takes 5 GB of disk
	$(PYG)/bin/python -c "import torch_geometric"
	$(PYG)/bin/python -m pytest tests/libraries/test_graphs.py -k pyg

soak: $(DEV) ## Hours of random programs, damages and crashes: PROGRAMS of 300 steps in which all readers must agree
	$(BIN)/python -m pytest -n $(WORKERS) tests/property/test_warm_and_cold.py tests/property/test_merge_model.py \
		tests/damage tests/crash/test_every_step.py tests/crash/test_late_writers.py --programs $(PROGRAMS) --thorough --timeout 0

check: $(DEV) ## Format, lint, strict types, import layers; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV) ## Format the code and apply the safe fixes of the linter
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(DOCS) ## Build the documentation and the API reference into site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

bench: $(BENCH) ## Measure; results go to benchmarks/results
	@for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python -m benchmarks.$$(basename $$file .py) || exit 1; done

clean: ## Remove what the other targets made, the environment included
	rm -rf $(VENV) $(PYG) .cache quickstart.omni quickstart-data build dist site benchmarks/results
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse metastore_db derby.log
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(BIN)/python:
	@test -n "$(PYTHON)" || \
	  { echo "error: no Python 3.11 or newer found; install one, or say make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(USE): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing Omnigraph and Spark into $(VENV) (once)"
	@$(call install,$(USED))
	@touch $@

$(DEV): $(USE)
	@echo "installing the development tools into $(VENV) (once)"
	@$(call install,$(USED)$(comma)dev)
	@touch $@

$(BENCH): $(DEV)
	@echo "installing what the benchmarks compare with into $(VENV) (once)"
	@$(call install,$(USED)$(comma)dev$(comma)bench)
	@touch $@

$(DOCS): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing what builds the documentation into $(VENV) (once)"
	@$(call install,docs)
	@touch $@

$(PYG)/.installed: pyproject.toml constraints.txt
	@echo "installing PyTorch Geometric into $(PYG) (once)"
	@$(PYTHON) -m venv $(PYG)
	@$(PYG)/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt -e '.[libraries]' \
		pytest pytest-timeout hypothesis torch torch_geometric
	@touch $@
