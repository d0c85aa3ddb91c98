"""Which Python the workers of Spark get."""

import os
import sys

import pyspark
import pytest

from rocketpy.spark import WorkerPythonError, prepare, session


class Context:
    """What `prepare` asks of a session that runs."""

    def __init__(self, python: object) -> None:
        self.pythonExec = str(python)


@pytest.fixture(autouse=True)
def any_java(monkeypatch):
    monkeypatch.setattr(session, "prepare_java", lambda: "java")


@pytest.fixture
def running(monkeypatch):
    """Sets the session of this process."""
    return lambda context: monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", context)


def test_workers_of_a_later_session_run_this_python_unless_told_otherwise(monkeypatch, running):
    running(None)
    monkeypatch.setenv("PYSPARK_PYTHON", "/somewhere/python3")
    prepare()
    assert os.environ["PYSPARK_PYTHON"] == "/somewhere/python3"
    monkeypatch.delenv("PYSPARK_PYTHON")
    prepare()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_a_session_whose_workers_have_no_rocketpy_is_named(running, tmp_path):
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    running(Context(other))
    with pytest.raises(WorkerPythonError, match=f"a Python without RocketPy: {other}") as refused:
        prepare()
    assert f"PYSPARK_PYTHON={sys.executable}" in refused.value.hint
    running(Context(sys.executable))
    prepare()
