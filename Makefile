# `make demo` and `make test` do all their own set-up on a machine with nothing but Python and PyPI.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO ?= demo

.PHONY: demo test test-slow check lint types setup model clean

# ------------------------------------------------------------------------------------------------------- what to type

demo: setup model  ## a real model answers ten questions about a fictional encyclopedia by searching it
	$(BIN)/quaere world --seed 7 --articles 500 --out $(DEMO)/world --force
	$(BIN)/quaere index $(DEMO)/world/corpus.jsonl --out $(DEMO)/index --force
	$(BIN)/quaere ask --questions $(DEMO)/world/questions.jsonl --limit 10 --show --max-turns 3 \
		--index $(DEMO)/index --runs $(DEMO)/runs
	@echo "Ask it something yourself: $(BIN)/quaere ask 'your question' --index $(DEMO)/index"

test: setup model  ## the whole test suite, slow and GPU tests excepted
	$(BIN)/python -m pytest -q

test-slow: setup model  ## the tests that take minutes or download more
	$(BIN)/python -m pytest -q -m slow

check: setup model lint types  ## everything a change must pass: style, types, layers, tests
	$(BIN)/python -m pytest -q

lint: setup
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks

types: setup
	$(BIN)/mypy

# ------------------------------------------------------------------------------------------------------------- set-up

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "quaere needs Python 3.11 or newer; say: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
		{ echo "this Python has no pip; install it first (Debian: apt install python3-venv)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dense,dev,pdf,train]'
	@touch $(STAMP)

model: setup
	@$(BIN)/quaere models pull smollm2-135m > /dev/null

clean:
	rm -rf $(VENV) $(DEMO) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
