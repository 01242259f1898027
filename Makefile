# The one entrance: people, hooks and CI call these targets.
PYTHON ?= python3.11
VENV := .venv
PROCESSES ?= 4
BIN := $(VENV)/bin
# What takes minutes shows its progress to whoever looks; CI's log is spared it.
PIP := pip --disable-pip-version-check $(shell test -t 2 || echo -q)
SOURCES := $(shell find src -name '*.py' -o -name '*.sql' -o -name '*.jar') pyproject.toml hatch_build.py README.md LICENSE

.PHONY: help setup lint format types contract dead duplicates check archive compiled checkpoint-jar columnar-jar class-list servers test test-fast deep deep-deaths deep-variants deep-sweeps model mutants chaos soak demo demo-picture bench profile bench-tables bench-peers smoke smoke-short smoke-oldest smoke-newest smoke-oldest-hour smoke-newest-hour smoke-oldest-run smoke-newest-run connect connect-4.0 connect-4.1 connect-4.2 connect-short connect-soak connect-core tables tables-4.0 tables-4.1 tables-4.2 demo-tables objects submit kubernetes first-hour matrix docs clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: $(VENV)/.installed ## .venv with exactum (the built wheel) and the tools

$(VENV)/.locked: requirements/dev.lock
.venv-demo/.locked: requirements/demo.lock
$(VENV)/.locked .venv-demo/.locked: %/.locked:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "exactum needs Python 3.10 or later; say which with: make PYTHON=python3.12 ..."; exit 1; }
	@command -v java >/dev/null || \
	  { echo "exactum needs Java 17 or later on the PATH (Debian: apt-get install openjdk-17-jre-headless)"; exit 1; }
	test -x $*/bin/python || $(PYTHON) -m venv $*
	$*/bin/python -m $(PIP) install --require-hashes -r $<
	@touch $@

