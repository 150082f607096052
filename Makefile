# Each target makes .venv and installs what it needs by itself, and does nothing twice.
PYTHON ?= python3
BIN := .venv/bin
PIP := -m pip install -qq -c constraints.txt

.PHONY: test check benchmark docs clean format skorch-tests sklearn-tests

# Without the site, which `make docs` builds and tests. Two threads a process wait for each other.
test: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --ignore=tests/docs/test_site.py

check: .venv/dev .venv-wheel/checked
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/bandit -q -r mixupe_sklearn benchmarks -c pyproject.toml
	$(BIN)/python .ci/words.py
	$(BIN)/python .ci/audit.py

# skorch's own tests, with our nets in the place of skorch's.
skorch-tests: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python .ci/skorch_tests.py -q -n 2

# scikit-learn's own tests of its searches, with MixupESearchCV in their place.
sklearn-tests: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python .ci/sklearn_tests.py -q -n 2

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: .venv/dev
	$(BIN)/python -m benchmarks.tabular

docs: .venv/docs
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python -m pytest -q tests/docs/test_site.py
	@echo "Open docs/_build/html/index.html"

clean:
	rm -rf .venv .venv-wheel build dist docs/_build docs/api docs/gallery .mypy_cache .ruff_cache .pytest_cache

.venv/dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python $(PIP) -e '.[dev]'
	touch $@

.venv/docs: .venv/dev
	$(BIN)/python $(PIP) -e '.[docs]'
	touch $@

# The wheel, installed into an environment of its own with no extra, must import and learn.
.venv-wheel/checked: pyproject.toml constraints.txt README.md LICENSE .ci/wheel_check.py $(wildcard mixupe_sklearn/*.py mixupe_sklearn/*/*.py mixupe_sklearn/*/*/*.py) | .venv/dev
	rm -rf dist .venv-wheel
	$(BIN)/python -m build --wheel --outdir dist . > /dev/null
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python $(PIP) dist/*.whl
	cd .venv-wheel && bin/python ../.ci/wheel_check.py
	touch $@
