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

.PHONY: demo demo-ask demo-learn test test-slow browser screenshots check docs wheel-check scale-check mutants lint types setup model clean

# ------------------------------------------------------------------------------------------------------- what to type

# Two cores cannot train the built-in model in minutes. So it answers a question, and then a model of 0.15 M weights, made
# on the spot, learns. It was shown how to search in a hamlet, where each house has one record and its name finds it. In
# a village each house has four, and a query must say what is asked. Nobody tells it that: it has no questions but its own.
DEMO_SEED ?= 0
LEARN := $(DEMO)/seed-$(DEMO_SEED)
SHORT := --max-turns 2 --topk 1 --turn-tokens 24 --sequence-tokens 128
RECORDS := --row-words 0 --chunk-words 3
ASK := $(BIN)/quaere ask --runs $(DEMO)/runs
EVAL := $(BIN)/quaere eval --questions $(LEARN)/other/questions.jsonl --index $(LEARN)/other-index --runs $(DEMO)/runs

demo: demo-ask demo-learn  ## the whole story on two cores: ask with evidence; a small model asks itself and learns to search

demo-ask: setup model  ## the first part of the demo: the built-in model answers, with the sentence it relies on
	@rm -rf $(DEMO)/world $(DEMO)/index
	$(BIN)/quaere world --seed 7 --articles 500 --out $(DEMO)/world
	$(BIN)/quaere index $(DEMO)/world/corpus.jsonl --out $(DEMO)/index
	$(ASK) "Who created praldock broth?" --index $(DEMO)/index || test $$? = 3

demo-learn: setup  ## the second part, without labels: ask, evolve, ask again, curve, difference; DEMO_SEED=1 for another run
	@rm -rf $(LEARN)
	$(BIN)/quaere world --family village --seed 7 --articles 400 --questions 0 --out $(LEARN)/village
	$(BIN)/quaere world --family village --seed 8 --articles 400 --questions 100 --out $(LEARN)/other
	$(BIN)/quaere index $(LEARN)/village/corpus.jsonl $(RECORDS) --out $(LEARN)/village-index
	$(BIN)/quaere index $(LEARN)/other/corpus.jsonl $(RECORDS) --out $(LEARN)/other-index
	$(BIN)/quaere warmup drzero --model blank --style brief --facts 1 --proposer-hops 1 --articles 900 --episodes 800 --epochs 6 \
		--learning-rate 4e-3 $(SHORT) --tool-response-tokens 32 --seed $(DEMO_SEED) --out $(LEARN)/tiny
	$(ASK) "Who painted Stone Shop?" --index $(LEARN)/other-index --model $(LEARN)/tiny $(SHORT) || test $$? = 3
	$(EVAL) --name before --model $(LEARN)/tiny $(SHORT) --tool-response-tokens 32 --max-rows 100 --out $(LEARN)/before.json
	$(BIN)/quaere evolve drzero --config examples/village.yaml --model $(LEARN)/tiny --index $(LEARN)/village-index \
		--set seed=$(DEMO_SEED) --out $(LEARN)/run
	$(BIN)/quaere export $(LEARN)/run --role solver --merge --out $(LEARN)/evolved
	$(ASK) "Who painted Stone Shop?" --index $(LEARN)/other-index --model $(LEARN)/evolved || test $$? = 3
	$(BIN)/quaere runs show $(LEARN)/run --metrics answer/exact_match --chart
	$(EVAL) --name after --run $(LEARN)/run --max-rows 100 --out $(LEARN)/after.json --compare $(LEARN)/before.json
	@echo
	@echo "What this shows: 'before' knew the form of an episode from 800 demonstrations in a hamlet, and searched for houses by"
	@echo "name. Then it wrote 250 questions about one village by itself, and was rewarded for answering them as it had written;"
	@echo "the curve is its rate of right answers. 'after - before' is on 100 questions about another village, whose documents it"
	@echo "has never seen: no label was used but to measure. An interval that holds 0 would be no gain."
	@echo "What it does not show: what a real model gains on real documents. docs/results.md has that."

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

screenshots: setup browser  ## pictures of the viewer in docs/screenshots, from a run that is trained for them
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
