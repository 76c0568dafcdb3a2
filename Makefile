# The one list of commands: people, the pre-commit hooks and CI run exactly these.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet -c constraints.txt
PYTEST := OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -m pytest -n 2
MANIFEST := pyproject.toml setup.cfg constraints.txt
VISION := .venv-vision
VISION_TORCH := torch==2.14.1 torchvision==0.29.1

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-vision lint format types imports check clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.installed ## train a small model, show its uncertainty in demo_output/
	$(BIN)/python -m uqformer demo --output demo_output

test: $(VENV)/.installed-dev ## run the quick tests and the examples in docstrings
	$(PYTEST) -m "not slow"

test-slow: $(VENV)/.installed-dev ## run the statistical and long tests
	$(PYTEST) -m slow

test-vision: $(VISION)/.installed ## run the tests of timm, with a torch that has torchvision
	OMP_NUM_THREADS=1 $(VISION)/bin/python -m pytest -m "slow or not slow" \
	    -k "timm or rtdl" tests/attention/test_hub_families.py tests/backbones

lint: $(VENV)/.installed-dev ## look for mistakes and untidy code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev ## tidy the code in place
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-dev ## check the annotations
	$(BIN)/mypy

imports: $(VENV)/.installed-dev ## check that imports only go down the storeys
	$(BIN)/lint-imports

check: lint types imports test ## all that a change must pass

clean: ## remove everything that make made
	rm -rf $(VENV) $(VISION) demo_output build dist *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage

$(VENV)/.installed: $(MANIFEST)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "uqformer needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1)." \
	        "Try make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) -e ".[plot]"
	@touch $@

# apart from the stamp above, so that the demo waits for no test or lint tool
$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP_INSTALL) -e ".[test,lint]"
	@touch $@

# torchvision has no build beside the CPU build of torch that constraints.txt pins
$(VISION)/.installed: $(MANIFEST)
	$(PYTHON) -m venv $(VISION)
	grep -v '^torch==' constraints.txt > $(VISION)/constraints.txt
	$(VISION)/bin/python -m pip install --quiet -c $(VISION)/constraints.txt \
	    $(VISION_TORCH) -e ".[test,timm]"
	$(VISION)/bin/python -m pip install --quiet --no-deps rtdl_revisiting_models
	@touch $@
