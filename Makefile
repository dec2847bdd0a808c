# Every target needs only itself: the first one that is called makes .venv, Horovod included.
# What is slow to make is cached outside the checkout, under $${XDG_CACHE_HOME:-~/.cache}/hvd-elastic.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup
DEMO_STAMP := $(VENV)/.setup-demo
TORCH_STAMP := $(VENV)/.setup-torch
BENCHMARKS := $(filter-out bursts cluster faults job_start lending operator_scale operator_wait recorded_days simulation_truth,$(notdir $(basename $(wildcard benchmarks/[a-z]*.py))))
CODE := hvd_elastic mpijob discovery trainer priorityclasses testbed tests benchmarks examples

NEED_DEBOOTSTRAP := sh tools/need.sh 'command -v debootstrap && test -e /usr/share/keyrings/debian-archive-keyring.gpg' "debootstrap debian-archive-keyring"

# Versions of the test cluster: `make test-cluster KUBERNETES=1.36 OPERATOR=0.7` (testbed/kube/gomodules.py).
export HVD_ELASTIC_KUBERNETES ?= $(KUBERNETES)
export HVD_ELASTIC_MPI_OPERATOR ?= $(OPERATOR)

# `make demo ENGINE=torch` trains over torch.distributed: no Horovod, and no compiler.
ENGINE ?= horovod

SEEDS ?= 10
FIRST_SEED ?= 0

# With it, every process that a test or the demo starts would compile torch's modules again: seconds each.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-process test-lowest test-newest test-gpu test-image test-compilers test-clouds test-patches test-unpatched lint docs format bench report release test-cluster test-cluster-core test-cluster-ipv6 test-faults test-distributions test-distributions-part soak causes bench-cluster cluster-up cluster-parts cluster-down cluster-status clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP)  ## make .venv with everything in it; builds Horovod once (minutes), later from the cache

