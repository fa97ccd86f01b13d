# Every target creates .venv when it is missing and may be run again.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
NATIVE := CMakeLists.txt pyproject.toml $(wildcard src/dorylus/backends/native/cpp/*)

PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
LOCKED := install --require-hashes --no-deps --only-binary :all:
LOCKS  := requirements.lock requirements-torch.lock requirements-cuda.lock

.PHONY: setup run test soak check docs bench clean lock audit licences wheel test-pythons test-arm
.DELETE_ON_ERROR:

setup: $(STAMP)

# Every file is checked against the hashes of the lock. Torch is fetched first, so that pip chooses the build (for CPUs only,
# where it finds one), and then checked; the CUDA build takes packages of its own.
$(VENV)/.locked: $(LOCKS)
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(LOCKED) -r requirements.lock
	rm -rf $(VENV)/torch
	$(PIP) download --no-deps --only-binary :all: --dest $(VENV)/torch $$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' requirements-torch.lock)
	$(PIP) $(LOCKED) --no-index --find-links $(VENV)/torch -r requirements-torch.lock
	rm -r $(VENV)/torch
	if $(BIN)/python -m pip show torch | grep '^Requires:.*nvidia' > /dev/null; then $(PIP) $(LOCKED) -r requirements-cuda.lock; fi
	$(BIN)/python -m pip check
	touch $@

$(STAMP): $(VENV)/.locked $(NATIVE)
	$(PIP) install --no-build-isolation --no-deps --editable .
	@command -v chromium > /dev/null || echo "Tests of pages are skipped without Chromium: apt install chromium"
	touch $@

run: setup
	$(BIN)/dorylus train communities --model gcn --epochs 60

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: check
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

# FUZZ_CASES=20000 FUZZ_SEED=mine makes the hostile inputs fewer, and others. As root: namespaces, memory groups, a small disk.
SOAK := build/soak
soak: setup
	$(BIN)/pytest -s tests/soak
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --timeout 1800 -m "soak or hypothesis" --hypothesis-profile soak
	$(BIN)/python -m benchmarks.memory --what limit big --vertices 8388608 --edges 200000000 --memory 4GiB 2GiB --results $(SOAK)
	$(BIN)/python -m benchmarks.faults --runs 30 --results $(SOAK)

# Each Python that is found, in an environment of its own: with torch for CUDA, 5 GB of disk and some minutes each.
PYTHONS ?= python3.11 python3.12 python3.13 python3.14
MATRIX  := tests/unit tests/contract $(wildcard tests/integration/test_wire_*.py)
test-pythons:
	@failed=; for python in $(PYTHONS); do \
	  version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || \
	    { echo "$$python: skipped, because it is not on PATH or does not start"; continue; }; \
	  { $(MAKE) --no-print-directory setup PYTHON=$$python VENV=build/python-$$version && \
	    build/python-$$version/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder $(MATRIX) && \
	    echo "Python $$version: passed"; } || { failed="$$failed $$version"; echo "Python $$version: FAILED"; }; \
	done; [ -z "$$failed" ] || { echo "failed on$$failed"; exit 1; }

test-arm: setup
	tools/test_arm.sh

# uv and pip-audit, which set-up does not need.
TOOLS := build/tools
$(TOOLS)/.installed: Makefile
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/pip install --quiet --disable-pip-version-check uv==0.13.7 pip-audit==2.10.1
	touch $@

# Pins stay; make lock UPGRADE=--upgrade takes the newest. TORCH="FILE ..." accepts further builds of torch.
lock: $(TOOLS)/.installed
	PATH=$(abspath $(TOOLS)/bin):$$PATH python tools/supply_chain.py lock $(UPGRADE) $(if $(TORCH),--torch $(TORCH))

audit: $(TOOLS)/.installed
	$(TOOLS)/bin/python tools/supply_chain.py audit

licences: setup
	$(BIN)/python tools/supply_chain.py licences

# One wheel for Python 3.11, one for all later ones where a Python 3.12 or newer is found, and the source distribution.
wheel: setup
	rm -rf build/dist
	$(BIN)/python tools/wheels.py build/dist

# A site that needs no network: open build/site/index.html. A warning, for instance about a broken link, stops it.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
