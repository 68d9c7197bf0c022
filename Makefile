# `make demo` and `make test` build the environments that they need; all they ask for is Python 3.11 or newer.
PYTHON ?= python3
WORKERS ?= 2
WHEEL_ENV := build/wheel-env
CLIENT_ENV := build/client-env
SOURCES := solver/bapipe api/bapipe_api api/bapipe_client api/bapipe_cli executor/bapipe_executor benchmarks
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-fast lint format bench bench-executor bench-overhead schemas schedules fpga reference readme wheel clean bench-rehearsal bench-partition

# The service as a real process, VGG-16 planned for four GPUs; writes demo/plan.json and demo/timeline.html.
demo: .venv/.installed
	.venv/bin/python -m bapipe_cli.demo

# What CI runs: the linters, then every test against the built and installed wheel.
test: lint wheel
	BAPIPE_TESTED=wheel BAPIPE_CLIENT_ENV=$(CLIENT_ENV) $(WHEEL_ENV)/bin/pytest -n $(WORKERS) --dist loadgroup

# The same tests against the checkout, for the time between two edits.
test-fast: .venv/.dev
	.venv/bin/pytest -n $(WORKERS) --dist loadgroup

lint: .venv/.dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy $(SOURCES)
	.venv/bin/lint-imports

format: .venv/.dev
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

bench: .venv/.dev
	.venv/bin/python -m benchmarks

# Every way to train that the executor has, against one process; runs whose ranks are killed.
bench-executor: .venv/.dev
	OMP_NUM_THREADS=1 PYTHONPATH=tests/executor .venv/bin/python -m benchmarks.training
	OMP_NUM_THREADS=1 PYTHONPATH=tests/executor .venv/bin/python -m benchmarks.recovery

# Plans rehearsed with emulated compute: measured beside predicted.
bench-rehearsal: .venv/.dev
	OMP_NUM_THREADS=1 PYTHONPATH=tests/executor .venv/bin/python -m benchmarks.rehearsal

# A step of the executor against the same step written by hand with torch.
bench-overhead: .venv/.dev
	OMP_NUM_THREADS=1 PYTHONPATH=tests/executor .venv/bin/python -m benchmarks.overhead

# A small GPT-2 trained on CPUs: the planner's plan against as many layers on each rank.
bench-partition: .venv/.dev
	OMP_NUM_THREADS=1 PYTHONPATH=tests/executor .venv/bin/python -m benchmarks.partition

# docs/schemas, from the types.
schemas: .venv/.installed
	.venv/bin/bapipe schema --output-folder docs/schemas

# docs/schedules.md and its images, from the simulator.
schedules: .venv/.installed
	cd docs && ../.venv/bin/bapipe schedules --stages 4 --microbatches 8 --transfer 0.5 -o schedules.md

# docs/fpga.md and its image, from the emulator and the clusters planned last.
fpga: .venv/.dev
	.venv/bin/python -m benchmarks.fpga_page

# docs/api.md, from the service's OpenAPI document.
reference: .venv/.installed
	.venv/bin/python -m bapipe_api.reference > docs/api.md.new
	mv docs/api.md.new docs/api.md

# The sessions in the README, with what the commands print now.
readme: .venv/.dev
	BAPIPE_WRITE_README=1 .venv/bin/pytest -q tests/system/test_readme.py

# The wheel, built and installed with the development tools into an environment that never sees the checkout; and without
# any extra, as those have it who only call a service, into another.
wheel: $(WHEEL_ENV)/.venv $(CLIENT_ENV)/.venv
	rm -rf build/wheel
	$(WHEEL_ENV)/bin/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(WHEEL_ENV)/bin/python -m pip install --quiet "$$(echo build/wheel/*.whl)[dev]"
	$(WHEEL_ENV)/bin/python -m pip install --quiet --no-deps --force-reinstall build/wheel/*.whl
	$(CLIENT_ENV)/bin/python -m pip install --quiet build/wheel/*.whl
	$(CLIENT_ENV)/bin/python -m pip install --quiet --no-deps --force-reinstall build/wheel/*.whl

clean:
	rm -rf .venv build dist demo

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --editable '.[api]'
	touch $@

.venv/.dev: .venv/.installed
	.venv/bin/python -m pip install --quiet --editable '.[dev]'
	touch $@

$(WHEEL_ENV)/.venv: pyproject.toml
	$(PYTHON) -m venv $(WHEEL_ENV)
	touch $@

$(CLIENT_ENV)/.venv: pyproject.toml
	$(PYTHON) -m venv --clear $(CLIENT_ENV)
	touch $@
