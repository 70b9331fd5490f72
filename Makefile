# Two commands do everything: `make demo` and `make test`. Both make .venv when it is missing or old.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# GPUs that are not there: torch's CUDA build over a stand-in for CUDA (tests/cuda). Some 600 MB the first time.
# `make test VENV=.venv-cuda` runs all tests with that build, without a GPU.
CUDA_VENV := .venv-cuda

# Tests start thousands of processes: without .pyc files each compiles all that it imports.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo docs pictures test test-long test-cuda fit-memory check check-tests lint bench chaos inject plan-equals-run power-cut soak clients fuzz picture gpu-check clean

demo: $(VENV)/.ready
	@$(BIN)/kgops demo

# Four workers on two cores: half of the time a test waits for processes.
test: $(VENV)/.ready-dev lint
	$(BIN)/pytest -q -n 4 --dist loadfile --no-loadscope-reorder

# What takes minutes: whole trainings of the documents, and faults planted into what the tests of killed runs look for.
test-long: $(VENV)/.ready-dev
	$(BIN)/pytest -q -n 2 -m long --ignore tests/cuda

test-cuda: $(CUDA_VENV)/.ready-dev
	KGOPS_GPU_MACHINES="t4 a100 h200 two-t4 mig" KGOPS_OOM_JOBS=40 $(CUDA_VENV)/bin/pytest -q -n 2 -m "long or not long" tests/cuda

# What torch's allocator reserves beyond counted segments, measured on emulated GPUs: hours on two cores.
MEASURED ?= measured.jsonl
fit-memory: $(CUDA_VENV)/.ready-dev
	for machine in t4 a100 h200; do for workload in train regress; do \
	  $(CUDA_VENV)/bin/python tests/cuda/cuda_machine.py $$machine python tests/cuda/memory_judge.py --machine $$machine \
	    --only $$workload --settings $(N) --json $(MEASURED); \
	done; done
	$(CUDA_VENV)/bin/python tests/cuda/fit_memory.py $(MEASURED)

# Every screen at its sizes, as text for `git diff` and as SVG to page through.
pictures: $(VENV)/.ready-dev
	mkdir -p build/screens
	KGOPS_PICTURES=$(CURDIR)/build/screens $(BIN)/pytest -q tests/screens/test_screens_snapshots.py --update-screens

# What takes a minute: no server, no training of a whole run. The rest is `make test`'s. mypy, on one core, beside the tests.
check: $(VENV)/.ready-dev
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint check-tests

check-tests: $(VENV)/.ready-dev
	$(BIN)/pytest -q -n 2 tests/jobs/test_jobs.py tests/jobs/test_masking.py tests/jobs/test_regress_job.py tests/workloads tests/gpus tests/maths/graphs \
	  tests/maths/models/test_conve.py tests/planning/test_rules.py \
	  tests/planning/test_planner.py tests/planning/test_fallbacks.py tests/present tests/storage tests/maths/tracin/test_tracin_factors.py

lint: $(VENV)/.ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The quick set of everything, written to BENCHMARKS.md: `make bench DATA=DIR` with graphs, too. Minutes, on a quiet machine.
DATA ?=
bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks.document $(if $(DATA),--data $(DATA))

# Kills at random moments: `make chaos N=1000` for all of them.
N ?= 200
chaos: $(VENV)/.ready-dev
	$(BIN)/python tests/chaos.py --kills $(N) $(CHAOS_FLAGS)

# Random command lines of all workloads: what suggest and a dry run show against what the started run applied. Some 5 s each.
plan-equals-run: $(VENV)/.ready-dev
	$(BIN)/python tests/plan_equals_run.py --lines $(N) $(PLAN_FLAGS)

# Power cuts: a home's writes replayed, without what no disk had promised to keep. `make power-cut N=300`.
power-cut: $(VENV)/.ready-dev
	$(BIN)/python tests/power_cut.py --cuts $(N)

# Every call on files and processes of nine commands, killed or failed: half an hour on two cores, for a release. A part
# of it in minutes: `make inject INJECT_FLAGS="--sample 1000"`; one again: `INJECT_FLAGS="--only launcher:EIO:17"`.
inject: $(VENV)/.ready-dev
	$(BIN)/python tests/injection/inject.py --mutants
	$(BIN)/python tests/injection/inject.py $(INJECT_FLAGS)

# Screens and a supervisor for a while, with runs coming and going: what grows, and whether it should.
MINUTES ?= 30
soak: $(VENV)/.ready-dev
	$(BIN)/python tests/soak.py --minutes $(MINUTES)

# The wheel, installed where it has never been, and other programs reading what kgops writes: minutes, some 2 GB.
clients: $(VENV)/.ready-dev
	$(BIN)/python tests/clients.py $(CLIENTS_FLAGS)

# Every parser under fuzz that is guided by what it reaches, so many seconds each. Needs `pip install atheris`.
SECONDS ?= 60
fuzz: $(VENV)/.ready-dev
	$(BIN)/python tests/guided_fuzz.py --seconds $(SECONDS)

# These pages as a site in site/, with a reference made from the program. Builds without a network.
docs: $(VENV)/.ready
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt zensical
	PYTHONPATH=. $(BIN)/python tests/reference.py docs/reference
	$(BIN)/zensical build --clean --strict

# README's and those of docs/SCREENS.md, from a session that really takes place: two minutes.
picture: $(VENV)/.ready-dev
	$(BIN)/python tests/picture.py docs

# All that needs a GPU, tests first, then benchmarks, in less than nine minutes; without a GPU it says so and fails. With
# whatever Python has a CUDA build of torch: `make gpu-check GPU_PYTHON=python3 GPU_FLAGS="--data DIR"`. An interrupt when
# the time is over, so that both still show what they did.
GPU_PYTHON ?= $(BIN)/python
GPU_FLAGS ?= --store
GPU_TESTS ?= $$(grep -rl 'mark\.gpu' tests --include='test_*.py')
# --foreground: else the program gets the interrupt twice, from `timeout` and as a member of its group.
TIMEOUT := timeout --foreground --signal=INT --kill-after=20
gpu-check: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),$(VENV)/.ready-dev)
	@$(TIMEOUT) 230 $(GPU_PYTHON) -m pytest -v -m gpu -r fEs $(GPU_TESTS); tests=$$?; \
	$(TIMEOUT) 300 $(GPU_PYTHON) -m benchmarks.gpu --seconds 200 $(GPU_FLAGS); benchmarks=$$?; \
	[ $$tests -eq 0 ] && [ $$benchmarks -eq 0 ]

$(CUDA_VENV)/.ready-dev: pyproject.toml constraints.txt $(wildcard tests/cuda/*.[ch] tests/nvml/*.h) tests/cuda/build_standin.py tests/cuda/cuda_values.py
	$(PYTHON) tests/cuda/build_standin.py $(CUDA_VENV)
	@touch $(CUDA_VENV)/.ready $@

ifneq ($(VENV),$(CUDA_VENV))
# `venv` again over an existing folder keeps what is installed; pip then finds most of it satisfied.
$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "Installing kgops and what it needs into $(VENV): minutes the first time, mostly for torch …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.ready-dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(VENV)/.ready $@
endif

clean:
	rm -rf $(VENV) $(CUDA_VENV) dist build site docs/reference
