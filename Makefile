# The two commands of the README are `make demo` and `make test`; each sets itself up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# The CPU build of torch serves one test (CityLearn against ours) and the benchmarks of other
# libraries; users never need it.
TORCH ?= torch==2.13.0

# Tests of one file stay together, since they share what they compiled. The files run in the
# order of tests/conftest.py, in which the longest ones come first.
PARALLEL := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
# Docker images often forbid Python to keep bytecode. Without it every process compiles the
# package and the tests again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test quick test-slow test-lowest audit fuzz check lint types website format setup setup-safety setup-citylearn setup-slow setup-browser docs bench clean

demo: $(VENV)/.setup-demo
	$(BIN)/orac demo

# Linting takes a second. The type checker and the website need one core for a minute, so
# they run beside the tests.
test: lint
	$(MAKE) --no-print-directory --jobs 3 types website quick

quick: setup
	$(BIN)/python -m pytest -q $(PARALLEL) -m "not slow"

test-slow: setup-slow
	$(BIN)/python -m pytest -q $(PARALLEL) -m slow

# The quick tests with the lowest versions that pyproject.toml allows.
LOWEST := .venv-lowest
test-lowest:
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip --disable-pip-version-check --quiet install uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --editable ".[dev]"
	$(LOWEST)/bin/python -m pytest -q $(PARALLEL) -m "not slow"

# What users install, without the tools of developers, against the databases of known vulnerabilities.
AUDIT := .venv-audit
audit:
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip --disable-pip-version-check --quiet install --upgrade pip pip-audit ".[all]"
	$(AUDIT)/bin/pip-audit --local --skip-editable

# An hour of random damage to files; the quick tests do the same for some seconds.
FUZZ_SECONDS ?= 3600
fuzz: setup
	ORAC_FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/python -m pytest -q tests/test_fuzz.py

check: lint types website
	$(BIN)/python -m pytest -q tests/test_import_order.py tests/test_equations.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/pyright --warnings

website: setup
	$(BIN)/mkdocs build --strict --quiet

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: $(VENV)/.setup-dev

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade "pip>=24"

# The demo needs only this extra, which installs in a fraction of the time of all.
$(VENV)/.setup-demo: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --editable ".[plots]"
	touch $@

# The stamp is newer than pyproject.toml when nothing is to be installed.
$(VENV)/.setup-dev: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --editable ".[dev]"
	touch $@

# These two pin versions that conflict with a current stack, so their own requirements are
# left out; what they really need is in our extras and in the lines below.
setup-safety: $(VENV)/.setup-safety
$(VENV)/.setup-safety: Makefile | $(VENV)/.setup-dev
	$(PIP) install --no-deps "safety-gymnasium==1.0.0"
	touch $@

setup-citylearn: $(VENV)/.setup-citylearn
$(VENV)/.setup-citylearn: Makefile | $(VENV)/.setup-dev
	$(PIP) install --no-deps "CityLearn==2.1.2"
	$(PIP) install $(TORCH) pandas simplejson scikit-learn
	touch $@

setup-browser:
	command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium)

setup-slow: setup setup-safety setup-citylearn $(VENV)/.setup-ray
$(VENV)/.setup-ray: pyproject.toml | $(VENV)/.setup-dev
	$(PIP) install --editable ".[ray,brax,playground,onnx-encoder]"
	touch $@

docs: setup
	$(BIN)/mkdocs build --strict

# Other libraries have an environment of their own, since they need PyTorch. One that does
# not install is a line of the table, not an error.
PEERS := .venv-peers
bench: setup setup-safety $(PEERS)/.setup
	$(BIN)/python benchmarks/bench.py $(BENCH)

$(PEERS)/.setup: Makefile
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet $(TORCH)
	$(PEERS)/bin/python -m pip install --quiet "sbx-rl==0.28.0" ".[safety]"
	$(PEERS)/bin/python -m pip install --quiet --no-deps "safety-gymnasium==1.0.0"
	-$(PEERS)/bin/python -m pip install --quiet omnisafe
	touch $@

clean:
	rm -rf $(VENV) $(PEERS) $(LOWEST) $(AUDIT) build dist site .pytest_cache .ruff_cache
	rm -rf $(HOME)/.cache/orac-tests
