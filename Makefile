# Every target makes .venv and installs what it needs by itself.
PYTHON ?= python3
EXTRAS ?= dev
WORKERS ?= 2
BIN := .venv/bin

.PHONY: demo test test-slow test-gpu check bench torture clean
.DEFAULT_GOAL := demo

.venv/installed-%: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	touch $@

demo: .venv/installed-$(EXTRAS)
	$(BIN)/tacit train digits --epsilon 3 --delta 1e-5

# Compiled files are kept even where the environment forbids it: the tests start python dozens of times.
test: check
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --dist loadscope

test-gpu: .venv/installed-$(EXTRAS)
	$(BIN)/python -m pytest tests/core/test_noise_kernel.py tests/gradients/test_compiled_gpu.py tests/gradients/test_kernels_gpu.py tests/gradients/test_lent_sums.py tests/models/test_scattering.py tests/pate/test_descent.py tests/training/test_fast_randomness.py tests/training/test_runs_agree.py tests/training/test_secret_draws.py

test-slow: .venv/installed-$(EXTRAS)
	$(BIN)/python -m pytest -m slow

check: .venv/installed-$(EXTRAS)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/lint-imports
	$(BIN)/mypy

bench: .venv/installed-$(EXTRAS)
	$(BIN)/tacit bench step --device cpu --models mlp,cnn
	$(BIN)/tacit bench accounting

torture: .venv/installed-$(EXTRAS)
	$(BIN)/python -m tacit.benchmarking.torture --kills 1000 --faults 40 --out results/ledger/torture.json

clean:
	rm -rf .venv build dist runs .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
