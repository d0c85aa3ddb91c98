# Everything here sets itself up in .venv (Python) and target (Rust); a second run finds the stamps and goes straight to work.
# Needs: Rust (cargo), Python 3.11+ (PYTHON=... chooses one) and, for Spark, a JDK 17+.

VENV := $(CURDIR)/.venv
PACKAGES := $(VENV)/.packages
INSTALLED := $(VENV)/.wheel
SOURCES := $(shell find rust/*/src rust/*/Cargo.toml python Cargo.toml Cargo.lock pyproject.toml README.md LICENSE NOTICE THIRD-PARTY-LICENSES.txt \
                   -type f ! -name '*.pyc' ! -name '*.so')

PATH_OF_THE_SHELL := $(PATH)
export PATH := $(VENV)/bin:$(PATH)
export PYO3_PYTHON := $(VENV)/bin/python
unexport VIRTUAL_ENV CONDA_PREFIX PYTHONPATH

.PHONY: demo demo-cluster test lint bench wheel soak soak-spark site

demo: $(INSTALLED)
	@# With the shell's own PATH, so that the commands which it prints at its end run there.
	PATH="$(PATH_OF_THE_SHELL)" .venv/bin/rocketpy demo .demo

# The same flights through two masters with a slave each, one of which is killed for good in the middle.
demo-cluster: $(INSTALLED)
	rm -rf .demo-cluster
	.venv/bin/rocketpy demo .demo-cluster --cluster

test: $(INSTALLED)
	cargo test --workspace --locked
	cargo test --locked -p rocketpy-proof --features planted-bugs planted
	pytest -n 2 --dist loadfile # a module's tests share fixtures; most of their time they wait

# The memory that hostile peers make a server hold, and that of clients and a server over 10 million messages. Then the proof of
# durability (docs/durability.md), without end or for N turns: each fuzz target for FUZZ seconds, simulated seeds, kills, power cuts,
# members that are killed.
FUZZ ?= 60
soak: $(INSTALLED)
	cargo build --release --locked -p rocketpy-proof
	cargo test --locked -p rocketpy-server --test it -- --ignored hostile --nocapture
	python benches/macro/memory.py
	turn=0; while [ -z "$(N)" ] || [ $$turn -lt "$(N)" ]; do \
	    turn=$$((turn + 1)); tools/fuzz $(FUZZ) && target/release/rocketpy-proof soak 1 || exit 1; \
	done

# N kills of drivers, workers and brokers, under each format of the archive, the sink and streams.
soak-spark: $(INSTALLED)
	SPARK_KILLS=$(or $(N),1000) pytest -n 1 -s tests/spark/test_archive_kills.py tests/spark/test_sink_kills.py tests/spark/test_stream.py

lint: $(INSTALLED)
	tools/lint

site: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet
	@echo target/site/index.html

bench: $(INSTALLED)
	cargo bench --locked -p rocketpy-benches
	python benches/macro/figures.py

wheel: $(INSTALLED)
	@ls -l target/wheels

$(PACKAGES): tools/environment requirements/constraints.txt
	tools/environment $(VENV)
	touch $@

$(INSTALLED): $(PACKAGES) $(SOURCES)
	rm -rf target/wheels
	maturin build --release --locked --out target/wheels
	python -m pip install --quiet --force-reinstall --no-deps target/wheels/*.whl
	touch $@