# The wheel is what people install, so the wheel is what the tests test.
$(VENV)/.installed .venv-demo/.installed: %/.installed: %/.locked $(SOURCES)
	rm -rf dist
	$*/bin/python -m pip wheel --disable-pip-version-check -q --no-deps --no-build-isolation -w dist .
	$*/bin/python -m pip install --disable-pip-version-check -q --no-deps --force-reinstall dist/*.whl
	@touch $@

lint: setup
	$(BIN)/ruff check src tests bench examples model chaos hatch_build.py
	$(BIN)/ruff check --preview --select PLR0917 src/exactum  # positional parameters, a rule of ruff's preview
	$(BIN)/ruff format --check src tests bench examples model chaos hatch_build.py

format: setup ## rewrite the sources in the project's format
	$(BIN)/ruff check --fix src tests bench examples model chaos hatch_build.py
	$(BIN)/ruff format src tests bench examples model chaos hatch_build.py

types: setup
	$(BIN)/mypy

contract: setup
	PYTHONPATH=src $(BIN)/lint-imports

# Code that nobody calls, tests included; and ten lines that stand twice.
dead: setup
	$(BIN)/vulture

duplicates: setup
	$(BIN)/pylint --disable=all --enable=duplicate-code src/exactum chaos bench model examples

check: lint types contract dead duplicates ## lint, formatting, strict types, import contract, dead and double code

checkpoint-jar: setup ## compile CheckpointFs.java anew; the jar is kept beside it, a test compares them
	PYTHONPATH=src:. $(BIN)/python -m tests.kit.spark.java_classes checkpoint-fs

columnar-jar: setup ## compile ColumnarKafka.java and its neighbours anew; likewise
	PYTHONPATH=src:. $(BIN)/python -m tests.kit.spark.java_classes columnar-kafka

class-list: setup ## record anew which classes a streaming job loads; class archives are made of the list, which is kept in the wheel
	PYTHONPATH=src:. $(BIN)/python -m tests.kit.spark.class_list

# Debian's packages; the tests start servers of their own from them, on free ports and in temporary folders.
servers: ## PostgreSQL, pgbouncer, MariaDB, Prometheus, Chromium and strace, which the tests start: installed where they are missing
	@missing=""; \
	ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null || missing="$$missing postgresql"; \
	command -v mariadbd >/dev/null || missing="$$missing mariadb-server"; \
	command -v strace >/dev/null || missing="$$missing strace"; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	command -v promtool >/dev/null || missing="$$missing prometheus"; \
	command -v pgbouncer >/dev/null || test -x /usr/sbin/pgbouncer || missing="$$missing pgbouncer"; \
	test -z "$$missing" && exit 0; \
	if command -v apt-get >/dev/null && test "$$(id -u)" = 0; then \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; \
	else \
	  echo "The tests need real database servers, Prometheus, Chromium and strace, and these are missing:$$missing."; \
	  echo "Debian and Ubuntu: sudo apt-get install$$missing. Elsewhere: PostgreSQL 15 or later, pgbouncer, MariaDB 10.11 or later,"; \
	  echo "Prometheus 2.42 or later with promtool, Chromium, with their server programs on the PATH. They need not run: the tests start servers of their own."; \
	  exit 1; \
	fi

# Four at a time, on two cores: processors are what the tests need most, and the rest of them waits for servers. A test process that crashes ends the
# run with a failure: xdist would replace it and then wait for ever (seen with 3.8 and loadfile).
PYTEST = $(BIN)/python -m pytest -n $(PROCESSES) --max-worker-restart 0

# Most JVMs of the tests live for seconds, and both cores are busy: code that is compiled once, and quickly, is less work.
test deep-deaths deep-variants deep-sweeps: export JAVA_TOOL_OPTIONS = -XX:TieredStopAtLevel=1
# Tests marked sweep play a fault at every fifth call, always the same ones; make deep plays every call.
test: export EXACTUM_SWEEP_EVERY = 5
# Where bytecode may not be kept, each test process and each Spark worker compiles the tests anew.
test: export PYTHONDONTWRITEBYTECODE =
test: setup ## everything that CI runs: check, then the tests on real servers
	@$(MAKE) --no-print-directory -j3 --output-sync=target lint types contract dead duplicates servers archive
	$(PYTEST) --dist loadfile --no-loadscope-reorder -m "not deep" --durations=40

# Four test processes at once would each compile the same files.
compiled: export PYTHONDONTWRITEBYTECODE =
compiled: setup
	@said=$$($(BIN)/python -m pytest --collect-only -qq 2>&1) || { echo "$$said"; exit 1; }

archive: setup
	$(BIN)/exactum local class-archive

# The inner loop: no server, no Spark, nothing that takes long.
test-fast: setup ## the quick tests: no servers, under a minute
	$(PYTEST) -q -m "not (broker or spark or postgres or mariadb or slow or deep)"

# What make test leaves out, in parts, which may be played by themselves. 10 random deaths of each job. A test
# process that crashes fails its test, and the others are played: with --dist load a replaced one is no danger.
DEATHS = tests/crash/test_random_deaths.py tests/state/test_two_topics.py
WITHOUT_DEATHS = $(addprefix --deselect ,$(DEATHS))

deep: ## what make test leaves out, the crash tests at length, every call of the sweeps: an hour; resumable
	@$(MAKE) --no-print-directory deep-deaths deep-variants deep-sweeps smoke-oldest-hour smoke-oldest-run smoke-newest-run

deep-deaths deep-variants deep-sweeps: PYTEST += --max-worker-restart 3 --dist load --resume

deep-deaths: servers archive
	EXACTUM_CRASH_DEATHS=10 $(PYTEST) $(DEATHS)

deep-variants: servers archive
	$(PYTEST) -m deep $(WITHOUT_DEATHS)

deep-sweeps: servers archive
	$(PYTEST) -m "sweep and not deep"

model: setup ## the decision protocol, checked by machine: TLA+, and the real coordinator in random schedules
	$(BIN)/python -m model tla
	$(BIN)/python -m model schedules
	$(BIN)/python -m model broken

mutants: servers archive ## planted faults: each breaks a promise, and the tests have to find it; resumable
	@ended=0; $(BIN)/python -m pytest --resume -v tests/planted/play.py $(if $(FAULT),-k "$(FAULT)") || ended=$$?; \
	$(BIN)/python -m tests.planted.report; exit $$ended

chaos: export EXACTUM_CHAOS_SEED = $(or $(SEED),7)
chaos: servers archive ## the fault matrix: what has not passed on these sources, and a table
	@ended=0; $(PYTEST) --max-worker-restart 3 --dist load -v tests/chaos/play.py $(if $(CELL),-k "$(CELL)",--resume) || ended=$$?; \
	$(BIN)/python -m chaos.report; exit $$ended

soak: setup servers ## random faults for a while: make soak SEED=7 MINUTES=60
	$(BIN)/python -m chaos.soak --seed $(or $(SEED),7) --minutes $(or $(MINUTES),5)

# Who has the tools of development uses them. Others need not wait for them: demo.lock has a fifth of the packages, with the same pins.
DEMO := $(if $(wildcard $(VENV)/.locked),$(VENV),.venv-demo)
demo: $(DEMO)/.installed ## in a good minute: kills, of a query by exactum, then by Spark's own Kafka sink
	$(DEMO)/bin/exactum local class-archive
	$(DEMO)/bin/exactum demo

demo-tables: archive servers ## a topic, a PostgreSQL table and a Delta table, killed again and again: the three agree
	$(BIN)/python -m pytest -q -s tests/targets/test_orders_to_three.py

demo-picture: archive ## the picture of the demo in the README, made by the demo
	$(BIN)/exactum demo --picture docs/pictures/demo.svg

bench: setup ## into tables and files beside plain loads and Spark's own, alternating in one run; and what an epoch costs
	$(BIN)/python -m bench

profile: setup ## what the driver does in one steady micro-batch: modules, calls, depth, calls into the JVM, threads
	$(BIN)/python -m bench.profile

bench-tables: setup ## small micro-batches into tables, and commits in tables with many files and versions
	$(BIN)/python -m bench.tables

bench-peers: setup ## exactum beside Flink, Kafka Streams and Spark; needs a JDK
	@command -v javac >/dev/null || { echo "bench-peers needs a JDK (Debian: apt-get install openjdk-17-jdk-headless)"; exit 1; }
	$(BIN)/python -m bench.peers

# Two environments of their own, in which the wheel is installed by its name. The newest is what pip takes for a user who installs it today.
smoke: export JAVA_TOOL_OPTIONS = -XX:TieredStopAtLevel=1
smoke-short: export JAVA_TOOL_OPTIONS = -XX:TieredStopAtLevel=1
smoke: setup ## the quick start and a run on the oldest and on the newest PySpark that is allowed
	@$(MAKE) --no-print-directory -j2 --output-sync=target smoke-oldest smoke-newest

smoke-oldest smoke-newest: smoke-%: smoke-%-hour smoke-%-run

smoke-oldest-hour smoke-newest-hour: smoke-%-hour: .venv-%/.made
	PYTHONPATH=. $(BIN)/python tests/smoke/first_hour.py --environment .venv-$* --cache "$${EXACTUM_CACHE:-$$HOME/.cache/exactum}"

smoke-oldest-run smoke-newest-run: smoke-%-run: .venv-%/.made
	.venv-$*/bin/python -m tests.smoke.queries classic $(CELLS)

