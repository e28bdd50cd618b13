# Everything a developer or a machine runs. `make help` lists it.
SHELL := /bin/bash
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install fmt lint types imports check programs test test-e2e test-rules test-alerts test-image test-faults test-kills test-oracle test-gpu dashboards bench build demo run ci clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

install: $(STAMP) ## create .venv with everything that development needs

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or pass PYTHON=/path/to/python"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[client,service,postgres,parquet,compare]' --group dev
	touch $@

fmt: install ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: install ## ruff: style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install ## mypy, strict
	$(BIN)/mypy

imports: install ## import-linter: imports run one way
	$(BIN)/lint-imports

check: lint types imports ## everything static

programs: install ## what the tests run of others' programs, into .venv where it is not installed
	tests/support/programs.sh $(VENV)/programs

test: programs ## all tests
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term --cov-fail-under=100

test-e2e: programs ## only the tests that start real processes
	$(BIN)/python -m pytest tests/e2e tests/integration

test-rules: programs ## only the alert rules and their unit tests, through promtool
	$(BIN)/python -m pytest tests/e2e/test_alert_rules.py

test-alerts: programs ## the way from a mismatch to a webhook through the real programs, 20 times, and how long it took
	PYTHONPATH=tests $(BIN)/python -m e2e.alerting $(ARGS)

test-image: install ## carries out the Dockerfiles and uses what they make; needs root and some minutes
	$(BIN)/python -m pytest -m image tests/e2e/test_image.py

test-faults: programs ## the long form of the fault suite: 20 seeds, more than 200 kills, 5 to 10 minutes; ARGS="--store postgresql" for 50 over PostgreSQL, "--store postgresql-under-load" with 64 connections
	PYTHONPATH=tests $(BIN)/python -m e2e.faults $(ARGS)

test-kills: install ## kill a reporting trainer 200 times at random moments, its children beside it: about 3 minutes
	RANKFOLD_KILLS=200 $(BIN)/python -m pytest -n 2 -k kill_in_the_middle tests/integration/test_client_spool.py

test-oracle: install ## comparisons against an oracle in whole numbers: 30,000 made tensors, about 10 minutes
	RANKFOLD_ORACLE_EXAMPLES=5000 $(BIN)/python -m pytest -n 2 -k oracle tests/unit/client

test-gpu: install ## comparisons on a CUDA device: equal to the CPU's, without waiting, and what they cost
	$(BIN)/python -m pytest -s tests/gpu

dashboards: install ## write what is built in docker/: Grafana's dashboards, the rules for Kubernetes
	PYTHONPATH=docker $(BIN)/python -m rankfold_deploy

bench: install ## benchmarks: prints ratios, writes bench-results/
	$(BIN)/python -m tests.bench $(ARGS)

build: install ## the wheel and the sdist, in dist/
	$(BIN)/python -m build --quiet

demo: install ## the main job on real log-probs: two ranks, an aggregator, the gate
	$(BIN)/rankfold demo $(ARGS)

run: install ## an aggregator on 127.0.0.1:9814
	$(BIN)/rankfold serve $(ARGS)

ci: check test ## what decides whether a change lands

clean: ## remove what the other targets made
	rm -rf $(VENV) dist build bench-results .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage
