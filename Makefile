# Every target creates .venv when it is missing and may be run again.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
NATIVE := CMakeLists.txt pyproject.toml $(wildcard src/dorylus/kernels/native/*)

.PHONY: setup run test check bench clean
.DELETE_ON_ERROR:

setup: $(STAMP)

$(VENV)/.locked: requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	touch $@

$(STAMP): $(VENV)/.locked $(NATIVE)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	touch $@

run: setup
	$(BIN)/dorylus train communities --model gcn --epochs 60

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: check
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

bench: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
