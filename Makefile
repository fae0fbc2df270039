# The two commands of the README, and what the continuous integration runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: quickstart test lint format docs bench bench-gpu clean

# Environment and the main job: tokenizer and encoder from the built-in corpus, then what it learned.
quickstart: $(VENV)/.core
	$(BIN)/maskwright pretrain --recipe quickstart

test: $(VENV)/.dev
	$(BIN)/pytest -n 2

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# All measures of docs/speed.md: MASKWRIGHT_DATA names the corpora, runs/bench keeps the runs.
bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.bench --runs runs/bench

bench-gpu: $(VENV)/.dev
	$(BIN)/python -m benchmarks.gpu_speed

docs: $(VENV)/.docs
	$(BIN)/zensical build --clean
	$(BIN)/python -m benchmarks.site site

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "maskwright needs Python 3.11 or newer: make PYTHON=python3.11")'
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[plots]'
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) --editable '.[dev]'
	touch $@

$(VENV)/.docs: $(VENV)/.core
	$(PIP) --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) build dist site .pytest_cache .ruff_cache .hypothesis
