# Sets up a virtual environment with pinned dependencies on first use. `make train` and `make test` are all one needs.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: train test coverage test-faults lint format clean

train: .venv/ready
	$(BIN)/valuedice train

test: .venv/ready
	$(BIN)/pytest -n 2 --dist worksteal $(PYTEST_OPTIONS)

coverage: .venv/ready
	$(BIN)/pytest -n 2 --dist worksteal --cov --cov-report=term --cov-fail-under=93

test-faults: .venv/ready
	$(BIN)/pytest -m faults tests/faults --faults-report results/faults/report.json

lint: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

format: .venv/ready
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "valuedice needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@echo "setting up .venv (some minutes on the first run)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build src/*.egg-info
