# The two commands are `make run` and `make test`; both build their own environment in .venv.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready

.PHONY: run test setup bench docs verify clean

# From an empty folder to a verdict on a small town; the last line is the page to look at.
run: setup
	@$(BIN)/evenline study run town

# One process compiles the fast world's kernels beside mypy; the workers find them in the cache.
KERNELS := tests/worlds/test_fast_world.py tests/policies/test_lookahead.py

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pytest $(KERNELS) & kernels=$$!; $(BIN)/mypy; types=$$?; wait $$kernels && exit $$types
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder $(addprefix --ignore=,$(KERNELS))

# Every closed trial in the repository, with nothing but Python's standard library.
verify:
	@$(PYTHON) src/evenline/trial/verify.py --all data

setup: $(STAMP)

# The documentation as a site that needs no network; the last line is the page to open.
docs: setup
	$(BIN)/mkdocs build --strict --quiet
	@echo build/site/index.html

bench: setup
	$(BIN)/python -m bench.sumo

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf .venv results build
