# `make` lists what there is. Everything runs in .venv, which is built when first needed
# and again only when requirements-dev.txt or pyproject.toml change; `make serve` needs less, and makes do with less.

READY  := .venv/.ready
SERVES := .venv-serve/.ready
BIN    := .venv/bin
PYTEST := $(BIN)/python -m pytest

# Bytecode is kept, whatever the environment says: every program that a test starts would compile us anew.
unexport PYTHONDONTWRITEBYTECODE

# How many test processes: two more than the cores of a small machine, since many tests wait for servers, leases and
# databases. JOBS=0 runs everything in one, which is what a debugger wants.
JOBS ?= 4

.DEFAULT_GOAL := help
.PHONY: help pictures bench-quick bench-instructions schema setup setup-clients serve test test-core test-others test-fast test-clients check bench torture torture-store torture-claims torture-sessions torture-http torture-resources lock lock-clients lock-peers clean bench-scale bench-install bench-peers bench-page bench-pictures bench-parts fuzz lock-fuzz openapi reference torture-replicas torture-upgrade torture-api licences sbom torture-replay console-pictures release docs lock-docs

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## build .venv, if anything changed (PYTHON=… chooses the interpreter)

$(READY): requirements-dev.txt pyproject.toml scripts/setup.sh
	@sh scripts/setup.sh .venv

setup-clients: $(READY) ## install the clients that tests run, each in an environment of its own
	@$(BIN)/python -m tests.clients.environments

# In .venv if it is there and up to date; else in an environment of its own, without what only developers need.
serve: ## serve the demo agent
	@if $(MAKE) --silent --question $(READY); then exec $(BIN)/holdfast serve; fi; \
		$(MAKE) --silent $(SERVES) && exec $(dir $(SERVES))bin/holdfast serve

$(SERVES): requirements.txt scripts/setup.sh
	@sh scripts/setup.sh .venv-serve

# A client that cannot be installed here is no reason to test nothing: its tests say that they were left out.
test: $(READY) ## run all tests, and hold src/holdfast/core to full branch coverage
	@$(MAKE) --no-print-directory setup-clients || true
	@$(BIN)/python -m tests.bytecode
	@$(MAKE) --no-print-directory --jobs=2 --keep-going test-core test-others

# Beside the others, which wait a lot; its words come in one piece.
test-core: $(READY)
	@words=$$($(BIN)/python -m coverage run -m pytest -q tests/core && $(BIN)/python -m coverage report); \
		held=$$?; printf '\n%s\n' "$$words"; exit $$held

test-others: $(READY)
	$(PYTEST) -n $(JOBS) --dist worksteal --ignore=tests/core

test-clients: setup-clients ## run every client in every scenario, and a conformance prober
	$(PYTEST) -n $(JOBS) -m "" tests/clients

test-fast: $(READY) ## run the tests that take no more than a moment each
	$(PYTEST) -n $(JOBS) -q -m "not slow and not clients and not thorough"

check: $(READY) ## format, lint and types
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

# GROUP="tokens pace" measures those alone (`ARGS=--list` lists them); `--rounds` and `--only` go into ARGS.
bench: $(READY) ## measure servers side by side, group by group, and write build/bench/report.html
	@PYTHONPATH=bench:. $(BIN)/python -m speed $(GROUP) $(ARGS)

bench-install: $(READY) ## install what bench/ measures against, each in an environment of its own
	@PYTHONPATH=bench:. $(BIN)/python -m speed.installing

bench-page: $(READY) ## write build/bench/report.html anew from what was measured
	@PYTHONPATH=bench:. $(BIN)/python bench/report.py

bench-pictures: $(READY) ## photograph the plots that README shows, of what was measured last
	@PYTHONPATH=bench:. $(BIN)/python bench/report.py --pictures docs/bench

bench-parts: $(READY) ## measure part by part, side by side: every other file in bench/, in order
	@set -e; for file in $$(ls bench/[!_]*.py | grep -v -e /report -e /semantics); do \
		printf '\n== %s\n\n' "$$file"; PYTHONPATH=. $(BIN)/python "$$file"; \
	done

bench-quick: $(READY) ## print the ratios that must not slip, in under three minutes
	@PYTHONPATH=bench:. $(BIN)/python bench/_quick.py

