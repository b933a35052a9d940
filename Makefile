# Everything runs in an environment of its own; the first target that needs it creates it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow test-browser test-data evidence lint clean

demo: $(READY)  ## the main job on the embedded data
	$(BIN)/fretta demo

test: $(READY)  ## every quick test that needs no shared data
	$(BIN)/python -m pytest -n auto --dist worksteal -q -m "not slow and not ray and not browser"

test-slow: $(READY)  ## the long ones: kill -9, retraining, a local Ray cluster
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "(slow or ray) and not data and not browser"

test-browser: $(READY)  ## the pages in headless Chromium
	$(BIN)/python -m pytest -q -m browser

lint: $(READY)  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test-data: $(READY)  ## the tests on real data; FRETTA_DATA says where it is
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m data

evidence: $(READY)  ## every run behind docs/evidence.md; FRETTA_DATA says where the data is; hours
	PATH="$(CURDIR)/$(BIN):$$PATH" sh evidence/run.sh

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	$(BIN)/python -c 'import fretta.compat; fretta.compat.install()'
	touch $(READY)

clean:
	rm -rf $(VENV)
