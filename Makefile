# Everything a newcomer needs: make demo, make test. Both build what they run in.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
# Where this is set, as in many images, each of some thousand processes of the tests would
# compile all it imports anew: Beam's import alone takes three times as long.
unexport PYTHONDONTWRITEBYTECODE
# Processes that run tests: two more than there are cores, as many tests wait for others.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 + (os.cpu_count() or 1))')
VENV := .venv
INTEROP := .venv-interop
BIN := $(VENV)/bin
TOOLS := .tools
FAKE_GCS := v1.56.1
AZURITE := 3.37.0
COMPOSE_GO := v2.16.2
GO_IMAGE := v0.47.0
VALE := v3.21.0
KUBECONFORM := v0.7.0
# That of requirements.lock: launcher, Prism and workers speak one version.
BEAM := 2.77.0
MAVEN_COPY := org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies
STORES := $(TOOLS)/fake-gcs-server-$(FAKE_GCS)/fake-gcs-server $(TOOLS)/azurite-$(AZURITE)/.ready
CLUSTERS := $(TOOLS)/prism-$(BEAM)/prism $(TOOLS)/beam-boot-$(BEAM)/container $(TOOLS)/flink/.ready $(TOOLS)/spark/.ready
CONTAINERS := $(TOOLS)/containers/base.tar
IMAGES := $(TOOLS)/images/.ready
BROWSER := $(TOOLS)/browser/.ready
READERS := $(TOOLS)/readers/.ready $(TOOLS)/torch/.ready
PEERS := $(addprefix $(TOOLS)/bench-,$(addsuffix /.ready,tfx peers streaming img2dataset))
# What builds a release, and a clean environment of each Python that it is tested in; the
# newest is enough for a change.
RELEASE_BY_NEWEST := $(TOOLS)/release/.ready $(TOOLS)/clean-3.13/.ready
RELEASE := $(RELEASE_BY_NEWEST) $(TOOLS)/clean-3.11/.ready $(TOOLS)/clean-3.12/.ready
INTEGRATION := $(STORES) $(CLUSTERS) $(TOOLS)/deploy/.ready $(TOOLS)/site/.ready $(TOOLS)/vale-$(VALE)/vale $(TOOLS)/kubeconform-$(KUBECONFORM)/kubeconform $(TOOLS)/compose-go-$(COMPOSE_GO)/cmd $(TOOLS)/airflow/.ready $(IMAGES) $(BROWSER) $(READERS) $(TOOLS)/lowest/.ready $(RELEASE_BY_NEWEST)
# $(call install,ENVIRONMENT): what comes behind it goes into that environment. Nothing
# is compiled on the way: Python does that with the few modules that are imported. Where uv
# is, it takes a tenth of the time of pip.
ifneq ($(shell command -v uv),)
install = uv pip install --python $(1)/bin/python
consistent = uv pip check --python $(1)/bin/python
else
install = $(1)/bin/pip install --no-compile --progress-bar off --disable-pip-version-check
consistent = $(1)/bin/pip check
endif
# One line for each package; "unpacking" is the last step of pip.
BRIEFLY := | awk '/^Collecting/ { print "  " $$2 } /^Installing coll/ { print "  unpacking" } \
	!/^(Collecting|Installing|Downloading|Using|Looking|Obtaining|Requirement|Ignoring|Successfully| )/ { print } { fflush() }'

# Programs of Go are compiled without optimisation, in two thirds of the time: a test runs
# each for seconds. Without C, but for the one that needs it. The compiler collects its
# garbage less often, which takes a tenth of its time.
GO_INSTALL := GOGC=400 CGO_CFLAGS=-O0 go install "-gcflags=all=-N -l -dwarf=false" "-ldflags=-s -w"

.PHONY: demo test test-fast coverage test-integration test-long fuzz adversary power-loss soak image environments tools check site words bench bench-peers bench-quick release lock clean

demo: $(VENV)/.run
	sh tests/demo.sh $(BIN)/recordmill

test: $(VENV)/.ready $(INTEROP)/.ready
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# While one edits: functions and classes alone, without the tests marked slow.
test-fast: $(VENV)/.ready
	RECORDMILL_EXAMPLES=0.1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" tests/unit

# Lines and branches that the tests run, by folder, commands that they start as well. Twice
# the time of the tests. tests/proof/README.md has the figures.
coverage: $(VENV)/.ready $(INTEROP)/.ready
	nice $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --cov --cov-report=json:build/coverage.json || status=$$?; \
	$(BIN)/python tests/proof/coverage_by_room.py build/coverage.json; exit $$status
	sh tests/proof/coverage_of_loops.sh

# Every parser of foreign bytes: 20,000 inputs of each kind. Takes minutes.
fuzz: $(VENV)/.clouds
	RECORDMILL_FUZZ_EXAMPLES=20000 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m fuzz --durations=0 tests tests/integration/test_fuzz_lakehouse.py

# Two and three commits at once, stopped, killed and repeated in every order: 20,000
# random histories and all pairs of runs. Takes half an hour.
adversary: $(VENV)/.ready
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/adversary/test_all_stop_points.py

# The power is lost after each change of the disk, and the command run again at 500 moments.
# Takes some minutes.
power-loss: $(VENV)/.ready
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/adversary/test_power_loss_moments.py

# Nights with kills, pauses, full disks, new inputs and failing requests; an hour, or
# `make soak SOAK_SECONDS=900`.
SOAK_SECONDS ?= 3600
soak: $(VENV)/.ready
	$(BIN)/python tests/bench/soak.py --seconds $(SOAK_SECONDS)

# deploy/Dockerfile is built and run, on stand-ins for its bases. Needs root and some GB;
# takes minutes, so it is started by hand: a test asks for that when one of these files
# changed. The packages of the product are not among them, as other tests run them.
IMAGE_INPUTS := .dockerignore deploy/Dockerfile deploy/dataflow/main.py deploy/requirements.lock deploy/requirements-build.lock pyproject.toml setup.py
image: $(VENV)/.ready $(CONTAINERS) $(TOOLS)/prism-$(BEAM)/prism $(TOOLS)/beam-boot-$(BEAM)/container
	TMPDIR=$${TMPDIR:-/tmp} $(BIN)/python -m pytest tests/integration/test_image.py --durations=0
	sha256sum $(IMAGE_INPUTS) > deploy/image.sha256

# All tests at length: fifty times the examples of `make test`, every step of a run that
# can be killed, every way to store every dtype; all sources and exchanges on Flink. Takes
# hours.
test-long: $(VENV)/.clouds $(INTEROP)/.ready $(CLUSTERS)
	RECORDMILL_EXAMPLES=20 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
	RECORDMILL_EXAMPLES=20 $(BIN)/python -m pytest -n 2 --dist loadfile tests/integration/test_clusters.py tests/integration/test_all_sources.py

# Every store on a server of its own and the engines as clusters of processes, which the
# tests start and stop; all of deploy/ under the tools that know its files; a page in a
# browser; and datasets in frameworks. Needs Go, Node, Java 17 with Maven, kubectl and
# systemd-analyze, Chromium, which is installed if root runs it, and Debian 12 for its PyTorch.
# `make release` alone builds all twice, runs the wheels of each Python, and that for ARM64,
# in a Debian for it and two minutes of qemu.
RELEASE_ALONE := $(addprefix --deselect tests/integration/test_release.py::,test_the_wheel_of_arm test_the_same_commit test_a_wheel_runs_the_demo_without_a_compiler[3.11] test_a_wheel_runs_the_demo_without_a_compiler[3.12])
test-integration: $(VENV)/.clouds $(INTEROP)/.ready $(INTEGRATION) site words
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(RELEASE_ALONE) --stores gcs,azure tests/contracts/test_store_contract.py tests/contracts/test_lease.py tests/contracts/test_input_versions.py tests/integration --ignore tests/integration/test_image.py

# What `make test` runs in, and what `make test-integration` needs beside it.
environments: $(VENV)/.ready $(INTEROP)/.ready
tools: $(INTEGRATION)

