# Two commands matter: `make quickstart` shows the product, `make test` proves it.
# Everything lives in .venv; a stamp per set of packages makes the second run quick and independent of the network.

VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$name; break; }; done)
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
comma  := ,
USED   := spark,embed
# A download that was cut short or damaged is made once more, past the cache that may have kept it.
install = $(PIP) install -c constraints.txt -e '.[$(1)]' || { echo "a download failed, trying once more"; \
	$(PIP) install --no-cache-dir -c constraints.txt -e '.[$(1)]'; }
USE    := $(VENV)/.installed-use
DEV    := $(VENV)/.installed-dev
BENCH  := $(VENV)/.installed-bench
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help quickstart test test-fast check format bench clean

help: ## Show the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: $(USE) ## Create a graph, load it through Spark, query it, change it, read its past
	@$(BIN)/python -m omnigraph.examples.quickstart

test: $(DEV) ## Run every test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

test-fast: $(DEV) ## Run the tests that take no more than a moment and start no Spark
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not long and not spark"

check: $(DEV) ## Format, lint, strict types, import layers; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV) ## Format the code and apply the safe fixes of the linter
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(BENCH) ## Measure; results go to benchmarks/results
	@for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

clean: ## Remove what the other targets made, the environment included
	rm -rf $(VENV) .cache quickstart.omni quickstart-data build dist benchmarks/results
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
