# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

# $(call install,requirement,what it is): one line; what pip says only if it fails.
install = echo "Installing $(2) into .venv (a few minutes the first time)"; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	--editable "$(1)" > .venv/install.log 2>&1 || { cat .venv/install.log; exit 1; }

.PHONY: demo test test-network test-full lint browser docs benchmark clean

demo: .venv/installed
	@$(BIN)/compositefl demo --overwrite

# Three processes also on two cores: a fifth of the time each waits for processes it has started.
# These keep what Python compiles of the package, or a hundred of them would compile it again.
test: lint .venv/browser
	@echo "Running the tests"
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3

test-network: .venv/installed-test
	COMPOSITEFL_NETWORK_TESTS=all $(BIN)/python -m pytest tests/deployment/network

# As users run it: with all optimisations of the compiler, the published data sets where they are
# found ($COMPOSITEFL_DATA), deep networks and every test over the network. Takes half an hour.
test-full: lint
	COMPOSITEFL_TESTS=full $(BIN)/python -m pytest -n 3

lint: .venv/installed-test
	@echo "Checking style, types and the direction of imports"
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check . && $(BIN)/mypy
	@$(BIN)/lint-imports > .venv/imports.log || { cat .venv/imports.log; exit 1; }

# The tests look at the report in a browser where there is one. As root on Debian, which is a
# container as a rule, it is installed; elsewhere nothing outside .venv is touched.
browser: .venv/browser
.venv/browser: .venv/installed-test
	@if command -v chromedriver > /dev/null; then touch $@; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		echo "Installing chromium, for the tests of the report"; \
		{ apt-get update && timeout 240 apt-get install -y --no-install-recommends chromium \
			chromium-driver; } > .venv/browser.log 2>&1 && touch $@ || \
			echo "Not installed (.venv/browser.log): tests in a browser are skipped"; \
	else echo "No chromium and chromedriver here: tests in a browser are skipped"; fi

docs: .venv/installed-test
	@$(BIN)/python examples/notebooks/make.py > /dev/null
	@$(BIN)/python -m mkdocs build --strict --quiet && echo "open site/index.html"

benchmark: .venv/installed
	$(BIN)/python benchmarks/rounds.py

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -m venv .venv
	@$(call install,.[report],compositefl)
	@touch $@

.venv/installed-test: .venv/installed
	@$(call install,.[test],the tools of the tests)
	@touch $@

clean:
	rm -rf .venv build dist demo site
