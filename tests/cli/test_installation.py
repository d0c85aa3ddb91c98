"""PyPI's `rocketpy`, a rocket trajectory simulator, together with RocketPy: each order of installation names both."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import rocketpy_mq

PACKAGES = ("rocketpy", "rocketpy_mq", "pyspark_rocketpy")
SIMULATOR = {
    "rocketpy/__init__.py": "from .rocket import Rocket\n",
    "rocketpy/rocket/__init__.py": "class Rocket: pass\n",
    "rocketpy/tools.py": "",
}
"""Files as in the wheel of the simulator: its package has no `base`, `cli` or `spark`."""
IMPORT_TESTING = "import rocketpy.base.text"
SPARK_SCHEMA = "from pyspark_rocketpy import DefaultSource as Source; Source().schema()"
SPARK_STREAM = (
    "import os\nfrom pyspark_rocketpy import DefaultSource as Source\n"
    "try: Source().streamReader(None).initialOffset()\nfinally: assert os.environ['SPARK_HIDE_TRACEBACK'] == '1'"
)


def write_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> Path:
    """Writes a wheel of text files; `entry_points.txt` of its metadata is one of them."""
    tag, info = "py3-none-any", f"{name}-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    path = folder / f"{name}-{version}-{tag}.whl"
    record = [f"{info}/RECORD,,"]
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            content = text.encode()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{file},sha256={digest},{len(content)}")
            wheel.writestr(file, content)
        wheel.writestr(f"{info}/RECORD", "\n".join(record) + "\n")
    return path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> tuple[Path, Path]:
    """The tested Python files of RocketPy as a wheel without the extension module, and a simulator."""
    folder = tmp_path_factory.mktemp("wheels")
    root = Path(rocketpy_mq.__file__).parents[1]
    files = {str(path.relative_to(root)): path.read_text() for name in PACKAGES for path in (root / name).rglob("*.py")}
    scripts = tomllib.loads((pytestconfig.rootpath / "pyproject.toml").read_text())["project"]["scripts"]
    lines = [f"{name} = {target}" for name, target in scripts.items()]
    files["rocketpy_mq-0.1.0.dist-info/entry_points.txt"] = "\n".join(["[console_scripts]", *lines, ""])
    ours = write_wheel(folder, "rocketpy_mq", "0.1.0", files)
    return ours, write_wheel(folder, "rocketpy", "1.9.0", SIMULATOR)


class Environment:
    """A virtual environment without packages."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self.bin = folder / "bin"

    def pip(self, *arguments: str | Path) -> None:
        line = [sys.executable, "-m", "pip", "--python", self.bin / "python", "--disable-pip-version-check"]
        ran = subprocess.run([*line, *arguments], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr

    def install(self, *wheels: Path) -> None:
        for wheel in wheels:
            self.pip("install", "--quiet", "--no-index", "--no-deps", "--no-compile", wheel)

    def run(self, *line: str, code: int) -> subprocess.CompletedProcess[str]:
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [self.bin / line[0], *line[1:]]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=self.bin, env=variables)
        assert ran.returncode == code, ran
        return ran

    def fails(self, *line: str) -> subprocess.CompletedProcess[str]:
        return self.run(*line, code=1)

    def import_error(self, code: str) -> str:
        error = self.fails("python", "-c", code).stderr.splitlines()[-1]
        assert error.startswith("ImportError: "), error
        return error


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "venv")


def assert_names_both(text: str) -> None:
    assert "rocketpy-mq (this message broker) and rocketpy 1.9.0 (a rocket trajectory simulator)" in text
    for command in ("uninstall --yes rocketpy rocketpy-mq", "install rocketpy-mq", "install rocketpy`"):
        assert f"python -m pip {command}" in text


def assert_entries_name_both(environment: Environment) -> None:
    """Every entry that starts outside the package, or below its `__init__`."""
    assert_names_both(environment.fails("python", "-m", "rocketpy", "--version").stderr)
    for line in (("rocketpy", "--version"), ("rocketpy", "server", "data"), ("rocketpy", "doctor")):
        error, hint = environment.fails(*line).stderr.splitlines()
        assert error.startswith("error: ")
        assert hint.startswith("hint: ")
        assert_names_both(error + hint)
    (finding,) = json.loads(environment.fails("rocketpy", "doctor", "--json").stdout)
    assert (finding["check"], finding["status"]) == ("name", "failed")
    assert_names_both(finding["found"] + finding["hint"])
    for code in (IMPORT_TESTING, "import rocketpy.spark", SPARK_SCHEMA, SPARK_STREAM):
        assert_names_both(environment.import_error(code))


def test_simulator_installed_first_is_named_by_every_import(wheels, environment: Environment):
    ours, simulator = wheels
    environment.install(simulator, ours)
    assert_names_both(environment.import_error("import rocketpy"))
    assert_entries_name_both(environment)
    environment.pip("uninstall", "--quiet", "--yes", "rocketpy", "rocketpy-mq")  # as the hint says
    environment.install(ours)
    environment.run("python", "-c", "import rocketpy", code=0)


def test_simulator_installed_last_is_named_by_entries_outside_its_init(wheels, environment: Environment):
    ours, simulator = wheels
    environment.install(ours, simulator)
    environment.run("python", "-c", "from rocketpy import Rocket", code=0)
    assert_entries_name_both(environment)
    environment.pip("uninstall", "--quiet", "--yes", "rocketpy")
    error, hint = environment.fails("rocketpy", "--version").stderr.splitlines()
    assert "rocketpy/__init__.py of rocketpy-mq is missing" in error
    assert "pip install --force-reinstall --no-deps rocketpy-mq" in hint


def test_simulator_in_another_folder_is_named_by_the_command(wheels, environment: Environment, tmp_path: Path):
    ours, _ = wheels
    environment.install(ours)
    for file, text in SIMULATOR.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import rocketpy_mq; sys.exit(rocketpy_mq.main())"
    error, hint = environment.fails("python", "-c", code).stderr.splitlines()
    assert f"`import rocketpy` finds {tmp_path}/rocketpy/__init__.py" in error
    assert "PYTHONPATH" in hint