smoke-short: setup ## what CI plays of it: half of the runs, and the quick start on the newest alone
	@$(MAKE) --no-print-directory -j2 --output-sync=target CELLS="counted-EpochCompleted topic-letters topic-end" \
		smoke-newest-hour smoke-oldest-run smoke-newest-run

first-hour: setup ## what a newcomer does: docs/quickstart.md from an empty folder, with a virtual environment and jars of its own
	PYTHONPATH=. $(BIN)/python tests/smoke/first_hour.py

# Each kind of Spark Connect in an environment of its own: client and server of one version.
connect: export JAVA_TOOL_OPTIONS = -XX:TieredStopAtLevel=1
connect: ## queries over Spark Connect on 4.0, 4.1 and 4.2, killed at each step
	@$(MAKE) --no-print-directory connect-4.0 connect-4.1 connect-4.2

connect-4.0 connect-4.1 connect-4.2: connect-%: .venv-connect-%/.made
	.venv-connect-$*/bin/python -m tests.smoke.queries connect $(CELLS)

# CI plays none of them: a cell takes 45 s of a quiet machine, and the environment is one more PySpark.
connect-short: ## four of these on 4.2, for who changes src/exactum/spark: some minutes
	@$(MAKE) --no-print-directory connect-4.2 CELLS='topic counted-EpochDecided stopped state-format-1'

connect-soak connect-core: export JAVA_TOOL_OPTIONS = -XX:TieredStopAtLevel=1
connect-soak: .venv-connect-4.2/.made ## random deaths over Spark Connect for a while: make connect-soak SEED=7 MINUTES=60
	.venv-connect-4.2/bin/python -m tests.smoke.soak --seed $(or $(SEED),7) --minutes $(or $(MINUTES),5)

# The Spark suite's own tests, with pytest and what its kit imports. One variant calls for_each_batch, which is refused there.
connect-core: .venv-connect-4.2/.made ## the core of the Spark suite, as it stands, over Spark Connect on 4.2
	.venv-connect-4.2/bin/python -m $(PIP) install pytest pytest-timeout hypothesis 'psycopg[binary]' pymysql
	.venv-connect-4.2/bin/python -m pytest tests/smoke/core.py --deselect '$(BY_FUNCTION)'

BY_FUNCTION = tests/smoke/core.py::test_a_function_that_reads_the_batch_twice[a function]

