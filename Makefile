# Everything a newcomer needs: make demo, make test. Both build their environment.
PYTHON ?= python3
VENV := .venv
INTEROP := .venv-interop
BIN := $(VENV)/bin
TOOLS := .tools
FAKE_GCS := v1.56.1
AZURITE := 3.37.0
# That of requirements.lock: launcher, Prism and workers speak one version.
BEAM := 2.77.0
MAVEN_COPY := org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies
STORES := $(TOOLS)/fake-gcs-server-$(FAKE_GCS)/fake-gcs-server $(TOOLS)/azurite-$(AZURITE)/.ready
CLUSTERS := $(TOOLS)/prism-$(BEAM)/prism $(TOOLS)/beam-boot-$(BEAM)/container $(TOOLS)/flink/.ready $(TOOLS)/spark/.ready
PIP_INSTALL := pip install --quiet --disable-pip-version-check --require-hashes

.PHONY: demo test test-integration check bench lock clean

demo: $(VENV)/.ready
	sh tests/demo.sh $(BIN)/recordmill

test: $(VENV)/.ready $(INTEROP)/.ready
	$(BIN)/python -m pytest

# Every store on a server of its own and the engines as clusters of processes, which the
# tests start and stop; and all of deploy/ under the tools that know its files. Needs Go,
# Node, Java 17 with Maven, kubectl and systemd-analyze.
test-integration: $(VENV)/.clouds $(STORES) $(CLUSTERS) $(TOOLS)/deploy/.ready $(TOOLS)/airflow/.ready
	$(BIN)/python -m pytest --stores gcs,azure tests/test_store_contract.py tests/test_lease.py tests/integration

check: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.ready $(INTEROP)/.ready
	$(BIN)/python tests/bench/run.py all

# The project's environment: the lock, then the project itself in place.
$(VENV)/.ready: requirements-dev.lock pyproject.toml setup.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "recordmill needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/$(PIP_INSTALL) -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

# All extras too; one solution with the lock above, so nothing else changes.
$(VENV)/.clouds: $(VENV)/.ready requirements-all.lock
	$(BIN)/$(PIP_INSTALL) -r requirements-all.lock
	touch $@

$(TOOLS)/fake-gcs-server-$(FAKE_GCS)/fake-gcs-server:
	GOBIN=$(CURDIR)/$(@D) go install github.com/fsouza/fake-gcs-server@$(FAKE_GCS)

# No lock file: it would name where packages are downloaded from.
$(TOOLS)/azurite-$(AZURITE)/.ready:
	npm install --silent --no-save --no-package-lock --no-audit --no-fund --prefix $(@D) azurite@$(AZURITE)
	touch $@

$(TOOLS)/prism-$(BEAM)/prism:
	GOBIN=$(CURDIR)/$(@D) go install github.com/apache/beam/sdks/v2/go/cmd/prism@v$(BEAM)

# Beam's program that starts a Python worker.
$(TOOLS)/beam-boot-$(BEAM)/container:
	GOBIN=$(CURDIR)/$(@D) go install github.com/apache/beam/sdks/v2/python/container@v$(BEAM)

# Flink and Spark, with Beam's job servers for them.
$(TOOLS)/flink/.ready $(TOOLS)/spark/.ready: $(TOOLS)/%/.ready: tests/integration/pom-%.xml
	rm -rf $(@D)
	mvn --quiet --batch-mode --file $< $(MAVEN_COPY) -DoutputDirectory=$(CURDIR)/$(@D) -DincludeScope=runtime
	touch $@

# An environment for each set of tools: none of them goes beside the project. A lock is
# complete, so nothing is solved again: pip would stumble over extras, which have no hashes.
$(TOOLS)/%/.ready: tests/integration/requirements-%.lock
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/$(PIP_INSTALL) --no-deps -r $<
	$(@D)/bin/pip check
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
	$(LOCK) pyproject.toml --all-extras -c requirements-all.lock -o deploy/requirements.lock
	$(LOCK) --group build -c requirements-all.lock -o deploy/requirements-build.lock
	$(LOCK) tests/interop/requirements.in -o requirements-interop.lock
	$(LOCK) tests/integration/requirements-deploy.in -o tests/integration/requirements-deploy.lock
	$(LOCK) tests/integration/requirements-airflow.in -o tests/integration/requirements-airflow.lock

clean:
	rm -rf $(VENV) $(INTEROP) $(TOOLS) demo-output bench-data build *.egg-info
