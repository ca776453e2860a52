# Works on a machine that has only Python 3.11-3.13 and make. Each step runs once and says what it does in one line.
#   make demo            score the bundled executions and write a report
#   make test            the fast tests;  make test SLOW=1  adds the slow ones, those on MuJoCo, and the notebooks
#   make check           static checks: ruff, import-linter, pyright
#   make demonstrations  200 of each of the seven ManiSkill tasks;  make deviations  their tilted, faulty and other arms' runs
#   make test-maniskill  tests of the simulator (Python 3.11, Linux)
#   make help            the rest
# PYTHON=/path/to/python chooses the interpreter; PYTEST_ARGS="-k align" goes to pytest.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
WORKERS ?= 2
SLOW ?=
FAST := not slow and not sim and not maniskill
LOCKS := requirements/bootstrap.txt requirements/core.txt pyproject.toml
SIM := .venv-maniskill
# Not in the lock: one version is another build, with other packages, from every index (CPU alone, or gigabytes of CUDA).
# pip and not uv installs it, since only pip is sure to use the index that this machine is configured for.
TORCH ?= torch==2.13.0
TASKS ?= stack_cube place_sphere peg_insertion_side plug_charger poke_cube close_drawer place_can
EPISODES ?= 200
ROLLOUTS ?= outputs/rollouts
# Of what mani-skill asks for: torch with its CUDA packages (see above), and what only its examples import.
LEFT_OUT := torch nvidia-ml-py mplib toppra

export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help demo demonstrations deviations test test-maniskill check bench lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' Makefile

demo: .venv/.core  ## score the bundled executions and write a report
	@$(BIN)/jaxeval demo

demonstrations: $(SIM)/.ready  ## 200 of each ManiSkill task into outputs/rollouts/<task>_oracle; goes on where it was stopped
	@for task in $(TASKS); do \
	    $(SIM)/bin/jaxeval rollout task=$$task episodes=$(EPISODES) out=$(ROLLOUTS)/$${task}_oracle; \
	done

FAULTS_stack_cube := grasp_off_centre,place_off_centre,stall
FAULTS_place_can := grasp_off_centre,place_off_centre,stall
FAULTS_peg_insertion_side := beside_hole,stall
FAULTS_place_sphere := bin_dragged,stall
FAULTS_plug_charger := grasp_off_centre,stall
FAULTS_poke_cube := grasp_off_centre,stall
FAULTS_close_drawer := stall
ROLLOUT := $(SIM)/bin/jaxeval rollout

deviations: $(SIM)/.ready  ## ten starts of each task tilted, ten with each planted fault, twenty by the other arms
	@$(foreach t,$(TASKS),$(ROLLOUT) task=$t episodes=10 first=1000 'tilt_deg=[0,5,10,25,45]' out=$(ROLLOUTS)/$t_oracle_tilt; \
	    $(ROLLOUT) task=$t episodes=10 first=2000 'fault=[$(FAULTS_$t)]' out=$(ROLLOUTS)/$t_oracle_faults;)
	@$(foreach t,stack_cube place_can,$(foreach a,fetch so100,\
	    $(ROLLOUT) task=$t episodes=20 first=3000 robot=$a out=$(ROLLOUTS)/$t_oracle_$a;))

# Two runs, each with workers of its own: one process that holds the compiled code of both runs out of memory maps.
test: .venv/.dev  ## the fast tests; SLOW=1 adds slow tests, those on MuJoCo, and notebooks
	@for marks in "$(FAST)" $(if $(SLOW),"(slow or sim) and not maniskill"); do \
	    echo "test: pytest -m '$$marks'"; \
	    $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "$$marks" $(PYTEST_ARGS) \
	        || { code=$$?; [ $$code -eq 5 ] && [ -n "$(PYTEST_ARGS)" ] || exit $$code; }; \
	done

test-maniskill: $(SIM)/.ready  ## tests of what needs ManiSkill, on the CPU and without a graphics device
	@echo "test-maniskill: pytest -m maniskill"
	@$(SIM)/bin/python -m pytest -m maniskill tests/sim tests/docs $(PYTEST_ARGS)

check: .venv/.dev  ## static checks: ruff, import-linter, pyright
	@echo "check: ruff"
	@$(BIN)/ruff check --quiet --output-format concise .
	@$(BIN)/ruff format --check --quiet .
	@echo "check: import-linter"
	@$(BIN)/lint-imports --no-logo > .venv/check.log 2>&1 || { cat .venv/check.log; exit 1; }
	@echo "check: pyright"
	@for project in pyproject.toml .pyright-strict.json; do \
	    $(BIN)/pyright -p $$project > .venv/check.log 2>&1 || { cat .venv/check.log; exit 1; }; \
	done

