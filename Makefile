# Some virtual machines advertise AMX and trap on it; oneDNN is told not to use it while testing.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_FP16
PYTHON ?= python3
BIN := .venv/bin

.PHONY: test check setup bench demo clean

test: setup  ## set up, lint, check types, run every test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

setup: .venv/installed

.venv/installed: pyproject.toml setup.py constraints.txt $(wildcard src/sleepconv/kernels/native/*.cpp src/sleepconv/kernels/native/*.h)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

bench: setup  ## speed and memory as ratios in one run
	$(BIN)/sleepconv bench --json benchmarks/last.json --markdown benchmarks/README.md

demo: setup  ## digits where no digit was ever seen: train, test, draw, report
	$(BIN)/sleepconv demo --out demo

clean:
	rm -rf .venv build dist src/*.egg-info
