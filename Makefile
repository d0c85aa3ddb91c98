# Everything here sets itself up in .venv (Python) and target (Rust); a second run finds the stamps and goes straight to work.
# Needs: Rust (cargo), Python 3.11+ (PYTHON=... chooses one) and, for Spark, a JDK 17+.

VENV := $(CURDIR)/.venv
PACKAGES := $(VENV)/.packages
# .venv holds one of two wheels: the quick one is built by the dev profile, and the other one as users get it.
QUICK := $(VENV)/.wheel-dev
RELEASED := $(VENV)/.wheel-release
SOURCES := $(shell find rust/*/src rust/*/Cargo.toml python Cargo.toml Cargo.lock pyproject.toml README.md LICENSE NOTICE THIRD-PARTY-LICENSES.txt \
                   -type f ! -name '*.pyc' ! -name '*.so')

PATH_OF_THE_SHELL := $(PATH)
export PATH := $(VENV)/bin:$(PATH)
export PYO3_PYTHON := $(VENV)/bin/python
unexport VIRTUAL_ENV CONDA_PREFIX PYTHONPATH

.PHONY: demo demo-cluster test lint bench wheel wheels soak soak-console soak-spark site

demo: $(QUICK)
	@# With the shell's own PATH, so that the commands which it prints at its end run there.
	PATH="$(PATH_OF_THE_SHELL)" .venv/bin/rocketpy demo .demo

# The same flights through two masters with a slave each, one of which is killed for good in the middle.
demo-cluster: $(QUICK)
	rm -rf .demo-cluster
	.venv/bin/rocketpy demo .demo-cluster --cluster

# The benches have no tests; without them criterion is not built.
TESTED := --workspace --exclude rocketpy-benches --locked

# Seed of all random kills and faults of both test runs. Soak runs draw theirs.
ROCKETPY_TEST_SEED ?= 20
test: export ROCKETPY_TEST_SEED := $(ROCKETPY_TEST_SEED)

# Everything is built once. Both test runs load two cores, so the second starts after the first, also when that failed.
test: $(QUICK)
	@echo "seeds of kill tests: ROCKETPY_TEST_SEED=$(ROCKETPY_TEST_SEED)"
	tools/stage "test build" cargo nextest run $(TESTED) --no-run
	code=0; \
	tools/stage "rust tests" cargo nextest run $(TESTED) --profile ci || code=$$?; \
	tools/stage pytest python -m pytest -n 3 --dist loadfile --junitxml target/tests/pytest.xml || code=$$?; \
	exit $$code

# The memory that hostile peers make a server hold, and that of clients and a server over 10 million messages. Then every planted bug,
# the tests that the gate omits, and a pair with its clients for ENDURANCE minutes. Then the proof of durability (docs/durability.md), without end or for N turns: each fuzz target
# for FUZZ seconds, simulated seeds, kills, power cuts, members that are killed.
FUZZ ?= 60
ENDURANCE ?= 120
soak: system-soak $(QUICK)
	cargo build --release --locked -p rocketpy-proof
	cargo test --locked -p rocketpy-server --test it -- --ignored hostile --nocapture
	ROCKETPY_TEST_HANDSHAKES=10000 cargo test --locked -p rocketpy-remoting --test it half_open
	python benches/macro/memory.py
	target/release/rocketpy-proof planted
	pytest -n 2 --dist loadfile -m soak --ignore tests/spark
	python benches/macro/endurance.py --minutes $(ENDURANCE) --json target/endurance.json
	turn=0; while [ -z "$(N)" ] || [ $$turn -lt "$(N)" ]; do \
	    turn=$$((turn + 1)); tools/fuzz $(FUZZ) && target/release/rocketpy-proof soak 1 || exit 1; \
	done

# N kills of drivers, workers and brokers, under each format of the archive, the sink and streams; `-m ''` is for tests that the gate omits.
soak-spark: system-soak-spark $(QUICK)
	SPARK_KILLS=$(or $(N),1000) pytest -n 1 -s -m '' tests/spark/test_archive.py tests/spark/test_archive_kills.py tests/spark/test_sink_kills.py tests/spark/test_stream.py

# The console on a cluster of Apache's, with 5,000 topics and 2,000 groups, with alerts to receivers that fail, and what it costs.
soak-console: system-soak $(QUICK)
	pytest -m soak tests/interop/test_console.py tests/console
	pytest tests/console/test_alert_sinks.py tests/console/test_alert_restart.py
	python benches/macro/console.py

# What the machine lacks for them.
system-%:
	tools/system $*

lint: $(QUICK)
	tools/stage lint tools/lint

site: $(QUICK)
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet
	@echo target/site/index.html

bench: $(RELEASED)
	cargo bench --locked -p rocketpy-benches
	python benches/macro/figures.py

wheel: $(RELEASED)
	@ls -l target/wheels

# Wheel for older systems and sdist of a release in target/dist, each checked; builds twice from scratch.
wheels:
	tools/wheels

$(PACKAGES): tools/environment requirements/constraints.txt
	tools/stage environment tools/environment $(VENV)
	touch $@

$(QUICK): $(PACKAGES) $(SOURCES)
	rm -rf target/wheels-dev $(RELEASED)
	tools/stage wheel maturin build --profile dev --locked --out target/wheels-dev
	python -m pip install --quiet --force-reinstall --no-deps target/wheels-dev/*.whl
	touch $@

$(RELEASED): $(PACKAGES) $(SOURCES)
	rm -rf target/wheels $(QUICK)
	maturin build --release --locked --out target/wheels
	python -m pip install --quiet --force-reinstall --no-deps target/wheels/*.whl
	touch $@
