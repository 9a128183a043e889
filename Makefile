# `make demo` and `make test` do all their own set-up on a machine with nothing but Python and PyPI.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO ?= demo
DEMO_SEED ?= 0
# Most tests use one thread, so several files are run at once; a file's tests share what they have built. The order is
# that of tests/conftest.py, and not by how many tests a file has: the longest have few. Bytecode is written even where
# the environment forbids it, or every worker and every command that a test starts compiles all sources again.
TESTS := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-slow browser check docs wheel-check mutants lint types setup model clean

# ------------------------------------------------------------------------------------------------------- what to type

# The built-in model, over articles of an invented encyclopedia. Then a model of 0.2 M weights, made here and now, because
# two cores cannot teach the built-in one anything in minutes: it is shown in a harbour how to search and who was captain
# of which ship, and has to find out by reward alone, in a village, who of the three people in an article built a bridge.
TINY := --max-turns 3 --topk 1 --turn-tokens 24 --sequence-tokens 192 --tool-response-tokens 64
ASK := $(BIN)/quaere ask --index $(DEMO)/index --runs $(DEMO)/runs
EVAL := $(BIN)/quaere eval --questions $(DEMO)/village-7/questions.jsonl --limit 200 --index $(DEMO)/village-7-index --max-rows 100 --runs $(DEMO)/runs

demo: setup model  ## the whole story on two cores: ask, evolve, ask again, compare; DEMO_SEED=1 for another run
	@rm -rf $(DEMO)
	$(BIN)/quaere world --seed 7 --articles 500 --out $(DEMO)/world
	$(BIN)/quaere index $(DEMO)/world/corpus.jsonl --out $(DEMO)/index
	$(ASK) "Who created praldock broth?"
	@echo "Something these documents do not say (exit code 3):"
	$(ASK) "Which dish was most loved by Belduvy Whaelvard the Hoarse?" || test $$? = 3
	$(BIN)/quaere world --family village --seed 8 --articles 600 --questions 480 --out $(DEMO)/village-8
	$(BIN)/quaere world --family village --seed 7 --articles 600 --questions 200 --out $(DEMO)/village-7
	$(BIN)/quaere index $(DEMO)/village-8/corpus.jsonl --out $(DEMO)/village-8-index
	$(BIN)/quaere index $(DEMO)/village-7/corpus.jsonl --out $(DEMO)/village-7-index
	$(BIN)/quaere warmup search-r1 --model blank --family harbour --articles 1000 --facts 1 --style brief --episodes 950 --epochs 6 \
		--learning-rate 4e-3 --micro-tokens 8192 $(TINY) --seed $(DEMO_SEED) --out $(DEMO)/tiny
	$(EVAL) --name before --model $(DEMO)/tiny $(TINY) --out $(DEMO)/before.json
	$(BIN)/quaere evolve search-r1 --config examples/village.yaml --model $(DEMO)/tiny --index $(DEMO)/village-8-index \
		--questions $(DEMO)/village-8/questions.jsonl --set seed=$(DEMO_SEED) --out $(DEMO)/run
	$(BIN)/quaere runs show $(DEMO)/run --metrics reward/mean --chart
	$(EVAL) --name after --run $(DEMO)/run --compare $(DEMO)/before.json
	@echo
	@echo "Before and after answered the same 200 questions about a village that the run has never seen. The difference is what"
	@echo "reward alone taught a model of 0.2 M weights; an interval that holds 0 is no gain. It shows that the machinery learns,"
	@echo "not what a real model gains: docs/results.md has that. Look at the run with"
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
