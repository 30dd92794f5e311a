# Each target makes what it needs: `make demo` and `make test` run from a clean clone with only Python and a package index.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Tests that install Paddle's converters (1 GB) or take long are left to CI: make test PYTEST_ARGS= runs them, too.
PYTEST_ARGS ?= -m "not toolchain and not slow"
# Whole files to each process, as tests of a file share models; more processes than two cores have make memory the limit.
JOBS ?= 2

.PHONY: demo test check format clean

demo: $(VENV)/runtime
	$(BIN)/docvino demo -o out/demo

test: $(VENV)/dev
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile $(PYTEST_ARGS)

check: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) out .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/runtime: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[vlm]'
	touch $@

$(VENV)/dev: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@
