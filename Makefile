# Two commands: `make demo` shows the library at work, `make test` checks everything. `make docs` builds the site.
# Each makes .venv here on first use and is quick afterwards.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bare fuzz reproduce docs wheel release clean

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
	$(BIN)/lint-imports --no-logo

test: lint bare
	$(BIN)/python -m pytest tests -n 2 --cov
	$(MAKE) docs

# The hard dependencies alone, in environments that have nothing else: the newest, and the lowest that are promised.
BARE := tests/bare tests/test_order.py tests/objective/test_objective.py tests/inputs/test_inputs.py

.venv-newest/.done: CONSTRAINTS := /dev/null
.venv-lowest/.done: CONSTRAINTS := constraints-lowest.txt
.venv-%/.done: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -q --upgrade pip
	$(@D)/bin/python -m pip install -q -e . pytest hypothesis -c $(CONSTRAINTS)
	@touch $@

bare: .venv-newest/.done .venv-lowest/.done
	.venv-newest/bin/python -m pytest $(BARE)
	.venv-lowest/bin/python -m pytest $(BARE)

# Random fits and predictions against an independent oracle, for as long as you like: make fuzz FUZZ='--seed 1 --minutes 60'
FUZZ ?= --rows 10_000_000
fuzz: $(VENV)/.test
	PYTHONPATH=tests $(BIN)/python -m fuzz $(FUZZ)

# The paper's experiments on your own logits: make reproduce DATA=my_logits/ OUT=results/
DATA ?=
OUT ?= monocal-results
reproduce: $(VENV)/.test
	$(BIN)/python -m experiments.reproduce $(if $(DATA),--data $(DATA)) --out $(OUT) $(ARGS)

docs: $(VENV)/.test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python tools/check_site.py

# The wheel in dist/, installed with nothing beside it and tried.
wheel: | $(BIN)/python
	$(BIN)/python -m pip wheel -q --no-deps -w dist .
	rm -rf .venv-wheel && $(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install -q dist/monocal-*.whl
	cd .venv-wheel && bin/python -W error -c "import monocal as mc; from monocal.data import synthetic; \
	  d = synthetic(500, 5, seed=0); print(mc.__version__, mc.MCCT().fit(d.values, d.labels).solution_.status)"

# Checks, builds and tags a version, and publishes nothing: make release VERSION=0.2.0
release: $(VENV)/.test
	$(BIN)/python tools/release.py $(VERSION)

clean:
	rm -rf $(VENV) .venv-newest .venv-lowest .venv-wheel dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
