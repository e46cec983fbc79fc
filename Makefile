# One file, the same commands on a laptop and in CI. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# uv is used where it is installed; otherwise this version is installed from PyPI into a folder of this checkout.
UV_VERSION := 0.13.7
UV := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
JOBS ?= 2
# Where programs lie that were built from other projects' sources, for tests beside them.
CACHE := $${XDG_CACHE_HOME:-$$HOME/.cache}/dovetail

.PHONY: help setup lambda demo first-ten-minutes check test explore mutants flakes bench bench-peer chart dashboards iam image sbom crds docs reports site real-cluster soak terraform-mirror test-cluster test-iac test-upstream test-fresh-clone clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

.uv/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Dovetail needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv .uv && .uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(VENV)/.ready: pyproject.toml uv.lock $(filter .uv/%,$(UV))
	@UV_PROJECT_ENVIRONMENT=$(VENV) $(UV) sync --quiet --frozen --all-extras --all-groups --python "$(PYTHON)"
	@# uv installs sources only, and where PYTHONDONTWRITEBYTECODE is set every command would compile them all again.
	@$(BIN)/python -m compileall -q src && env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -c 'import dovetail.cli.plan'
	@touch $@

setup: $(VENV)/.ready ## Install Dovetail and its tools into .venv

demo: setup ## See the main job done, on embedded defaults
	@$(BIN)/python hack/demo.py

check: setup ## Ruff, mypy and the layer contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check ## Everything CI runs
	$(BIN)/pytest -n $(JOBS)
	$(BIN)/python hack/explore.py

explore: setup ## Properties with new examples for 15 seconds; DOVETAIL_SEED=… for the same ones again
	$(BIN)/python hack/explore.py

mutants: setup ## Break safety-critical lines, and some drawn by seed, and see whether tests notice (ARGS="--sample 60 --seed 1")
	$(BIN)/python hack/mutants.py $(ARGS)

flakes: setup ## Run the packages that are likeliest to flake many times, and list tests that do not always pass
	$(BIN)/python hack/flakes.py $(ARGS)

bench: setup ## Measure, print a table, store JSON under build/bench; fails when a budget is missed
	$(BIN)/python -m tests.bench --strict

bench-peer: setup ## Side by side with Karpenter's own scheduler, in one run (needs Go). ARGS="--goals --seed 11" for goals
	@command -v go >/dev/null || { echo "make bench-peer needs Go 1.26 or newer, and there is no go on the PATH"; exit 1; }
	$(BIN)/python hack/bench_peer.py $(ARGS)
	$(BIN)/python hack/bench_consolidate.py

test-cluster: setup ## The same tests against a real control plane, built from source (needs Go; minutes the first time)
	@command -v go >/dev/null || { echo "make test-cluster needs Go 1.26 or newer, and there is no go on the PATH"; exit 1; }
	@[ -x "$${CLUSTER_BIN:-$(CACHE)/real-cluster/bin}/kube-apiserver" ] || hack/real-cluster/build
	@[ -x "$${UPSTREAM_BIN:-$(CACHE)/upstream-suite/bin}/karpenter-reference" ] || UPSTREAM_ONLY=karpenter hack/upstream-suite/build
	DOVETAIL_TEST_CLUSTER=1 $(BIN)/pytest tests/cluster

test-upstream: setup ## Upstream Karpenter's 99 end-to-end specs against ours, on real control planes (needs Go; 40 minutes). ARGS="D12 smoke" for some
	@[ -x "$${UPSTREAM_BIN:-$(CACHE)/upstream-suite/bin}/regression.test" ] || hack/upstream-suite/build
	$(BIN)/python hack/upstream-suite/run.py $(ARGS)

test-iac: setup ## The deploy kit with real tools: Prometheus, node for the CDK, terraform, Chromium
	$(BIN)/pytest tests/iac

terraform-mirror: ## Build the Terraform providers that test-iac applies modules with (needs Go; minutes)
	hack/terraform-mirror

real-cluster: ## Build the real control plane that test-cluster starts (needs Go; minutes)
	hack/real-cluster/build

soak: setup ## An hour of churn in virtual time (ARGS="--minutes 60" for real time), then 10,000 survival stories and 2,000 clusters left alone
	$(BIN)/python hack/soak.py $(ARGS)
	$(BIN)/python hack/survival.py --seeds 10000
	$(BIN)/python hack/soak_bus.py
	$(BIN)/python hack/calm.py --seeds 2000
	DOVETAIL_HYPOTHESIS=explore DOVETAIL_EXAMPLES=20 $(BIN)/pytest -q tests/properties/test_disruption_laws.py
	DOVETAIL_ZONAL_CASES=10000 $(BIN)/pytest -q tests/properties/test_zonal_undo.py

lambda: setup ## Build the Lambda packages of the interruption bus and of zonal shift under build/lambda
	$(BIN)/python hack/build_lambda.py
	$(BIN)/python hack/build_lambda.py --function zonal-shift

docs: setup ## Write the reference pages from the code
	$(BIN)/python hack/write_docs.py

reports: setup ## Play the shipped scenarios and write what they say into docs/guides/scenarios.md
	$(BIN)/python hack/write_reports.py

site: setup ## Build the documentation as a site under build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "the site is in build/site"

crds: setup ## Write deploy/crds from the records in api/
	$(BIN)/python hack/write_crds.py

image: ## Build the container image with podman or docker, on its base by digest (BASE=python@sha256:… says which)
	@engine=$$(command -v podman || command -v docker) || { echo "make image needs podman or docker, and neither is on the PATH"; exit 1; }; \
	base="$(BASE)"; if [ -z "$$base" ]; then $$engine pull -q python:3.12-slim >/dev/null && \
	base=$$($$engine image inspect --format '{{index .RepoDigests 0}}' python:3.12-slim) || { echo "the base cannot be pulled; name one with BASE=python@sha256:…"; exit 1; }; fi; \
	tag=dovetail/controller:$$($(BIN)/dovetail version | cut -d' ' -f2); \
	$$engine build --build-arg BASE=$$base --build-arg REVISION=$$(git rev-parse --short HEAD 2>/dev/null || echo unknown) -f deploy/image/Containerfile -t $$tag . && \
	echo "built $$tag on $$base; once pushed, set controller.image.digest to what the registry says: $$engine image inspect --format '{{index .RepoDigests 0}}' <registry>/$$tag"

sbom: setup ## Write the bill of materials and the licences of what the image holds
	$(BIN)/python hack/write_sbom.py

iam: setup ## Write policies, the CloudFormation stack and what Terraform and CDK read of them
	$(BIN)/python hack/write_iam.py

dashboards: setup ## Write Grafana dashboards and Prometheus rules
	$(BIN)/python hack/write_dashboards.py

chart: setup ## Write the charts' definitions and value schema from the code
	$(BIN)/python hack/write_chart.py

first-ten-minutes: setup ## What a newcomer types, on an embedded cluster; every command and every line on stderr is judged
	$(BIN)/python hack/first-ten-minutes

test-fresh-clone: ## Clone into an empty directory and run the README's two commands
	hack/fresh-clone

clean: ## Remove what make made
	rm -rf $(VENV) .uv build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
