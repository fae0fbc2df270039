# The two commands of the README, and what the continuous integration runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Everything but torch, by hash. Of torch there are many builds (CPU, CUDA, one's own), and the
# libraries for its GPUs go with the build: constraints.txt names the version, and pip chooses.
LOCKED := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes
# Everything that torch alone needs, and only on a GPU.
OF_TORCH := torch triton cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas \
    nvidia-cuda-cupti nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft \
    nvidia-cufile nvidia-curand nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 \
    nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx
COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate \
    --custom-compile-command 'make lock' $(OF_TORCH:%=--no-emit-package %) pyproject.toml

# Containers set it; without bytecode, processes that tests start compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart test lint format docs bench bench-gpu lock clean

# Environment and the main job in 4.6 minutes: tokenizer and encoder from the built-in corpus.
quickstart: $(VENV)/.core
	$(BIN)/maskwright pretrain --recipe quickstart

test: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist worksteal  # a worker keeps the fixtures of a file

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/pyright

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# All measures of docs/results.md: MASKWRIGHT_DATA names the corpora, runs/bench keeps the runs.
bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks bench --runs runs/bench

bench-gpu: $(VENV)/.dev
	$(BIN)/python -m benchmarks gpu-speed

docs: $(VENV)/.docs
	$(BIN)/zensical build --clean --strict
	$(BIN)/python -m docs.tools site site

# After a change to pyproject.toml or constraints.txt.
lock: pyproject.toml constraints.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(PIP) uv
	$(COMPILE) --extra plots --extra dev --constraint constraints.txt \
	    --output-file requirements-dev.lock
	$(COMPILE) --extra plots --constraint constraints.txt --constraint requirements-dev.lock \
	    --output-file requirements.lock

$(VENV)/.core: pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "maskwright needs Python 3.11 or newer: make PYTHON=python3.11")'
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(LOCKED) --requirement requirements.lock
	$(PIP) --editable '.[plots]'
	touch $@

$(VENV)/.dev: $(VENV)/.core requirements-dev.lock
	$(LOCKED) --requirement requirements-dev.lock
	$(PIP) --editable '.[dev]'
	touch $@

$(VENV)/.docs: $(VENV)/.core
	$(PIP) --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) build dist site .pytest_cache .ruff_cache .hypothesis
