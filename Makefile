# Two commands: `make demo` shows the library at work, `make test` checks everything.
# Each makes .venv here on first use and is quick afterwards.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint clean

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

test: lint
	$(BIN)/python -m pytest -n 2 tests

clean:
	rm -rf $(VENV) .venv-bare .pytest_cache .mypy_cache .ruff_cache .hypothesis
