# Two commands do everything on a fresh machine: `make demo` and `make test`. All of it stays in .venv, data/ and runs/.
PYTHON ?= $(shell python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo python3 || echo python3.11)
BIN := .venv/bin
INSTALL := $(BIN)/python install.py
# Modules are compiled once, by all cores: else each process that runs first would do it. Where PYTHONDONTWRITEBYTECODE is
# set, as in many images of containers, every process would compile torch for itself, since none could keep it.
COMPILE := $(BIN)/python -m compileall -qq -j 0 .venv/lib/python3*/site-packages || true

.PHONY: help demo test check format golden clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/demo.stamp ## install, fetch the demo data, run every stage, print the results
	$(BIN)/python -m cluster.demo

test: .venv/test.stamp ## install the test extras, then all checks and tests
	$(MAKE) check

check: ## the checks and tests of `make test`, nothing installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 --dist loadgroup

format: .venv/test.stamp ## put the code in order
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: .venv/test.stamp ## write tests/golden/ and docs/methods/ anew after a change that is meant; read the difference
	$(BIN)/python tests/golden/regenerate.py

clean: ## remove .venv and caches; data/ and runs/ stay
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info

.venv/bin/python:
	$(PYTHON) -m venv .venv || { rm -rf .venv; \
	  echo "needs Python 3.11 or newer with its venv module (Debian: apt install python3-venv)"; exit 1; }

.venv/demo.stamp: pyproject.toml | .venv/bin/python
	$(INSTALL) -e '.[demo]'
	$(COMPILE)
	touch $@

# DeepSpeed looks at the torch that is there while it is built, so torch comes first and the build is not isolated.
.venv/test.stamp: pyproject.toml | .venv/bin/python
	$(INSTALL) -e '.[test]' 'setuptools>=77' wheel ninja py-cpuinfo psutil
	DS_BUILD_OPS=0 $(INSTALL) --no-build-isolation -e '.[test,demo,deepspeed]'
	$(COMPILE)
	touch $@
