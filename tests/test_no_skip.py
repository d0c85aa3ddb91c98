import os
import subprocess
import sys
from pathlib import Path

import pytest

SKIPS = {
    "in_a_test": "import pytest\ndef test_it():\n    pytest.skip('no moon')\n",
    "in_a_fixture": (
        "import pytest\n@pytest.fixture\ndef moon():\n    pytest.skip('no moon')\ndef test_it(moon):\n    pass\n"
    ),
    "by_a_mark": "import pytest\n@pytest.mark.skipif(True, reason='no moon')\ndef test_it():\n    pass\n",
    "of_a_module": "import pytest\npytest.importorskip('no_moon', reason='no moon')\ndef test_it():\n    pass\n",
    "of_a_doctest": "def moon():\n    '''\n    >>> no.moon  # doctest: +SKIP\n    '''\n",
}


@pytest.mark.parametrize("source", SKIPS.values(), ids=SKIPS)
@pytest.mark.parametrize("is_ci", [True, False], ids=["in_ci", "elsewhere"])
def test_a_skip_fails_in_ci_and_is_a_skip_elsewhere(tmp_path: Path, source: str, is_ci: bool):
    (tmp_path / "test_moon.py").write_text(source)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | (
        {"CI": "true"} if is_ci else {}
    )
    environment["PYTHONPATH"] = str(Path(__file__).parent)
    command = [sys.executable, "-m", "pytest", "-p", "no_skip", "--doctest-modules", "-rs", "--basetemp", "base", "."]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    if is_ci:
        assert ended.returncode != 0, ended.stdout
        assert "which CI does not allow" in ended.stdout
        assert "skipped in" not in ended.stdout
    else:
        assert ended.returncode in (0, 5), ended.stdout
        assert " skipped in " in ended.stdout