$(STAMP) $(DEMO_STAMP) $(TORCH_STAMP): pyproject.toml uv.lock hvd_elastic/horovod/wheel_build.py hvd_elastic/horovod/patch_set.py hvd_elastic/horovod/build_tools.txt $(wildcard hvd_elastic/horovod/patches/*.patch) tools/setup.sh

$(STAMP):
	PYTHON=$(PYTHON) sh tools/setup.sh $(VENV)
	@touch $@ $(DEMO_STAMP) $(TORCH_STAMP)

$(DEMO_STAMP): # what the tests need is fetched later: it would take time from the compiler
	PYTHON=$(PYTHON) sh tools/setup.sh $(VENV) demo
	@touch $@ $(TORCH_STAMP)

$(TORCH_STAMP):
	PYTHON=$(PYTHON) sh tools/setup.sh $(VENV) torch
	@touch $@

demo: $(if $(filter torch,$(ENGINE)),$(TORCH_STAMP),$(DEMO_STAMP))  ## train beside a made-up inference load on this machine; ends with a report and a picture
	$(BIN)/hvd-elastic demo --engine $(ENGINE)

test: $(STAMP)  ## all that needs no process, and each capability once with real ones: nine minutes on two cores
	$(BIN)/python -m tests.runner.suite quick

test-process: $(STAMP)  ## the rest that needs no cluster, GPU or image: real launchers, workers and pods; every property in earnest
	$(BIN)/python -m tests.runner.suite process

test-lowest: $(STAMP)  ## `make test` with the lowest versions of the libraries that pyproject.toml allows
	$(BIN)/python -m tests.runner.other_versions lowest

test-newest: $(STAMP)  ## `make test` with the newest versions on the package index
	$(BIN)/python -m tests.runner.other_versions newest

test-gpu: $(STAMP)  ## what only a GPU can show, and what was shown on this machine; without one, the CPU's form of it
	sh tools/nccl.sh $(VENV)
	$(BIN)/pytest tests -m gpu -p tests.gpu.report

test-image: $(STAMP)  ## the images for GPUs and EFA, built whole and tried (root, Linux; compiles Horovod with NCCL the first time)
	$(BIN)/pytest tests/docker/test_image_variants.py -m image

test-clouds: $(STAMP)  ## the stores' promises in real buckets: HVD_ELASTIC_TEST_S3=s3://bucket/prefix, _GCS=gs://..., _AZURE=abfss://...
	$(BIN)/pytest tests/trainer/checkpoint/test_real_buckets.py -rs

test-patches: $(STAMP)  ## for each patch of Horovod: without it, the tests that it names must fail (a build each)
	$(BIN)/python -m tests.hvd_elastic.horovod.variants without

test-compilers: $(STAMP)  ## build Horovod with each other compiler that this Debian has (root; three minutes each)
	$(BIN)/python -m tests.hvd_elastic.horovod.compilers

test-unpatched: $(STAMP)  ## the launcher's and the training's tests once with unpatched sources of Horovod
	$(BIN)/python -m tests.hvd_elastic.horovod.variants unpatched

lint: $(STAMP)  ## ruff, mypy --strict, import-linter, and the documentation
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(MAKE) --no-print-directory docs

docs: $(STAMP)  ## the documentation as a site in site/; a broken link or a missing anchor is an error
	$(BIN)/python -m hvd_elastic.mpijob.lint.report.rule_pages docs/lint
	$(BIN)/python -m tests.mpijob.key_page docs/keys.md
	$(BIN)/zensical build --clean --strict

format: $(STAMP)  ## let ruff format and fix
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: $(STAMP)  ## the benchmarks that need no cluster, side by side with what they are compared to
	for name in $(BENCHMARKS); do echo "== $$name"; $(BIN)/python -m benchmarks.$$name || exit 1; done

report: $(STAMP)  ## what any machine can measure, on one page: out/report/index.html (an hour at most)
	$(BIN)/python -m benchmarks.report

release: $(STAMP)  ## build wheel and sdist into dist/ and try the wheel out; uploads nothing
	sh tools/release.sh $(VENV)

test-distributions: $(STAMP)  ## the README's two commands on fresh Debian 12, 13 and testing (root, Linux; WRITE=yes: into the docs)
	$(NEED_DEBOOTSTRAP)
	$(BIN)/python -m tests.distributions $(if $(WRITE),--write)

test-distributions-part: $(STAMP)  ## of these, on Debian 13: make demo, and the tests that differ by distribution; keeps its caches
	$(NEED_DEBOOTSTRAP)
	$(BIN)/python -m tests.distributions --part --warm trixie

test-cluster: $(STAMP)  ## end-to-end tests on a real Kubernetes cluster (root, Linux, Go)
	$(BIN)/pytest tests/cluster -m cluster -p tests.runner.flaky

test-cluster-core: $(STAMP)  ## of these, each capability once: some twenty minutes
	$(BIN)/pytest tests/cluster -m "cluster and core" -p tests.runner.flaky

test-cluster-ipv6: $(STAMP)  ## a job under each launcher, and its policies, in a cluster of its own that has IPv6 addresses alone
	HVD_ELASTIC_CLUSTER=hvd6 $(BIN)/python -m testbed.kube up --ipv6
	HVD_ELASTIC_CLUSTER=hvd6 $(BIN)/pytest tests/cluster/test_ipv6.py tests/cluster/test_network_policy.py -m cluster; \
		code=$$?; HVD_ELASTIC_CLUSTER=hvd6 $(BIN)/python -m testbed.kube down; exit $$code

test-faults: $(STAMP)  ## what else can befall a job on that cluster, with both launchers, and `make causes`: some forty minutes
	CAUSE_SEEDS=2 $(BIN)/pytest tests/cluster -m faults -p tests.runner.flaky

causes: $(STAMP)  ## what the ledger says of nine kinds of faults on the real cluster: SEEDS=N times each, from FIRST_SEED=N on
	CAUSE_SEEDS=$(SEEDS) CAUSE_FIRST_SEED=$(FIRST_SEED) $(BIN)/pytest tests/cluster/test_causes.py -m cluster

soak: $(STAMP)  ## random faults on the real cluster: SEEDS=N schedules for each launcher and engine, from FIRST_SEED=N on
	FAULT_SEEDS=$(SEEDS) FAULT_FIRST_SEED=$(FIRST_SEED) $(BIN)/pytest tests/cluster/test_random_faults.py -m cluster

bench-cluster: $(STAMP)  ## preemption, dead process and lost node on the real cluster, stock beside the product
	$(BIN)/python -m benchmarks.cluster

cluster-up: $(STAMP)  ## bring the real cluster up and leave it up
	$(BIN)/python -m testbed.kube up

cluster-parts: $(STAMP)  ## build what the cluster is made of (programs, image) and the tests' GCS and Azure servers; bring nothing up
	$(BIN)/python -m testbed.cloud_servers
	$(BIN)/python -m testbed.kube prepare

cluster-down: $(STAMP)  ## take it down
	$(BIN)/python -m testbed.kube down

cluster-status: $(STAMP)
	$(BIN)/python -m testbed.kube status

clean:  ## remove what was made in the checkout; the caches outside stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .cache dist out site
