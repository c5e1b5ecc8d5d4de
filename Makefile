# Some virtual machines advertise AMX and trap on it; oneDNN is told not to use it while testing.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_FP16
PYTHON ?= python3
BIN := .venv/bin
BRAINSCORE := .venv-brainscore
RELEASE := .venv-release

.PHONY: test docs release-check test-brainscore test-gpu test-gpu-kernels check setup bench demo clean

test: setup  ## set up, lint, check types and imports, run every test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

setup: .venv/installed

.venv/installed: pyproject.toml setup.py constraints.txt $(wildcard src/sleepconv/kernels/native/*.cpp src/sleepconv/kernels/native/*.h)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

test-gpu: setup  ## what needs a GPU; to be run with a PyTorch that has CUDA or ROCm
	TRITON_INTERPRET=0 $(BIN)/python -m pytest tests/test_gpu.py

test-gpu-kernels: setup  ## without a GPU: all sizes in Triton's interpreter, and compile for every layer and GPU (half an hour)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --sweep tests/kernels

test-brainscore: $(BRAINSCORE)/installed  ## the plugin in Brain-Score's own environment, and the library on NumPy 1.26
	BS_INSTALL_DEPENDENCIES=no RESULTCACHING_DISABLE=1 $(BRAINSCORE)/bin/python -m pytest \
	    tests/brainscore tests/brain tests/experiments/brain tests/functional tests/nn

$(BRAINSCORE)/installed: pyproject.toml setup.py constraints-brainscore.txt
	test -x $(BRAINSCORE)/bin/python || $(PYTHON) -m venv $(BRAINSCORE)
	$(BRAINSCORE)/bin/python -m pip install --quiet --constraint constraints-brainscore.txt brainscore_vision
	$(BRAINSCORE)/bin/python -m pip install --quiet --constraint constraints-brainscore.txt \
	    --editable '.[brain,data,figures,netcdf]' beartype hypothesis pytest pytest-timeout
	touch $@

bench: setup  ## speed and memory as ratios in one run
	$(BIN)/sleepconv bench --json benchmarks/last.json --markdown benchmarks/README.md

demo: setup  ## digits where no digit was ever seen: train, test, draw, report
	$(BIN)/sleepconv demo --out demo

docs: setup  ## the site, into site/; a broken link is an error
	$(BIN)/python -m mkdocs build --strict

release-check: setup  ## build sdist and wheel, install the wheel in an empty environment, run the demo there
	rm -rf dist $(RELEASE)
	$(BIN)/python -m build --outdir dist  # the wheel is built from the sdist
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --constraint constraints.txt "$$(echo dist/*.whl)[figures,data]"
	cd $(RELEASE) && bin/python -c "from sleepconv.kernels import native; assert not native.unavailable(), native.unavailable()"
	cd $(RELEASE) && bin/sleepconv demo --out demo

clean:
	rm -rf .venv $(BRAINSCORE) build dist src/*.egg-info