# Everybody who is installed; PEER=langgraph for one, which is installed if need be; `--only kill_in_tool --show`
# and the like go into ARGS. The page is written whatever was found.
bench-peers: $(READY) ## play what goes wrong every day on Holdfast and its peers, and write the page (PEER=… for one)
	@PYTHONPATH=. $(BIN)/python bench/semantics.py $(if $(PEER),--peer $(PEER)) $(ARGS); found=$$?; \
		PYTHONPATH=bench:. $(BIN)/python bench/report.py; exit $$found

# Needs valgrind; ARGS=--check compares with bench/instructions.json and writes nothing.
bench-instructions: $(READY) ## count the instructions of the hot path, which a busy machine does not change
	@PYTHONPATH=. $(BIN)/python bench/_instructions.py $(ARGS)

# The same with 2,000 sessions is part of `make bench-parts`.
SESSIONS ?= 100000
TURNS    ?= 1000000
bench-scale: $(READY) ## list, search and open among 100,000 sessions with 1,000,000 turns, on both homes
	@PYTHONPATH=. $(BIN)/python bench/scale.py --sessions $(SESSIONS) --turns $(TURNS) $(ARGS)

torture: torture-store torture-claims torture-sessions torture-http torture-resources torture-api torture-replay torture-replicas torture-upgrade ## run every torture suite

# STORE=postgres kills the clients and the server of a PostgreSQL; `--only`, `--seed` and `--scale` go into ARGS.
STORE ?= sqlite
torture-store: $(READY) ## kill the store at bad moments, many times, and verify what is left
	@$(BIN)/python -m tests.torture.store --store $(STORE) $(ARGS)

torture-claims: $(READY) ## run what `make test` leaves out, which makes each claim once: combinations, and more examples
	$(PYTEST) -n $(JOBS) -m "thorough or (hypothesis and not clients)" --hypothesis-profile=long

torture-http: $(READY) ## besiege a server with 3,000 slow, silent and half-sent connections, while others use it
	@$(BIN)/python -m tests.torture.http $(ARGS)

# `--only outage`, `--scale 5` and `--only soak --caches 1` go into ARGS.
torture-resources: $(READY) ## starve a server: of its provider, of clients that read, of files, memory and disk
	@$(BIN)/python -m tests.torture.resources $(ARGS)

# `--seed`, `--clients` and `--ttl` go into ARGS; a seed has the same faults at the same times.
MINUTES ?= 10
torture-replicas: $(READY) ## kill, pause and cut off three replicas, and their database, under hundreds of clients (MINUTES=10)
	@$(BIN)/python -m tests.torture.replicas --minutes $(MINUTES) $(ARGS)

# BEFORE is a commit, such as the last one before a change of how the store reads and writes; without it, the last one
# whose tables are older than those that can be continued in.
torture-upgrade: $(READY) ## replace three older servers by these, one by one, while they are struck and asked (MINUTES=10)
	@$(BIN)/python -m tests.torture.one_file $(BEFORE)
	@$(BIN)/python -m tests.torture.replicas --minutes $(MINUTES) --before $(BEFORE) $(ARGS)

# CASES=500000 for a night; `--seed` and `--examples` go into ARGS.
CASES ?= 50000
torture-api: $(READY) ## ask a server 50,000 things that nobody would think of, made from its own description
	@$(BIN)/python -m tests.torture.http_api --cases $(CASES) $(ARGS)

torture-replay: $(READY) ## play 1,000 responses on a server that dies, and compare what was seen with their logs
	@$(BIN)/python -m tests.torture.replay $(ARGS)

# SEEDS=100000 ARGS="--resume build/campaign.json" for a night or two: it goes on where it was stopped. `--minutes`,
# `--store` and `--first` go into ARGS. What is broken on purpose comes first, and the same stories on a real
# PostgreSQL, in real time, come last.
# One seed again, event by event: .venv/bin/python -m tests.simulation --seed N --store memory --trace
SEEDS ?= 10000
REAL_SEEDS ?= 200
torture-sessions: $(READY) ## simulate nodes, clients and faults under many seeds, and check the promises
	@$(BIN)/python -m tests.mutants sessions
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)
	@$(BIN)/python -m tests.simulation --store postgres --seeds $(REAL_SEEDS)

