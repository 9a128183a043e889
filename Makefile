# `make demo` and `make test` do all their own set-up on a machine with nothing but Python and PyPI.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO ?= demo
# Most tests use one thread, so several files are run at once; a file's tests share what they have built. The order is
# that of tests/conftest.py, and not by how many tests a file has: the longest have few. Bytecode is written even where
# the environment forbids it, or every worker and every command that a test starts compiles all sources again.
# One worker more than there are cores: some tests wait for servers and for processes that they kill.
WORKERS := $(shell $(PYTHON) -c 'import os; print(min(4, (os.cpu_count() or 1) + 1))')
TESTS := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-slow browser screenshots check docs wheel-check scale-check mutants lint types setup model clean

# ------------------------------------------------------------------------------------------------------- what to type

# Two cores cannot train the built-in model in minutes, so a model of 0.15 M weights is made on the spot. It is shown how to
# search in a hamlet, where each house has one record and its name finds it. In a village each house has four, and a query
# must say what is asked. Nobody tells it that: it practises on no questions but its own.
DEMO_SEED ?= 0
VILLAGE := $(DEMO)/seed-$(DEMO_SEED)
SHORT := --max-turns 2 --topk 1 --turn-tokens 24 --sequence-tokens 128
ASK := $(BIN)/quaere ask "Who built Red House?" --index $(VILLAGE)/index --runs $(DEMO)/runs

demo: setup  ## `quaere learn` in two minutes on two cores: a small model asks itself questions, and learns to search; DEMO_SEED=1 for another run
	@rm -rf $(VILLAGE)
	$(BIN)/quaere world --family village --seed 7 --articles 400 --questions 400 --out $(VILLAGE)/world
	$(BIN)/quaere index $(VILLAGE)/world/corpus.jsonl --row-words 0 --chunk-words 3 --out $(VILLAGE)/index
	$(BIN)/quaere warmup drzero --model blank --style brief --facts 1 --proposer-hops 1 --articles 900 --episodes 800 --epochs 6 \
		--learning-rate 4e-3 $(SHORT) --tool-response-tokens 32 --seed $(DEMO_SEED) --out $(VILLAGE)/tiny
	$(ASK) --model $(VILLAGE)/tiny $(SHORT) || test $$? = 3
	$(BIN)/quaere learn $(VILLAGE)/index --recipe drzero --config examples/village.yaml --model $(VILLAGE)/tiny \
		--questions $(VILLAGE)/world/questions.jsonl --minutes 2 --seed $(DEMO_SEED) --out $(VILLAGE)/learned
	$(ASK) --model $(VILLAGE)/learned/agent || test $$? = 3
	$(BIN)/quaere runs show $(VILLAGE)/learned/run --metrics answer/exact_match --chart
	@echo
	@echo "What this shows: the tiny model knew the form of an episode from 800 demonstrations in a hamlet, and searched for houses"
	@echo "by name. In 'learn' it wrote 250 questions about a village by itself, and was rewarded for answering them as it had"
	@echo "written; the curve is its rate of right answers. The gain is on 100 questions about houses that it had not"
	@echo "asked about: no label was used but to measure. An interval that holds 0 would be no gain. Its episodes, in a browser:"
	@echo "  $(BIN)/quaere view $(VILLAGE)/learned/run --open"
	@echo "What it does not show: what a real model gains on real documents. docs/results.md has that."

test: setup model  ## the whole test suite, slow and GPU tests excepted; see CONTRIBUTING.md for what it spares itself
	$(TESTS) --hypothesis-profile quick

test-slow: setup model  ## the tests that take minutes or download more
	$(BIN)/python -m pytest -q -m slow

AXE := axe-core@4.14.0
browser: setup  ## what the tests of `quaere view` drive: Playwright, Chromium (Debian's, as root), axe-core (with npm)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt playwright
	command -v chromium > /dev/null || command -v google-chrome > /dev/null || \
		{ apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium fonts-inter > /dev/null; }
	test -f $(VENV)/share/axe.min.js || { mkdir -p $(VENV)/share && cd $(VENV)/share && \
		npm pack --silent $(AXE) > /dev/null && tar -xzf axe-core-*.tgz --strip-components 1 package/axe.min.js; }

screenshots: setup browser  ## pictures of the viewer in docs/screenshots: of a real run, and of one that is trained for them
	$(BIN)/python benchmarks/screenshots.py

check: setup model lint types  ## everything a change must pass: style, types, layers, tests with nothing spared
	$(TESTS) --cache-clear

wheel-check:  ## what is installed without extras: the wheel in a fresh environment, its size, indexing and searching
	$(PYTHON) benchmarks/wheel_check.py

SCALE ?= scale-check
SDK := tinker>=0.25,<0.26
scale-check: setup  ## recipes on a real SkyRL server (CPU), each killed and resumed: minutes each; needs Python 3.12
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt '$(SDK)' uv
	@rm -rf $(SCALE)
	$(BIN)/python benchmarks/scale_check.py --work $(SCALE)

MUTANTS ?=
mutants: setup model  ## would a test notice? faults put into the code one by one; MUTANTS='--room rewards' for one room
	$(BIN)/python -m pip install -q --disable-pip-version-check triton || echo 'no triton: faults in the GPU kernels meet no test'
	$(BIN)/python benchmarks/mutants.py $(MUTANTS)

docs: setup  ## the documentation as a site in site/, with a reference made from the code; a warning is an error
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "site/index.html opens without a server; to search, $(BIN)/python -m http.server --directory site"

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
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dense,dev,lance,mcp,pdf,select,train]'
	@touch $(STAMP)

model: setup
	@$(BIN)/quaere models pull smollm2-135m > /dev/null

clean:
	rm -rf $(VENV) $(DEMO) $(SCALE) site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .mutants
