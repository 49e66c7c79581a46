# `make plan` answers a question on a fresh machine; `make test` installs the rest and proves it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
BENCHMARKS := $(shell grep -l -e --json $(filter-out benchmarks/_% benchmarks/against.py benchmarks/rows_against.py,$(wildcard benchmarks/*.py)) /dev/null)

.PHONY: plan check test lint types imports quick units slow browser bench parsers accuracy picture layouts options screenshots run-demo gpu fuzz audit clean

plan: $(VENV)/.planner
	@$(BIN)/shardwise plan llama-3-70b --on dgx-h100:1024

# For people at work: under a minute on two cores. What starts processes, trains or searches long is left to `test`.
QUICK := $(addprefix tests/,arch catalog collectives cost diagnose docs estimate fabric importers report schedules \
	simulate spec topologies work)
check: lint types imports quick

test: lint types imports units

lint: $(VENV)/.tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.tests
	$(BIN)/mypy

imports: $(VENV)/.tests
	$(BIN)/lint-imports

units: $(VENV)/.tests
	$(BIN)/pytest -n 2 --dist loadgroup -m "not slow"

quick: $(VENV)/.tests
	$(BIN)/pytest -n 2 --dist loadgroup -m "not slow" $(QUICK)

# pytest ends with 5 when nothing is marked slow.
slow: $(VENV)/.tests
	$(BIN)/pytest -n 2 --dist loadgroup -m slow || test $$? -eq 5

# Every view of the page in a real browser, the slow tests too; where one cannot be had they say why they skip.
browser: $(VENV)/.tests
	$(BIN)/pytest -n 2 --dist loadgroup -rs tests/page

# Inputs nobody meant to write, for every verb and reader; ends with one line of JSON. FIRST=N begins at another number.
N ?= 100000
FIRST ?= 0
fuzz: $(VENV)/.tests
	cd tests && PYTHONPATH=$(CURDIR)/src:. ../$(BIN)/python -m fuzz --inputs $(N) --first $(FIRST)

# Dangerous calls, known holes of what is installed, and a list of it in sbom.cdx.json. What cannot be had is said.
audit: $(VENV)/.tests
	-@$(PIP) install bandit pip-audit 2> /dev/null
	$(BIN)/python .ci/audit.py

# Four gloo ranks, dp 2 x tp 2: the loss falls, then the prediction is held against what was sent and kept.
DEMO := docs/tiny-llama.json --on 4xh100 --tp 2 --seq 64 --global-batch 8
run-demo: $(VENV)/.tests
	$(BIN)/shardwise run $(DEMO) --steps 30 --rate 5e-3 --device cpu
	$(BIN)/shardwise verify $(DEMO)

# What needs a GPU: one is enough, ranks that share it talk over NCCL's sockets.
gpu: $(VENV)/.tests
	$(BIN)/pytest tests/runtime/test_on_cuda.py -rs
	$(BIN)/python benchmarks/shared_gpu.py --json
	$(BIN)/python benchmarks/runtime_gpu.py --json

bench: $(VENV)/.tests
	@set -e; for file in $(BENCHMARKS); do \
		echo "== $$file"; \
		$(BIN)/python $$file --json > $(VENV)/.bench.out; \
		cat $(VENV)/.bench.out; \
		tail -n 1 $(VENV)/.bench.out | $(BIN)/python -m json.tool > /dev/null \
			|| { echo "$$file: the last line is not JSON"; exit 1; }; \
	done

# The programs' own parsers, for tests/formats/test_parsers.py: without what only their training needs. Seven programs are
# read from source; their source trees are fetched, or put into .parsers/sources by hand, or SHARDWISE_SOURCES names them.
PARSERS := .parsers
TREES := NVIDIA/Megatron-LM:d98e8a64dd verl-project/verl:1dda039b9 huggingface/nanotron:2411b022a7 \
	NVIDIA-NeMo/Automodel:36044ad3d NVIDIA-NeMo/Megatron-Bridge:067f987df AI-Hypercomputer/maxtext:e591f30cb \
	AMD-AGI/Primus:fd1eeabb
parsers: $(VENV)/.tests
	$(PIP) install --target $(PARSERS) hydra-core jinja2 tyro hjson py-cpuinfo psutil pydantic tqdm ninja msgpack einops setuptools wheel
	$(PIP) install --target $(PARSERS) dacite transformers datasets
	$(PIP) install --no-deps --target $(PARSERS) accelerate==1.15.0 huggingface_hub packaging safetensors
	$(PIP) install --no-deps --target $(PARSERS) trl==1.16.0 axolotl==0.19.0 llamafactory==0.9.5 peft==0.21.2 pillow omegaconf \
		antlr4-python3-runtime==4.9.3 python-dotenv addict
	DS_BUILD_OPS=0 PYTHONPATH=$(PARSERS) $(PIP) install --no-deps --no-build-isolation --target $(PARSERS) deepspeed==0.19.8
	$(PIP) install --no-deps --target $(PARSERS) torchdata torchao grain spmd_types absl-py etils array_record cloudpickle \
		protobuf portpicker
	for version in 0.2.2 0.3.0; do \
		$(PIP) install --no-deps --target $(PARSERS)/sources/torchtitan-$$version torchtitan==$$version || exit 1; \
	done
	@for tree in $(TREES); do \
		repository=$${tree%:*}; folder=$(PARSERS)/sources/$${repository#*/}; \
		test -d $$folder && continue; \
		git clone --quiet --filter=blob:none --no-checkout https://github.com/$$repository $$folder.part \
			&& git -C $$folder.part checkout --quiet $${tree#*:} && mv $$folder.part $$folder \
			|| { rm -rf $$folder.part; echo "$$repository cannot be fetched here: put its tree into $$folder"; }; \
	done
	@echo "run: $(BIN)/pytest tests/formats/test_parsers.py -rs"

# FOLDS=1 cross-validates again (minutes); without it the stored folds are used.
accuracy: $(VENV)/.tests
	$(BIN)/python benchmarks/accuracy.py $(if $(FOLDS),--folds)
	$(BIN)/python benchmarks/accuracy.py --peers
	$(BIN)/python benchmarks/classes.py

picture: $(VENV)/.planner
	$(BIN)/shardwise simulate llama-3-70b --on dgx-h100:64 --tp 8 --pp 4 --vpp 2 --global-batch 16 --figure docs/step.svg > /dev/null
	$(BIN)/python docs/draw_architecture.py
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python docs/paste_outputs.py

# The pictures of docs/page.md, by Chromium; what is missing is said.
screenshots: $(VENV)/.tests
	$(BIN)/python docs/take_screenshots.py

options: $(VENV)/.tests
	$(BIN)/python docs/write_options.py

layouts: $(VENV)/.planner
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python docs/paste_layouts.py

clean:
	rm -rf $(VENV) $(PARSERS) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src lab tests benchmarks evidence docs -name __pycache__ -type d -prune -exec rm -rf {} +

# A changed pyproject.toml installs again; nothing else does.
$(VENV)/.planner: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --editable .
	@$(BIN)/python -m compileall -q src  # so that the first answer is as fast as the second
	@touch $@

# Chromium comes from Debian's packages while pip works; without it or playwright, tests of the page in a browser skip and say why.
APT := apt-get --yes -qq
$(VENV)/.tests: $(VENV)/.planner lab/pyproject.toml
	@{ command -v chromium || { timeout 60 $(APT) update; timeout 180 $(APT) install --no-install-recommends chromium; }; } > $(VENV)/.chromium.log 2>&1 & \
	$(PIP) install --editable '.[test]' --editable ./lab && $(PIP) install torch==2.13.0; installed=$$?; \
	$(PIP) install --editable '.[browser]' || echo "no playwright here"; wait; exit $$installed
	@touch $@