# In the same environments: Spark's own Delta and Iceberg beside exactum's, and DuckDB of the version that has its extensions as packages.
DUCKDB = duckdb==1.4.4 duckdb-ext-avro==1.4.4.* duckdb-ext-delta==1.4.4.* duckdb-ext-iceberg==1.4.4.*
tables: ## tables that Spark and exactum both write, and DuckDB reads, on 4.0, 4.1 and 4.2; jars of 90 MB for each
	@$(MAKE) --no-print-directory tables-4.0 tables-4.1 tables-4.2

tables tables-4.0 tables-4.1 tables-4.2: export JAVA_TOOL_OPTIONS = -XX:TieredStopAtLevel=1
tables-4.0 tables-4.1 tables-4.2: tables-%: .venv-connect-%/.made
	.venv-connect-$*/bin/python -m $(PIP) install $(DUCKDB)
	.venv-connect-$*/bin/python -m tests.smoke.tables $(CELLS)

objects: export JAVA_TOOL_OPTIONS = -XX:TieredStopAtLevel=1
objects: setup ## checkpoints in a real S3 server, by Hadoop's own client: killed, moved, rivals, broken networks; needs Go, half a gigabyte of jars
	$(BIN)/python -m tests.smoke.object_stores $(CELLS)

EXTRAS = spark,avro
.venv-connect-%/.made: EXTRAS = spark,avro,delta,iceberg
.venv-connect-4.0/.made: PYSPARK = pyspark[connect]==4.0.*
.venv-connect-4.1/.made: PYSPARK = pyspark[connect]==4.1.*
.venv-connect-4.2/.made: PYSPARK = pyspark[connect]==4.2.*
.venv-oldest/.made: PYSPARK = pyspark==4.0.1
.venv-newest/.made: PYSPARK = pyspark
.venv-%/.made: $(VENV)/.installed
	test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m $(PIP) install --upgrade --find-links dist '$(PYSPARK)' 'exactum[$(EXTRAS)]'
	.venv-$*/bin/python -m pip install --disable-pip-version-check -q --no-deps --force-reinstall dist/*.whl
	@touch $@

submit: export JAVA_TOOL_OPTIONS = -XX:TieredStopAtLevel=1
submit: setup ## scripts below spark-submit, locally and on a standalone cluster: killed, stopped, with a standby
	$(PYTEST) tests/run/test_submit.py tests/run/test_stopping.py

# Its control plane is built from Go modules, once, into exactum's cache. CI does not play it.
kubernetes: export JAVA_TOOL_OPTIONS = -XX:TieredStopAtLevel=1
kubernetes: setup ## both ways on Kubernetes, killed again and again; the first time it builds an API server, up to an hour; resumable
	PYTHONPATH=. $(BIN)/python tests/smoke/kubernetes.py $(CELLS)

matrix: export JAVA_TOOL_OPTIONS = -XX:TieredStopAtLevel=1
matrix: setup ## a crash job on each supported version, once; the table of docs/reference/what-was-run.md
	$(BIN)/python -m tests.smoke.matrix $(if $(ROWS),--only $(ROWS)) $(if $(VERSIONS),--versions $(VERSIONS))

# The site, in an environment of its own: its generator and mkdocstrings, which reads docstrings without importing anything. Pages of the repository
# that are no part of the site are looked at as well. The generator (zensical 0.0.73) watches the folder for one build as well, and ends where files come and
# go meanwhile, as in CI: then it is tried again.
docs: setup .venv-docs/.made ## the site, into site/: warnings are errors, every link and anchor is looked at
	PYTHONPATH=. $(BIN)/python -m tests.kit.docs.command_line
	@tries=1; \
	until .venv-docs/bin/zensical build --strict --clean >.venv-docs/site.log 2>&1; do \
	  cat .venv-docs/site.log; \
	  grep -q "Watcher disconnected" .venv-docs/site.log && test $$tries -lt 3 || exit 1; \
	  tries=$$((tries + 1)); \
	done
	@! grep -Ei "^ *(griffe|mkdocstrings|mkdocs_autorefs|warning):" .venv-docs/site.log
	.venv-docs/bin/lychee --offline --no-progress --include-fragments --root-dir $(CURDIR)/site site README.md CONTRIBUTING.md examples model chaos

.venv-docs/.made: requirements/docs.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "The site's generator needs Python 3.11 or later; say which with: make PYTHON=python3.12 docs"; exit 1; }
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m $(PIP) install --require-hashes -r requirements/docs.lock
	@touch $@

clean: ## remove what the other targets made
	rm -rf $(VENV) .venv-oldest .venv-newest .venv-connect-* .venv-docs .venv-demo site .cache .played dist .pytest_cache .mypy_cache .ruff_cache
