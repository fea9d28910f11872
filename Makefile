# Everything a newcomer needs: make demo, make test. Both build their environment.
PYTHON ?= python3
VENV := .venv
INTEROP := .venv-interop
BIN := $(VENV)/bin
PIP_INSTALL := pip install --quiet --disable-pip-version-check --require-hashes

.PHONY: demo test check bench lock clean

demo: $(VENV)/.ready
	sh tests/demo.sh $(BIN)/recordmill

test: $(VENV)/.ready $(INTEROP)/.ready
	$(BIN)/python -m pytest

check: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.ready $(INTEROP)/.ready
	$(BIN)/python tests/bench/run.py all

# The project's environment: the lock, then the project itself in place.
$(VENV)/.ready: requirements-dev.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "recordmill needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/$(PIP_INSTALL) -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

# TensorFlow and TFDS, to read what was written: never beside the project itself.
$(INTEROP)/.ready: requirements-interop.lock
	$(PYTHON) -m venv $(INTEROP)
	$(INTEROP)/bin/$(PIP_INSTALL) -r requirements-interop.lock
	touch $@

# Solves everything in one go, extras too, so that all locks fit together. Needs uv.
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
lock:
	$(LOCK) pyproject.toml --all-extras --group dev -o requirements-all.lock
	$(LOCK) pyproject.toml --group dev -c requirements-all.lock -o requirements-dev.lock
	$(LOCK) pyproject.toml -c requirements-all.lock -o requirements.lock
	$(LOCK) tests/interop/requirements.in -o requirements-interop.lock

clean:
	rm -rf $(VENV) $(INTEROP) demo-output bench-data build *.egg-info
