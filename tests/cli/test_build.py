"""What the installed extension module is built with."""

from pathlib import Path

from rocketpy import _rocketpy


def test_wheel_has_neither_planted_bugs_nor_failpoints():
    assert not _rocketpy.__has_test_faults__
    module = Path(_rocketpy.__file__).read_bytes()
    for variable in (b"ROCKETPY_TEST_PLANTED", b"ROCKETPY_TEST_KILL_AT", b"ROCKETPY_TEST_HANG_AFTER"):
        assert variable not in module, variable


def test_version_names_the_profile(command):
    assert _rocketpy.__profile__ in ("dev", "release")
    assert command("--version").stdout.rstrip().endswith(f"({_rocketpy.__profile__} build)")
