# Everything happens in .venv, which is made on first use with the versions of constraints.txt.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
DEPENDS := pyproject.toml constraints.txt
EXTRAS := dev,games,log,wandb,tune,fast,data,harness,lora,serve

export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PYTHONUNBUFFERED := 1
unexport PYTHONDONTWRITEBYTECODE  # every process of the tests would compile rlbook, and every worker all tests, again

# The timeout of pyproject.toml is a Python exception, which code that never returns to Python doesn't see: this one ends the process.
HANGS := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-machines test-versions check docs epub pdf slides wheel notebooks measure bench clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.runtime  ## train on the maze, then teach a small language model to add
	@$(BIN)/python -m rlbook demo

test: .venv/.dev  ## the quick tests
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow and not thorough" $(HANGS)

test-all: .venv/.dev .venv/.docs  ## all tests, the thorough and the slow ones included
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal

test-machines: .venv/.dev  ## the numeric tests as other processors would run them (two hours; SETTING="A=1 B=2" for one, QUICK=1 without the thorough)
	@$(BIN)/python tests/machines.py $(if $(QUICK),--quick) $(if $(SETTING),"$(SETTING)")

# uv resolves to the lowest versions, which pip cannot (UV_TORCH_BACKEND=cpu spares the gigabytes of CUDA). A failure that is about a number on a page may be that of another version's arithmetic.
test-versions: .venv/.dev  ## the tests with the oldest and the newest versions that pyproject.toml allows (WHICH=lowest-direct or highest)
	@$(PIP) uv
	@for which in $(or $(WHICH),lowest-direct highest); do \
	  echo "Installing the $$which versions into .venv/$$which" \
	  && $(BIN)/uv venv -q --clear --python $(BIN)/python .venv/$$which \
	  && $(BIN)/uv pip install -q --python .venv/$$which/bin/python --resolution $$which -e ".[$(EXTRAS)]" \
	  && OMP_NUM_THREADS=1 .venv/$$which/bin/python -m pytest -q -n 2 --dist worksteal -m "not slow" $(HANGS) || exit 1; \
	done

check: .venv/.dev  ## lint, types, and the English of the pages
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check -q .
	@$(BIN)/python docs/prose.py
	@$(BIN)/pyright

docs: .venv/.docs  ## build the site into docs/_build/html; warnings are errors
	@OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

epub: .venv/.docs  ## the chapters as an e-book, docs/_build/rlbook.epub
	@OMP_NUM_THREADS=1 $(BIN)/python docs/book_file.py epub

pdf: .venv/.docs  ## the chapters as a PDF, docs/_build/rlbook.pdf; needs Chromium
	@OMP_NUM_THREADS=1 $(BIN)/python docs/book_file.py pdf

slides: .venv/.docs  ## the slides of each week, docs/_build/slides; WEEKS=3 for one
	@OMP_NUM_THREADS=1 $(BIN)/python docs/slides.py $(WEEKS)

wheel: .venv/.build  ## build the package, dist/rlbook-VERSION-py3-none-any.whl
	@said=$$(PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m build --wheel --outdir dist . 2>&1) || { echo "$$said"; exit 1; }
	@ls dist/*.whl

notebooks: .venv/.dev  ## execute every notebook and store its outputs (ten minutes)
	@$(BIN)/python docs/notebook_outputs.py all

measure: .venv/.dev  ## measure every number of the site again (about eleven hours, four of them for the defaults)
	@OMP_NUM_THREADS=1 $(BIN)/python docs/measure.py

bench: .venv/.bench  ## measure speed beside the peers
	@$(BIN)/python -m benchmarks

clean:  ## remove .venv and everything that was built
	@rm -rf .venv build dist docs/_build docs/jupyter_execute docs/api/generated docs/notebooks .pytest_cache .ruff_cache .hypothesis
	@find rlbook tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and no python3 was found."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this one is " + sys.version.split()[0])'
	@echo "Making .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv

# On Linux pip installs torch with CUDA, which is some gigabytes, unless it is told where the builds for a CPU are: it is told
# where there is no NVIDIA driver, and the user has not configured an index.
.venv/.torch: constraints.txt | .venv/bin/python
	@if test "$$(uname)" = Linux && ! command -v nvidia-smi >/dev/null \
	&& configured=$$($(BIN)/python -m pip config list) && ! echo "$$configured" | grep -q index-url; \
	then echo "Installing torch's build for a CPU"; $(PIP) --extra-index-url https://download.pytorch.org/whl/cpu torch; fi
	@touch $@

.venv/.runtime: $(DEPENDS) | .venv/.torch
	@echo "Installing rlbook (a few minutes the first time)"
	@$(PIP) -e ".[games]"
	@touch $@

.venv/.dev: $(DEPENDS) | .venv/.torch
	@echo "Installing rlbook and what its tests need (a few minutes the first time)"
	@$(PIP) -e ".[$(EXTRAS)]"
	@touch $@ .venv/.runtime

.venv/.docs: $(DEPENDS) | .venv/.torch
	@echo "Installing rlbook and what its site needs (a few minutes the first time)"
	@$(PIP) -e ".[docs]"
	@touch $@

.venv/.build: $(DEPENDS) | .venv/bin/python
	@$(PIP) build
	@touch $@

.venv/.bench: .venv/.dev
	@echo "Installing the peers to measure against"
	@$(PIP) -e ".[$(EXTRAS),peers]"
	@touch $@
