# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-network test-full lint benchmark clean

demo: .venv/installed
	$(BIN)/compositefl demo

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-network: .venv/installed-test
	COMPOSITEFL_NETWORK_TESTS=all $(BIN)/python -m pytest tests/deployment/network

# As users run it: with all optimisations of the compiler, the published data sets where they are
# found ($COMPOSITEFL_DATA), deep networks and every test over the network. Takes half an hour.
test-full: lint
	COMPOSITEFL_TESTS=full $(BIN)/python -m pytest -n 2 --dist loadgroup

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

benchmark: .venv/installed
	$(BIN)/python benchmarks/rounds.py

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/installed-test: .venv/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $@

clean:
	rm -rf .venv build dist demo
