# `make demo` and `make test` do all their own set-up on a machine with nothing but Python and PyPI.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO ?= demo
# Most tests use one thread, so several files are run at once; a file's tests share what they have built. The order is
# that of tests/conftest.py, and not by how many tests a file has: the longest have few. Bytecode is written even where
# the environment forbids it, or every worker and every command that a test starts compiles all sources again.
TESTS := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-slow browser check docs wheel-check mutants lint types setup model clean

# ------------------------------------------------------------------------------------------------------- what to type

DEMO_LIMITS := --max-turns 3 --topk 1 --turn-tokens 80 --sequence-tokens 640 --tool-response-tokens 160
DEMO_EVAL := $(BIN)/quaere eval --questions $(DEMO)/world/questions.jsonl --facts 1 --limit 10 --runs $(DEMO)/runs

demo: setup model  ## the whole story on two cores: ask, warm up, evolve, ask again, compare
	@rm -rf $(DEMO)
	$(BIN)/quaere world --seed 7 --articles 500 --out $(DEMO)/world
	$(BIN)/quaere index $(DEMO)/world/corpus.jsonl --out $(DEMO)/index
	$(DEMO_EVAL) --name base --model smollm2-135m-plain --closed-book --turn-tokens 32 --out $(DEMO)/base.json
	$(DEMO_EVAL) --name 'base + search' --model smollm2-135m-plain --index $(DEMO)/index --max-turns 3 --topk 1 \
		--turn-tokens 64 --tool-response-tokens 160 --out $(DEMO)/search.json
	$(BIN)/quaere warmup drzero --model smollm2-135m-plain --style brief --facts 1 --proposer-hops 1 --episodes 48 --epochs 1 --batch 4 \
		--lora-rank 16 --learning-rate 2e-3 --micro-tokens 1024 $(DEMO_LIMITS) --out $(DEMO)/warm
	$(DEMO_EVAL) --name 'warm-up only' --model $(DEMO)/warm --index $(DEMO)/index $(DEMO_LIMITS) --out $(DEMO)/warm.json
	$(BIN)/quaere evolve drzero --preset demo --model $(DEMO)/warm --index $(DEMO)/index --out $(DEMO)/run
	$(DEMO_EVAL) --name evolved --run $(DEMO)/run --index $(DEMO)/index \
		--compare $(DEMO)/base.json $(DEMO)/search.json $(DEMO)/warm.json
	@echo
	@echo "The warm-up imitated an oracle in another world; only 'evolved - warm-up only' is Dr. Zero's doing, and an interval"
	@echo "that holds 0 is no gain. The run lies in $(DEMO)/run: look at it with"
	@echo "  $(BIN)/quaere runs show $(DEMO)/run"

test: setup model  ## the whole test suite, slow and GPU tests excepted; see CONTRIBUTING.md for what it spares itself
	$(TESTS) --hypothesis-profile quick

test-slow: setup model  ## the tests that take minutes or download more
	$(BIN)/python -m pytest -q -m slow

AXE := axe-core@4.14.0
browser: setup  ## what the tests of `quaere view` drive: Playwright, Chromium (Debian's, as root), axe-core (with npm)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt playwright
	command -v chromium > /dev/null || command -v google-chrome > /dev/null || \
		{ apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium > /dev/null; }
	test -f $(VENV)/share/axe.min.js || { mkdir -p $(VENV)/share && cd $(VENV)/share && \
		npm pack --silent $(AXE) > /dev/null && tar -xzf axe-core-*.tgz --strip-components 1 package/axe.min.js; }

check: setup model lint types  ## everything a change must pass: style, types, layers, tests with nothing spared
	$(TESTS) --cache-clear

wheel-check:  ## what is installed without extras: the wheel in a fresh environment, its size, indexing and searching
	$(PYTHON) benchmarks/wheel_check.py

MUTANTS ?=
mutants: setup model  ## would a test notice? faults put into the code one by one; MUTANTS='--room rewards' for one room
	$(BIN)/python benchmarks/mutants.py $(MUTANTS)

docs: setup  ## the documentation as a site in site/, with a reference made from the code; a warning is an error
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

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
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dense,dev,lance,pdf,select,train]'
	@touch $(STAMP)

model: setup
	@$(BIN)/quaere models pull smollm2-135m > /dev/null

clean:
	rm -rf $(VENV) $(DEMO) site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .mutants
