# The two commands are `make run` and `make test`; both build their own environment in .venv.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready

.PHONY: run test setup bench clean

# From an empty folder to a verdict on a small town; the last line is the page to look at.
run: setup
	@$(BIN)/evenline study run town

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist loadfile

setup: $(STAMP)

bench: setup
	$(BIN)/evenline bench sumo --json

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf .venv results build