bench: .venv/.dev  ## run benchmarks/*.py one by one; each writes outputs/benchmarks/<name>.json
	@mkdir -p outputs/benchmarks
	@for script in benchmarks/*.py; do \
	    [ -e "$$script" ] || { echo "bench: no scripts in benchmarks/"; break; }; \
	    echo "bench: $$script"; $(BIN)/python "$$script" out=outputs/benchmarks; \
	done

lock: .venv/.dev  ## rewrite requirements/*.txt; UPGRADE=1 also moves to the newest versions
	@echo "lock: requirements/dev.txt, core.txt, bootstrap.txt, maniskill.txt"
	@compile() { $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate --no-header --no-config "$$@"; }; \
	compile pyproject.toml --extra dev $(if $(UPGRADE),--upgrade) -o requirements/dev.txt; \
	compile pyproject.toml --extra build -c requirements/dev.txt --upgrade -o requirements/core.txt; \
	echo uv | compile - -c requirements/dev.txt --upgrade -o requirements/bootstrap.txt; \
	printf '%s ; python_version < "3"\n' $(LEFT_OUT) > .venv/left_out.txt; \
	printf 'pytest\nbeartype\n' | compile - pyproject.toml --extra maniskill --extra build --python-version 3.11 \
	    -c requirements/dev.txt --override .venv/left_out.txt $(if $(UPGRADE),--upgrade) -o requirements/maniskill.txt
	@! grep -n '://' requirements/*.txt || { echo "lock: an address got into the locks"; exit 1; }

clean:  ## remove .venv, outputs and caches
	@echo "clean: .venv, $(SIM), outputs, caches"
	@rm -rf .venv $(SIM) .cache outputs multirun dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------------------------------------------- set-up

# uv is fast; where it cannot reach the package index as configured for pip, pip does the same from the same lock.
define install
	@echo "set-up: packages of $(1)"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --compile-bytecode -r $(1) 2> .venv/install.log \
	    || { echo "set-up: uv could not install them (.venv/install.log), trying pip"; \
	         $(BIN)/python -m pip install -qq --require-hashes -r $(1); }
	@echo "set-up: jaxeval itself, editable"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --offline -e . 2> .venv/install.log \
	    || $(BIN)/python -m pip install -qq --no-deps --no-build-isolation -e .
	@touch $(2)
endef

# What `make test` installs includes what `make demo` needs.
.venv/.core: .venv/.uv $(LOCKS)
	$(call install,requirements/core.txt,.venv/.core)

.venv/.dev: .venv/.uv $(LOCKS) requirements/dev.txt
	$(call install,requirements/dev.txt,.venv/.core .venv/.dev)

# ManiSkill's wheels, and torch's for the CPU, are for this one version.
$(SIM)/.ready: .venv/.uv requirements/maniskill.txt pyproject.toml
	@python=""; \
	for p in $(PYTHON) python3.11 $(BIN)/python python3; do \
	    if "$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))' 2> /dev/null; then python=$$p; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "set-up: no Python 3.11 found, which ManiSkill needs; install it (Debian 12: apt-get install python3 python3-venv) or name it with PYTHON=/path/to/python3.11"; exit 1; \
	fi; \
	echo "set-up: $(SIM) with $$("$$python" -V)"; \
	"$$python" -m venv --clear $(SIM)
	@echo "set-up: $(TORCH)"
	@$(SIM)/bin/python -m pip install -qq $(TORCH)
	@echo "set-up: packages of requirements/maniskill.txt, and jaxeval itself, editable"
	@for what in "--require-hashes --no-deps -r requirements/maniskill.txt" "--no-deps --no-build-isolation -e ."; do \
	    $(BIN)/uv pip install --quiet --python $(SIM)/bin/python --compile-bytecode $$what 2> .venv/install.log \
	        || $(SIM)/bin/python -m pip install -qq $$what; \
	done
	@touch $@

# An environment that works is kept; a broken one is made again.
.venv/.uv: requirements/bootstrap.txt
	@if $(BIN)/python -c 'import pip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2> /dev/null; then exit 0; fi; \
	python=""; \
	for p in $(PYTHON) python3.11 python3.12 python3.13 python3 python; do \
	    if "$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2> /dev/null; then python=$$p; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "set-up: no Python 3.11, 3.12 or 3.13 found; install one (Debian: apt-get install python3 python3-venv) or name it with PYTHON=/path/to/python"; exit 1; \
	fi; \
	if ! "$$python" -c 'import venv, ensurepip' 2> /dev/null; then \
	    echo "set-up: $$python cannot make virtual environments; install the missing part (Debian: apt-get install python3-venv)"; exit 1; \
	fi; \
	echo "set-up: .venv with $$("$$python" -V)"; \
	"$$python" -m venv --clear .venv
	@echo "set-up: uv"
	@$(BIN)/python -m pip install -qq --require-hashes -r requirements/bootstrap.txt
	@touch $@
