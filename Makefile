# make demo   size a real model on a real device, in a fresh virtual environment
# make test   all checks, as CI runs them

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test lint types imports unit docs format clean

demo: $(VENV)/demo.stamp
	$(BIN)/roofplan size examples/llama-3.1-8b/config.json h100-sxm --prompt 4096 --output 512 --concurrency 64
	@mkdir -p out
	$(BIN)/roofplan size examples/llama-3.1-8b/config.json h100-sxm --prompt 4096 --output 512 --concurrency 64 \
	  --format json > out/demo.json
	@echo "The same as JSON: out/demo.json"

test: lint types imports unit

lint: $(VENV)/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/test.stamp
	$(BIN)/mypy

imports: $(VENV)/test.stamp
	$(BIN)/lint-imports

unit: $(VENV)/test.stamp
	$(BIN)/pytest -q --numprocesses auto --dist worksteal --cov --cov-report=
	$(BIN)/coverage report --skip-covered --fail-under=90

docs: $(VENV)/test.stamp
	$(BIN)/python docs/generate.py

format: $(VENV)/test.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/demo.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --editable .
	@touch $@

# The checkout is the package: mypy, pyright and editors find it as roofplan through this link.
$(VENV)/test.stamp: pyproject.toml constraints.txt $(VENV)/demo.stamp
	$(PIP) install --quiet --constraint constraints.txt --requirement requirements-test.txt --editable .
	@mkdir -p $(VENV)/src && ln -sfn ../.. $(VENV)/src/roofplan
	@touch $@

clean:
	rm -rf $(VENV) build dist out .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
