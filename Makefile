# Everything runs in an environment of its own; the first target that needs it creates it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow test-cpu test-browser test-data evidence docs lint clean

demo: $(READY)  ## the main job on the embedded data
	$(BIN)/fretta demo

test: $(READY)  ## every quick test that needs no shared data
	$(BIN)/python -m pytest -n auto --dist worksteal -q -m "not slow and not ray and not browser"

test-slow: $(READY)  ## every method on every network, kill -9, retraining, a local Ray cluster
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "(slow or ray) and not data and not browser"

# What rounds: methods, models, training, streams through them.
NUMERIC := $(addprefix tests/, test_adapter.py test_compare.py test_conformance.py test_derivations.py \
	test_estimate.py test_export.py test_features.py test_golden.py test_guard.py test_health.py test_inputs.py \
	test_losses.py test_models.py test_readme.py test_redundancy.py test_speed.py test_supports.py \
	test_threads.py test_tutorial.py analysis/test_measurements.py deploy execute/test_executor_resume.py models train)

test-cpu: $(READY)  ## the numeric tests as on processors without AVX-512 and without AVX, and with two threads
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 $(BIN)/python -m pytest -n 2 --dist worksteal -q \
		-m "not slow and not browser" $(NUMERIC)
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 $(BIN)/python -m pytest -n 2 --dist worksteal -q \
		-m "not slow" $(addprefix tests/, test_adapter.py test_conformance.py test_derivations.py test_export.py test_inputs.py)
	FRETTA_TEST_THREADS=2 $(BIN)/python -m pytest -q -m "not slow" tests/test_conformance.py tests/test_guard.py tests/test_threads.py

test-browser: $(READY)  ## the pages in headless Chromium
	$(BIN)/python -m pytest -q -m browser

docs: $(READY)  ## the site, into site/; a warning or a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

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