check: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The words of all pages, help texts, messages and public docstrings, by the rules in
# tests/words/styles. An error fails it; the last command counts what else could be better.
TEXTS := README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs deploy examples build/site/help.md \
	$(patsubst %.ipynb,build/site/pages/%.md,$(wildcard docs/*.ipynb)) \
	build/words
words: site $(TOOLS)/vale-$(VALE)/vale
	$(BIN)/python tests/helpers/message_texts.py build/words
	$(TOOLS)/vale-$(VALE)/vale --config tests/words/vale.ini --minAlertLevel error --output line $(TEXTS)
	@$(TOOLS)/vale-$(VALE)/vale --config tests/words/vale.ini --output line --no-exit $(TEXTS) | cut -d: -f4 | sort | uniq -c

# docs/ as a site that is read from its folder: build/site/html/index.html. A broken link is
# an error.
site: $(VENV)/.ready $(TOOLS)/site/.ready
	$(BIN)/python docs/site/pages.py build/site/pages
	NO_MKDOCS_2_WARNING=1 $(TOOLS)/site/bin/mkdocs build --strict --config-file docs/site/mkdocs.yml

# All parts, or PARTS="csv images"; run.py --list tells how long each takes.
bench: $(VENV)/.ready bench-peers
	$(BIN)/python tests/bench/run.py --tools $(TOOLS) $(PARTS)

# The environments of the peers, 5 GB. PyTorch is that of Debian 12.
bench-peers: $(INTEROP)/.ready $(PEERS) $(TOOLS)/torch/.ready $(IMAGES)

# What is checked out here beside another commit, in pairs: make bench-quick COMMIT=main,
# of a few: make bench-quick PAIRS=3 PARTS="csv help".
bench-quick: $(VENV)/.ready
	$(BIN)/python tests/bench/quick.py $(COMMIT) $(if $(PAIRS),--pairs $(PAIRS)) $(if $(PARTS),--parts $(PARTS))

# Everything that is published of this commit, in dist/, tested: deploy/release/README.md.
# With ADVISORIES=FILE it is compared with known vulnerabilities first.
release: $(VENV)/.clouds $(RELEASE) $(TOOLS)/arm64/.ready
	@test -z "$$(git status --porcelain)" || { echo "make release builds a commit: commit or remove what git status shows"; exit 1; }
	$(TOOLS)/release/bin/python deploy/release/build.py HEAD dist --environment $(VENV)
	$(if $(ADVISORIES),$(TOOLS)/release/bin/python deploy/release/statements.py dist/*.cdx.json $(ADVISORIES),@echo "Not compared with known vulnerabilities: no ADVISORIES=FILE given")
	RECORDMILL_DIST=$(CURDIR)/dist $(BIN)/python -m pytest tests/integration/test_release.py
	@git describe --exact-match --match "v*" 2> /dev/null || echo "Not tagged: this is a rehearsal of a release"

# What is needed to run: the lock, then the project itself in place.
$(VENV)/.run: requirements.lock deploy/requirements-build.lock pyproject.toml setup.py $(wildcard transforms/native/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "recordmill needs Python 3.11 or newer: make PYTHON=python3.11")'
	@echo "Building $(VENV): recordmill and the packages it needs to run"
	@$(PYTHON) -m venv $(VENV)
	@$(call install,$(VENV)) --require-hashes --no-deps -r requirements.lock -r deploy/requirements-build.lock $(BRIEFLY)
	@echo "  recordmill itself, from here"
	@$(call install,$(VENV)) --no-deps --no-build-isolation --editable . $(BRIEFLY)
	@touch $@

# What tests and checks need beside it: pytest, Hypothesis, an S3 server, mypy, ruff.
$(VENV)/.ready: $(VENV)/.run requirements-dev.lock
	@echo "Completing $(VENV): pytest, an S3 server to test with, mypy and ruff"
	@$(call install,$(VENV)) --require-hashes --no-deps -r requirements-dev.lock $(BRIEFLY)
	@touch $@

# All extras too; one solution with the lock above, so nothing else changes.
$(VENV)/.clouds: $(VENV)/.ready requirements-all.lock
	@echo "Completing $(VENV): clients of Google Cloud and Azure"
	@$(call install,$(VENV)) --require-hashes --no-deps -r requirements-all.lock $(BRIEFLY)
	@touch $@

$(TOOLS)/fake-gcs-server-$(FAKE_GCS)/fake-gcs-server:
	GOBIN=$(CURDIR)/$(@D) CGO_ENABLED=0 $(GO_INSTALL) github.com/fsouza/fake-gcs-server@$(FAKE_GCS)

# No lock file: it would name where packages are downloaded from.
$(TOOLS)/azurite-$(AZURITE)/.ready:
	npm install --silent --no-save --no-package-lock --no-audit --no-fund --prefix $(@D) azurite@$(AZURITE)
	touch $@

$(TOOLS)/prism-$(BEAM)/prism:
	GOBIN=$(CURDIR)/$(@D) CGO_ENABLED=0 $(GO_INSTALL) github.com/apache/beam/sdks/v2/go/cmd/prism@v$(BEAM)

# The linter of words.
$(TOOLS)/vale-$(VALE)/vale:
	GOBIN=$(CURDIR)/$(@D) $(GO_INSTALL) github.com/vale-cli/vale/v3/cmd/vale@$(VALE)

# Kubernetes' manifests by its JSON schemas, which .tools/deploy has.
$(TOOLS)/kubeconform-$(KUBECONFORM)/kubeconform:
	GOBIN=$(CURDIR)/$(@D) CGO_ENABLED=0 $(GO_INSTALL) github.com/yannh/kubeconform/cmd/kubeconform@$(KUBECONFORM)

# Docker's own reader of compose files, without Docker.
$(TOOLS)/compose-go-$(COMPOSE_GO)/cmd:
	GOBIN=$(CURDIR)/$(@D) CGO_ENABLED=0 $(GO_INSTALL) github.com/compose-spec/compose-go/v2/cmd@$(COMPOSE_GO)

# Beam's program that starts a Python worker.
$(TOOLS)/beam-boot-$(BEAM)/container:
	GOBIN=$(CURDIR)/$(@D) CGO_ENABLED=0 $(GO_INSTALL) github.com/apache/beam/sdks/v2/python/container@v$(BEAM)

# A Debian with Python 3.11, which stands for the image of Python, and what makes images.
$(CONTAINERS):
	@test "$$(id -u)" = 0 || { echo "make image needs root: to install packages of Debian, and for a user of its own in the image"; exit 1; }
	apt-get update --quiet=2
	DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 --no-install-recommends buildah mmdebstrap
	mkdir -p $(@D)
	mmdebstrap --quiet --variant=minbase --include=python3,python3-pip,ca-certificates bookworm $@.part.tar
	mv $@.part.tar $@

# Flink and Spark, with Beam's job servers for them.
$(TOOLS)/flink/.ready $(TOOLS)/spark/.ready: $(TOOLS)/%/.ready: tests/integration/pom-%.xml
	rm -rf $(@D)
	mvn --quiet --batch-mode --file $< $(MAVEN_COPY) -DoutputDirectory=$(CURDIR)/$(@D) -DincludeScope=runtime
	touch $@

# An environment for each set of tools: none of them goes beside the project. A lock is
# complete, so nothing is solved again: pip would stumble over extras, which have no hashes.
# Of the readers one asks for the package of PyTorch, which is Debian's.
$(TOOLS)/%/.ready: tests/integration/requirements-%.lock
	@echo "Building $(@D): what some of the tests run"
	@$(PYTHON) -m venv --clear $(@D)
	@$(call install,$(@D)) --require-hashes --no-deps -r $< $(BRIEFLY)
	@test $* = readers || $(call consistent,$(@D))
	@touch $@

# What a user of a wheel gets, in three Pythons, those of pyenv if it is there: nothing may
# need a compiler.
$(TOOLS)/clean-%/.ready: requirements.lock
	@echo "Building $(@D): packages that recordmill needs, in Python $*"
	@PYENV_VERSION=$* python$* -m venv --clear $(@D)
	@$(call install,$(@D)) --only-binary :all: --require-hashes --no-deps -r $< $(BRIEFLY)
	@touch $@

# Debian's Python for ARM64, which qemu runs, and the packages that recordmill needs there.
# Behind the browser, as apt-get works once at a time.
$(TOOLS)/arm64/.ready: requirements.lock | $(BROWSER)
	@echo "Building $(@D): Python for ARM64 and what recordmill needs, to run by qemu"
	@rm -rf $(@D) && mkdir -p $(@D)/root
	@if ! (command -v qemu-aarch64-static && command -v mmdebstrap) > /dev/null; then \
		test "$$(id -u)" = 0 || { echo "the test of the wheel for ARM64 needs qemu: as root, apt-get install qemu-user-static mmdebstrap"; exit 1; }; \
		apt-get update --quiet=2; \
		DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 --no-install-recommends qemu-user-static mmdebstrap; \
	fi
	@mmdebstrap --quiet --architectures=arm64 --variant=extract --include=python3,libstdc++6 bookworm $(@D)/root.tar
	@tar --extract --file $(@D)/root.tar --directory $(@D)/root --exclude ./dev && rm $(@D)/root.tar
	@$(PYTHON) -m pip install --quiet --no-compile --disable-pip-version-check --target $(@D)/packages \
		--platform manylinux_2_28_aarch64 --platform manylinux2014_aarch64 --python-version 3.11 \
		--only-binary :all: --root-user-action ignore --require-hashes --no-deps -r $<
	@touch $@

# The same for the peers of the benchmark; one of them lacks PyTorch, so nothing is checked.
$(TOOLS)/bench-%/.ready: tests/bench/requirements-%.lock
	@echo "Building $(@D): a peer of the benchmark"
	@$(PYTHON) -m venv --clear $(@D)
	@$(call install,$(@D)) --require-hashes --no-deps -r $< $(BRIEFLY)
	@touch $@

# PyTorch of Debian 12, beside the environments of Python 3.11 that use it, .tools/readers
# and .tools/bench-streaming.
$(TOOLS)/torch/.ready: tests/integration/unpack_torch.sh
	@echo "Unpacking Debian's PyTorch to $(@D)"
	@rm -rf $(@D)
	@sh $< $(CURDIR)/$(@D)
	@touch $@

# Images of other projects: folders that test decoders, and photographs.
$(IMAGES): tests/integration/images.lock
	@echo "Downloading images of other projects to $(@D)"
	@rm -rf $(@D) && mkdir -p $(@D)/go
	@$(PYTHON) -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --no-binary pillow --dest $(@D) -r $<
	@tar -C $(@D) -xzf $(@D)/pillow-*.tar.gz && mv $(@D)/pillow-*/Tests/images $(@D)/pillow
	@$(PYTHON) -m zipfile -e $(@D)/scikit_image-*.whl $(@D)/wheel && mv $(@D)/wheel/skimage/data $(@D)/photos
	@GOFLAGS=-modcacherw go mod download golang.org/x/image@$(GO_IMAGE)
	@cp -r $$(go env GOMODCACHE)/golang.org/x/image@$(GO_IMAGE)/testdata/. $(@D)/go
	@rm -rf $(@D)/wheel $(@D)/pillow-* $(@D)/*.whl
	@touch $@

# Debian's Chromium, in which the page of `recordmill report` is looked at.
$(BROWSER):
	@if ! (command -v chromium && command -v chromedriver) > /dev/null; then \
		test "$$(id -u)" = 0 || { echo "the tests of recordmill report need Chromium: as root, apt-get install chromium chromium-driver"; exit 1; }; \
		apt-get update --quiet=2; \
		DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 --no-install-recommends chromium chromium-driver; \
	fi
	@mkdir -p $(@D) && touch $@

# Never beside the project itself, which must do without them.
$(INTEROP)/.ready: requirements-interop.lock
	@echo "Building $(INTEROP): TensorFlow and TFDS, which read what was written"
	@$(PYTHON) -m venv $(INTEROP)
	@$(call install,$(INTEROP)) --require-hashes --no-deps -r requirements-interop.lock $(BRIEFLY)
	@touch $@

# Solves everything in one go, extras too, so that all locks fit together. Needs uv.
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
lock:
	$(LOCK) pyproject.toml --all-extras --group dev -o requirements-all.lock
	$(LOCK) pyproject.toml --group dev -c requirements-all.lock -o requirements-dev.lock
	$(LOCK) pyproject.toml -c requirements-all.lock -o requirements.lock
	$(LOCK) pyproject.toml --all-extras -c requirements-all.lock -o deploy/requirements.lock
	$(LOCK) --group build -c requirements-all.lock -o deploy/requirements-build.lock
	$(LOCK) tests/requirements-uv.in -o tests/requirements-uv.lock
	$(LOCK) tests/interop/requirements.in -o requirements-interop.lock
	$(LOCK) tests/integration/requirements-deploy.in -o tests/integration/requirements-deploy.lock
	$(LOCK) tests/integration/requirements-site.in -o tests/integration/requirements-site.lock
	$(LOCK) tests/integration/requirements-airflow.in -o tests/integration/requirements-airflow.lock
	$(LOCK) --overrides tests/overrides-torch.txt tests/integration/requirements-readers.in -o tests/integration/requirements-readers.lock
	$(LOCK) tests/integration/requirements-release.in -o tests/integration/requirements-release.lock
	$(LOCK) --resolution lowest-direct tests/integration/requirements-lowest.in pyproject.toml -o tests/integration/requirements-lowest.lock
	$(LOCK) tests/bench/requirements-tfx.in -o tests/bench/requirements-tfx.lock
	$(LOCK) tests/bench/requirements-img2dataset.in -o tests/bench/requirements-img2dataset.lock
	$(LOCK) tests/bench/requirements-peers.in -o tests/bench/requirements-peers.lock
	$(subst --universal,--python-platform linux,$(LOCK)) --overrides tests/overrides-torch.txt tests/bench/requirements-streaming.in -o tests/bench/requirements-streaming.lock

clean:
	rm -rf $(VENV) $(INTEROP) $(TOOLS) demo-output bench-data build *.egg-info
