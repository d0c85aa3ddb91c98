"""What the README shows is run: its commands in a shell, its Python as a program, against its own server."""

import html
import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rocketpy.cli import app
from rocketpy.spark.java import bundled_java, system_java


def blocks(root: Path, language: str) -> list[str]:
    text = (root / "README.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The commands of the tested environment come first; nothing else of the outside matters."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONWARNINGS": "error",
    }


def run(program: list[str], folder: Path, environment: dict[str, str]) -> str:
    result = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, timeout=250)
    assert result.returncode == 0, f"{program}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def test_the_python_of_the_readme_runs(pytestconfig: pytest.Config, tmp_path: Path, environment):
    first = blocks(pytestconfig.rootpath, "python")[0]
    lines = run([sys.executable, "-c", first], tmp_path, environment).splitlines()
    assert len(lines) == 1001
    assert sum("b'UA1545 EWR-IAH'" in line for line in lines) == 1


@pytest.mark.timeout(300)
def test_the_shell_and_the_spark_of_the_readme_run(pytestconfig: pytest.Config, tmp_path: Path, environment):
    ready = tmp_path / "ready.json"
    (console,) = blocks(pytestconfig.rootpath, "console")
    commands = re.findall(r"^\$ (.*)$", console, re.MULTILINE)
    assert commands[0] == "rocketpy server data &"
    with (tmp_path / "server.log").open("wb") as log:
        line = ["rocketpy", "server", "data", "--ready-file", str(ready)]
        free_ports = {"ROCKETPY_LISTEN_PORT": "0", "ROCKETPY_NAME_SERVER_PORT": "0"}
        server = subprocess.Popen(line, cwd=tmp_path, env={**environment, **free_ports}, stderr=log, stdout=log)
    try:
        while not ready.exists():
            assert server.poll() is None, (tmp_path / "server.log").read_text()
            pause()
        environment["NAMESRV_ADDR"] = json.loads(ready.read_text())["name_server"]
        printed = run(["bash", "-euo", "pipefail", "-c", "\n".join(commands[1:])], tmp_path, environment)
        for word in ("one", "two", "three", "orders"):
            assert word in printed
        if (system_java() or bundled_java()) is None:
            pytest.skip("no Java 17 or newer")
        spark = blocks(pytestconfig.rootpath, "python")[1]
        # As in an IDE that did not activate the environment: another python3 comes first.
        inactive = {**environment, "PATH": os.defpath, "PYTHONWARNINGS": "default"}
        table = run([sys.executable, "-c", spark], tmp_path, inactive)
        assert re.search(r"paid\W+3\b", table), table
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(90) == 0


def test_the_environment_that_the_readme_activates_has_the_command(pytestconfig: pytest.Config, tmp_path: Path):
    (line,) = re.findall(r"^\. \.venv/bin/activate", (pytestconfig.rootpath / "README.md").read_text(), re.MULTILINE)
    script = f"{line.replace('.venv', sys.prefix)} && rocketpy --version && python -c 'import rocketpy'"
    printed = run(["sh", "-ec", script], tmp_path, {"PATH": os.defpath})
    assert printed.startswith("rocketpy ")


def test_the_pip_line_of_the_first_hour_takes_the_wheel_with_its_extras(
    pytestconfig: pytest.Config, tmp_path: Path, environment
):
    page = pytestconfig.rootpath / "docs/first-hour.md"
    (line,) = re.findall(r"^pip install .*\.whl.*$", page.read_text(), re.MULTILINE)
    wheels = tmp_path / "target" / "wheels"
    wheels.mkdir(parents=True)
    with zipfile.ZipFile(wheels / "rocketpy_mq-0.0.1-py3-none-any.whl", "w") as wheel:
        extras = "".join(f"Provides-Extra: {extra}\n" for extra in ("arrow", "pandas"))
        facts = {
            "METADATA": f"Metadata-Version: 2.1\nName: rocketpy-mq\nVersion: 0.0.1\n{extras}",
            "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "RECORD": "",
        }
        for name, text in facts.items():
            wheel.writestr(f"rocketpy_mq-0.0.1.dist-info/{name}", text)
    dry = {
        **environment,
        "PIP_DRY_RUN": "1",
        "PIP_NO_INDEX": "1",
        "PIP_IGNORE_INSTALLED": "1",
        "PYTHONWARNINGS": "default",
    }
    assert "Would install rocketpy-mq-0.0.1" in run(["bash", "-ec", line], tmp_path, dry)


def pause() -> None:
    """A moment, for a file to appear."""
    import threading

    threading.Event().wait(0.01)


def test_every_command_that_the_docs_show_exists(pytestconfig: pytest.Config, capsys):
    documents = [pytestconfig.rootpath / "README.md", *(pytestconfig.rootpath / "docs").rglob("*.md")]
    shown = {
        tuple(words)
        for document in documents
        for words in re.findall(r"rocketpy (topic|group|store|bench|config) (\w+)", document.read_text())
    }
    assert ("topic", "describe") in shown
    for part, verb in shown:
        assert app.run([part, verb, "--help"]) == 0
        assert f"rocketpy {part} {verb}" in capsys.readouterr().out


def test_the_readme_is_short(pytestconfig: pytest.Config):
    assert len((pytestconfig.rootpath / "README.md").read_text().split()) <= 900


@pytest.mark.parametrize(
    ("heading", "page"), [("Why trust it", "docs/durability.md"), ("Why switch", "docs/performance.md")]
)
def test_figures_of_the_readme_come_from_the_pages_that_measure(pytestconfig: pytest.Config, heading: str, page: str):
    text = (pytestconfig.rootpath / "README.md").read_text()
    section = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    figures = re.findall(r"\d[\d,.]*\d", "".join(line for line in section.splitlines() if line.startswith("| ")))
    assert len(figures) >= 6
    measured = set(re.findall(r"\d[\d,.]*\d", (pytestconfig.rootpath / page).read_text()))
    assert [figure for figure in figures if figure not in measured] == []


def test_the_picture_of_the_terminal_shows_the_commands_of_the_readme(pytestconfig: pytest.Config):
    """`tools/picture.py` draws it anew."""
    (console,) = blocks(pytestconfig.rootpath, "console")
    picture = html.unescape((pytestconfig.rootpath / "docs/terminal.svg").read_text()).replace("\xa0", " ")
    for line in console.splitlines():
        assert line in picture
    assert "no problems found" in picture
