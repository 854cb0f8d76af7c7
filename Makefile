# Every target sets up what it needs in .venv; nothing else on the machine is touched.
PYTHON ?= python3
BIN := .venv/bin
CORE := .venv/.core
EVERYTHING := .venv/.everything

.PHONY: demo test soak check bench peers docs clean

demo: $(CORE)  ## run the built-in study and name its report
	$(BIN)/tacit run

test: check  ## everything: style, types, architecture, tests, examples
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

soak: $(EVERYTHING)  ## many more kills and lost messages than in `make test`; takes minutes
	TACIT_KILLS=10 TACIT_SCHEDULES=7000 TACIT_SOAK_MINUTES=20 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 \
	  tests/unit/execution/test_runner.py::test_kills_at_random_moments_lose_nothing \
	  tests/network/test_kill.py tests/network/test_lasting.py tests/unit/rounds/test_rehearsal.py

check: $(EVERYTHING)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(EVERYTHING)  ## the benchmarks, as ratios
	for file in $(filter-out benchmarks/against_peers.py,$(wildcard benchmarks/*.py)); do $(BIN)/python $$file || exit 1; done

peers: $(EVERYTHING)  ## the same training by other frameworks, each in an environment of its own: gigabytes the first time
	$(BIN)/python benchmarks/against_peers.py

docs: $(EVERYTHING)  ## write the methods into README.md and docs/methods.md, and the tables of docs/reproduction.md
	$(BIN)/python docs/write_methods.py
	$(BIN)/python docs/write_reproduction.py

$(CORE): pyproject.toml constraints.txt  # tacit and the packages that it always needs
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "tacit needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(EVERYTHING): $(CORE)  # the extras too, and what tests, checks and benchmarks need
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[all,dev]'
	@touch $@

clean:
	rm -rf .venv
