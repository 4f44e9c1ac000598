# `make test` and `make demo` need Python 3.11 or newer, make and pip; everything else they install into .venv.
PYTHON ?= python3
BIN := .venv/bin
JOBS ?= auto
EXAMPLES ?= 5000
KERNEL_TESTS := tests/ops tests/stacks tests/grammars/test_inside.py tests/analysis/test_runs.py tests/analysis/test_trace.py
PIP := PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip

.PHONY: help install test demo lint format bench docs site coverage dist check-dist fuzz clean

help:            ## this list
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:  +##' Makefile | sed 's/:.*##/\t/' | expand -t 12

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("ndstack needs Python 3.11 or newer, this is %d.%d: make PYTHON=python3.11" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(PIP) install -q -e '.[dev,docs]'
	@touch $@

install: .venv/installed   ## make .venv with everything in it

test: .venv/installed      ## the whole test suite
	$(BIN)/python -m pytest -n $(JOBS)

demo: .venv/installed      ## the main job in small: see README
	$(BIN)/ndstack demo --out demo

lint: .venv/installed      ## formatting, lint, types, and who imports whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/installed    ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/installed     ## speed, as tables
	$(BIN)/ndstack bench

site: .venv/installed      ## the documentation as a site; `python -m http.server -d site` shows it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs: .venv/installed      ## draw the pictures and write the tables of docs/ again
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/measure_house.py
	$(BIN)/ndstack claims results --out docs
	$(BIN)/python docs/results.py
	$(BIN)/ndstack demo --out demo
	cp demo/*.svg docs/pictures/demo/

coverage: .venv/installed  ## share of lines that the tests run; kernels are run once more, as plain Python
	$(BIN)/python -m pytest -n $(JOBS) --hypothesis-profile=few --cov --cov-report=
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -n $(JOBS) -m 'not compiled' $(KERNEL_TESTS) \
		--hypothesis-profile=few --cov --cov-append --cov-report=
	$(BIN)/coverage report --fail-under=95
	@$(BIN)/coverage json -q -o - | $(BIN)/python -c 'import json, sys; print("lines {percent_statements_covered:.1f} %, \
	branches {percent_branches_covered:.1f} %".format(**json.load(sys.stdin)["totals"]))'

dist: .venv/installed      ## a wheel and a source archive in dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation

check-dist: dist           ## install the wheel in an empty environment elsewhere, and use it there
	PYTHON=$(PYTHON) .ci/check-dist

fuzz: .venv/installed      ## random and damaged input for all readers, random weights for all kernels: hours
	$(BIN)/python -m tests.fuzz --examples $(EXAMPLES)
	$(BIN)/python -m tests.fuzz_states --count $(EXAMPLES)
	$(BIN)/python -m benchmarks.no_nan --count 1000000

clean:                     ## remove what make made
	rm -rf .venv demo site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage* dist
