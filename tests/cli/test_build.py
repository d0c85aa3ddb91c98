"""What the installed extension module is built with."""

import re
from pathlib import Path

from rocketpy import _rocketpy


def test_wheel_has_neither_planted_bugs_nor_failpoints():
    assert not _rocketpy.__has_test_faults__
    module = Path(_rocketpy.__file__).read_bytes()
    for variable in (b"ROCKETPY_TEST_PLANTED", b"ROCKETPY_TEST_KILL_AT", b"ROCKETPY_TEST_HANG_AFTER"):
        assert variable not in module, variable


def test_version_names_commit_and_profile(command):
    assert _rocketpy.__profile__ in ("dev", "release")
    assert re.fullmatch("[0-9a-f]{12}|unknown", _rocketpy.__commit__)
    told = f"rocketpy {_rocketpy.__version__} (commit {_rocketpy.__commit__}, {_rocketpy.__profile__} build)\n"
    assert command("--version").stdout == told