console-pictures: $(READY) ## photograph every view of the console, for its guide
	@$(BIN)/python -m tests.console.shots docs/console

# EXECUTIONS=1000000 counts in place of SECONDS; `--only NAME…` goes into ARGS.
SECONDS ?= 60
fuzz: $(READY) ## try every reader with bytes that a fuzzer makes, for SECONDS (60) each
	@$(BIN)/python -m tests.fuzz $(if $(EXECUTIONS),--executions $(EXECUTIONS),--seconds $(SECONDS)) $(ARGS)

# The locks hold for every platform and every supported Python, and name no package index.
UV ?= uv
COMPILE := $(UV) pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links

lock: ## renew requirements.txt and requirements-dev.txt (needs uv; UPGRADE=1 for newer versions)
	$(COMPILE) $(if $(UPGRADE),--upgrade) pyproject.toml --output-file requirements.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) pyproject.toml --group dev \
		--constraint requirements.txt --output-file requirements-dev.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) pyproject.toml --extra fetch --extra postgres --extra mcp --extra otel \
		--constraint requirements-dev.txt --output-file deploy/requirements.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) --group build \
		--constraint requirements-dev.txt --output-file deploy/requirements-build.txt

lock-fuzz: ## renew the lock of the fuzzer (needs uv)
	$(COMPILE) $(if $(UPGRADE),--upgrade) tests/fuzz/requirements.in --output-file tests/fuzz/requirements.txt

lock-docs: ## renew the lock of the documentation's site (needs uv)
	$(COMPILE) $(if $(UPGRADE),--upgrade) docs/site/requirements.in --output-file docs/site/requirements.txt

schema: $(READY) ## renew the JSON Schema of agent files
	$(BIN)/holdfast agents schema > docs/reference/agent-file.schema.json

openapi: reference ## renew the OpenAPI document of the HTTP API, with the pages

reference: $(READY) ## renew what docs/reference has of the code
	$(BIN)/python scripts/reference.py
	$(BIN)/python -m tests.agents.field_table

# In an environment of its own: a server needs none of it.
docs: .venv-docs/.ready ## build the documentation as a site, in build/site/html
	@.venv-docs/bin/python scripts/site.py

.venv-docs/.ready: docs/site/requirements.txt scripts/setup.sh
	@sh scripts/setup.sh .venv-docs

pictures: $(READY) ## draw the terminal pictures of the pages anew
	$(BIN)/python scripts/pictures.py

licences: $(READY) ## renew the list of what a server is made of, and its licences
	$(BIN)/python scripts/supply.py licences > docs/reference/licences.md

sbom: $(READY) ## write a bill of materials (CycloneDX) to build/
	@mkdir -p build
	$(BIN)/python scripts/supply.py sbom > build/sbom.cdx.json

# Into dist/; `--home URL`, where the repository is for people, and `--python python3.13` go into ARGS.
release: $(READY) ## build what a release consists of, and try the wheel on every supported Python
	@$(BIN)/python scripts/release.py $(ARGS)

# A peer that needs a newer Python says so in its first line.
lock-peers: ## renew the locks of what bench/ measures against (needs uv)
	set -e; for asked in bench/peers/*.in; do \
		version=$$(sed -n 's/^# Python //p' $$asked); \
		$(subst 3.11,$${version:-3.11},$(COMPILE)) $(if $(UPGRADE),--upgrade) $$asked --output-file $${asked%.in}.txt; \
	done

# Newer versions come by UPGRADE=1, or for Node by changing package.json.
lock-clients: ## renew the locks of the clients that tests run (needs uv and npm)
	set -e; for asked in tests/clients/*/requirements*.in; do \
		$(COMPILE) $(if $(UPGRADE),--upgrade) $$asked --output-file $${asked%.in}.txt; \
	done
	set -e; for asked in tests/clients/*/package.json tests/console/*/package.json; do \
		(cd $$(dirname $$asked) && npm $(if $(UPGRADE),update,install) --package-lock-only --ignore-scripts --no-audit --no-fund); \
	done

clean: ## remove what was built or measured, environments included
	rm -rf .venv .venv-serve .venv-clients .venv-fuzz .venv-peers build dist .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
