"""The wheel carries the licence texts of every component that it links, and the notice that it is independent."""

import json
import re
from importlib.metadata import Distribution, distribution
from pathlib import Path
from types import ModuleType

import pytest

from tool_modules import load_tool

ROOT = Path(__file__).parents[1]
TEXTS = "THIRD-PARTY-LICENSES.txt"


@pytest.fixture(scope="module")
def wheel() -> Distribution:
    return distribution("rocketpy-mq")


@pytest.fixture
def licences() -> ModuleType:
    return load_tool("licences")


def read(wheel: Distribution, name: str) -> str:
    found = [file for file in wheel.files or [] if file.name == name and ".dist-info" in str(file)]
    assert found, f"the wheel has no {name}"
    return found[0].read_text()


@pytest.mark.parametrize("name", ["LICENSE", "NOTICE", TEXTS])
def test_the_wheel_contains_the_file(wheel: Distribution, name: str) -> None:
    assert read(wheel, name) == (ROOT / name).read_text()


def test_the_notice_says_that_the_project_is_independent(wheel: Distribution) -> None:
    notice = read(wheel, "NOTICE")
    assert "not affiliated with, sponsored by or endorsed by the Apache Software Foundation" in notice
    assert TEXTS in notice


def test_every_component_of_the_sbom_has_its_texts(wheel: Distribution) -> None:
    texts = read(wheel, TEXTS)
    boms = [file for file in wheel.files or [] if file.name.endswith(".cyclonedx.json")]
    assert boms, "maturin puts an SBOM into the wheel"
    for bom in boms:
        for component in json.loads(bom.read_text())["components"]:
            name = f"{component['name']} {component['version']}"
            if component["name"].startswith("rocketpy-"):
                continue  # under LICENSE
            assert f"\n{name}: " in texts, name
            assert re.search(rf"^=+\n(?:.*, )?{re.escape(name)}[,( \n]", texts, re.MULTILINE), f"no text of {name}"


def test_a_component_without_texts_is_reported(
    licences: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["licences.py", "--check"])
    assert licences.main() == 0
    stale = tmp_path / TEXTS
    stale.write_text(licences.FILE.read_text().replace("\nbytes ", "\nbits "))
    monkeypatch.setattr(licences, "FILE", stale)
    assert licences.main() == 1
    assert capsys.readouterr().err == f"error: {TEXTS} is out of date\nhint: run `tools/licences.py`\n"
