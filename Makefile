# Two commands do all set-up on a fresh clone: `make serve` and `make test`. Both make .venv first (`make env`).
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Optional dependencies to install; with "clients" and "lm-eval" the tests of those programs run too.
EXTRAS ?= serve,console,dev
# The first of these that runs and is 3.11, 3.12 or 3.13 makes the environment; `make env PYTHON=/path/to/python` overrides.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo "$$p" && break; done)

NVCC ?= nvcc

.PHONY: help env serve test lint format bench soak kernels clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

env: $(STAMP) ## make .venv and install what constraints.txt pins (torch already in .venv is kept)

$(STAMP): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then echo "make env: no Python 3.11, 3.12 or 3.13 found; install one or give PYTHON=/path/to/python" >&2; exit 1; fi
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@echo "make env: installing into $(VENV); the first time takes minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@echo "make env: compiling the CPU kernels"
	$(BIN)/python -c "import specpilot_kernels.block_conv, specpilot_kernels.chain_attention, specpilot_kernels.context_write, \
	    specpilot_kernels.draft_candidates, specpilot_kernels.draft_tree, specpilot_kernels.gdn_rows, specpilot_kernels.gelu_mul, \
	    specpilot_kernels.layer_parts, specpilot_kernels.q_weights, specpilot_kernels.rms_norm, specpilot_kernels.silu_mul, \
	    specpilot_kernels.skinny_gemm, specpilot_kernels.w12.ops"
	@touch $@

tools: env ## programs of the chart and compose tests (helm 3 and 4, kubectl, docker-compose, checkov) into .tools
	$(BIN)/python .ci/install_tools.py

serve: env ## start OpenAI endpoint, admin API and console on the embedded engine with the bundled models (SERVE_ARGS="--port 9000")
	$(BIN)/specpilot up --open --console --log-format text $(SERVE_ARGS)

lint: env ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint ## lint, types and all tests (PYTEST_ARGS="-k tree")
	$(BIN)/python -m pytest $(PYTEST_ARGS)

format: env ## let ruff rewrite the layout and the import order
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

bench: env ## decode the built-in prompts plainly and speculatively; one JSON object on stdout
	$(BIN)/specpilot demo --json

kernels: ## build the CUDA kernels with nvcc 12.8 or newer; without nvcc nothing is built, and this says so
	@if ! command -v $(NVCC) >/dev/null; then echo "make kernels: $(NVCC) not found, no CUDA kernel is built; give NVCC=/path/to/nvcc"; exit 0; fi; \
	$(MAKE) --no-print-directory -j2 $(KERNEL_LIBRARY) && echo "make kernels: $(KERNEL_LIBRARY)"

# One shared object for all GPUs. A source is compiled for the architecture its name ends in; sm120.cu for sm_90a too, where
# its arithmetic is tested, and cuda.cu for both.
KERNEL_FOLDER := kernels/specpilot_kernels
KERNEL_BUILD := $(KERNEL_FOLDER)/built
KERNEL_LIBRARY := $(KERNEL_BUILD)/specpilot_cuda.so
KERNEL_OBJECTS := $(patsubst $(KERNEL_FOLDER)/%.cu,$(KERNEL_BUILD)/%.o,$(wildcard $(KERNEL_FOLDER)/*/*.cu))
SM90 := -gencode arch=compute_90a,code=sm_90a
SM120 := -gencode arch=compute_120a,code=sm_120a

$(KERNEL_BUILD)/%/sm90.o: ARCHITECTURES := $(SM90)
$(KERNEL_BUILD)/%/sm120.o $(KERNEL_BUILD)/%/cuda.o: ARCHITECTURES := $(SM90) $(SM120)
$(KERNEL_BUILD)/%.o: $(KERNEL_FOLDER)/%.cu $(wildcard $(KERNEL_FOLDER)/include/*.cuh $(KERNEL_FOLDER)/*/*.cuh)
	@mkdir -p $(@D)
	$(NVCC) -O3 -std=c++17 $(ARCHITECTURES) -Xcompiler -fPIC -c -o $@ $<

$(KERNEL_LIBRARY): $(KERNEL_OBJECTS)
	$(NVCC) --shared -cudart static -o $@ $^

soak: env ## reliability and cost of the gateway, on loopback, in minutes; prints a table (not part of `make test`)
	$(BIN)/python -m tests.soak

clean: ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
