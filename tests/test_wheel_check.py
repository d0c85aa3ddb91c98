"""`tools/wheel_check.py` refuses wheels that are too large."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("size", "code"), [(12_000_000, 0), (12_000_001, 1)])
def test_wheel_above_the_limit_fails_by_name(pytestconfig: pytest.Config, tmp_path: Path, size: int, code: int):
    wheel = tmp_path / "rocketpy_mq-0.1.0-cp311-abi3-musllinux_1_2_aarch64.whl"
    with wheel.open("wb") as file:
        file.truncate(size)
    line = [sys.executable, pytestconfig.rootpath / "tools/wheel_check.py", wheel]
    ran = subprocess.run(line, capture_output=True, text=True)
    assert ran.returncode == code, ran
    text = "has 12,000,001 bytes, maximum: 12,000,000" if code else "12.0 MB, built, not run"
    assert f"{wheel.name}" in ran.stdout + ran.stderr
    assert text in ran.stdout + ran.stderr
