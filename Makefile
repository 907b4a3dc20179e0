# Two commands: `make demo` shows the library at work, `make test` checks everything. `make docs` builds the site.
# Each makes .venv here on first use and is quick afterwards.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bare docs clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[cli,plots]' -c constraints-test.txt
	@touch $@

$(VENV)/.test: pyproject.toml constraints-test.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[all,docs,test]' -c constraints-test.txt
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/monocal demo

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint bare
	$(BIN)/python -m pytest -n 2 tests
	$(MAKE) docs

# The hard dependencies alone, in an environment that has nothing else.
.venv-bare/.done: pyproject.toml constraints-test.txt
	$(PYTHON) -m venv .venv-bare
	.venv-bare/bin/python -m pip install -q --upgrade pip
	.venv-bare/bin/python -m pip install -q -e . pytest
	@touch $@

bare: .venv-bare/.done
	.venv-bare/bin/python -m pytest --noconftest tests/bare

docs: $(VENV)/.test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) .venv-bare site .pytest_cache .mypy_cache .ruff_cache .hypothesis
