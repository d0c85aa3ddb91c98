import subprocess
import sys

import pytest

from rocketpy import errors
from rocketpy.cli import main
from rocketpy.commandline.exits import HINTS, CommandError, ExitCode, code_of, reported


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidArgumentError("x"), ExitCode.USAGE),
        (errors.ConfigError("x"), ExitCode.USAGE),
        (errors.TopicNotFoundError("x"), ExitCode.NOT_FOUND),
        (errors.RefusedError("x", code=17), ExitCode.NOT_FOUND),
        (errors.GroupNotFoundError("x", code=26), ExitCode.NOT_FOUND),
        (errors.NotAStoreError("x"), ExitCode.NOT_FOUND),
        (errors.RefusedError("x", code=16), ExitCode.REFUSED),
        (errors.RefusedError("x", code=29), ExitCode.USAGE),
        (errors.NotSupportedError("x"), ExitCode.REFUSED),
        (errors.DiskFullError("x"), ExitCode.REFUSED),
        (errors.AssertionFailedError("x"), ExitCode.DEFECT),
        (errors.ConnectionFailedError("x"), ExitCode.UNAVAILABLE),
        (errors.ConnectionLostError("x"), ExitCode.UNAVAILABLE),
        (errors.BrokerBusyError("x", code=2), ExitCode.UNAVAILABLE),
        (errors.RequestTimeoutError("x"), ExitCode.UNAVAILABLE),
        (errors.RequestTimeoutError("x", may_have_been_applied=True), ExitCode.UNCERTAIN),
        (errors.PortInUseError("x"), ExitCode.CONFLICT),
        (errors.StoreLockedError("x"), ExitCode.CONFLICT),
        (errors.GroupConflictError("x"), ExitCode.CONFLICT),
        (errors.DamagedDataError("x"), ExitCode.DAMAGED),
        (errors.RocketPyError("x"), ExitCode.FAILURE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_every_kind_of_error_has_its_exit_code(error: errors.RocketPyError, code: ExitCode):
    assert code_of(error) is code


def test_an_error_without_a_hint_gets_the_one_of_its_code(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end, reported():
        raise CommandError("no such thing", ExitCode.NOT_FOUND)
    assert end.value.code == 3
    assert capsys.readouterr().err == f"error: no such thing\nhint: {HINTS[ExitCode.NOT_FOUND]}\n"


def test_an_error_keeps_its_own_hint(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit), reported():
        raise errors.TopicNotFoundError("no route for topic: orders", hint="create it")
    assert capsys.readouterr().err.splitlines()[-1] == "hint: create it"


def test_ctrl_c_has_its_exit_code():
    with pytest.raises(SystemExit) as end, reported():
        raise KeyboardInterrupt
    assert end.value.code == 130


@pytest.mark.parametrize("module", ["rocketpy.cli", "rocketpy.cli.flags", "rocketpy.cli.app", "rocketpy.cli.serve"])
def test_ctrl_c_while_a_module_is_imported_is_silent(module: str):
    program = f"""
import runpy, sys

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, CtrlC())
sys.argv = ["rocketpy", {"server" if module.endswith("serve") else "topic"!r}]
runpy.run_module("rocketpy", run_name="__main__")
"""
    ended = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, timeout=240)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


def test_every_exit_code_of_a_failure_is_documented(request: pytest.FixtureRequest):
    text = (request.config.rootpath / "docs" / "operations.md").read_text()
    documented = {
        int(line.split("|")[1])
        for line in text.split("## Exit codes")[1].splitlines()
        if line[:3].strip("| ").isdigit()
    }
    assert documented == {int(code) for code in ExitCode}


@pytest.mark.parametrize(
    ("line", "option"),
    [
        (["produce", "t", "--delay", "nan"], "--delay"),
        (["produce", "t", "--delay", "inf"], "--delay"),
        (["dlq", "resend", "g", "--rate", "nan"], "--rate"),
    ],
    ids=str,
)
def test_a_number_that_is_not_finite_names_its_option(line: list[str], option: str, capsys: pytest.CaptureFixture[str]):
    assert main(line) == 2
    first, _ = capsys.readouterr().err.splitlines()
    assert option in first


@pytest.mark.parametrize(
    ("address", "hint"), [("127.0.0.1:9876", "hint: 127.0.0.1:9876 is the default address"), ("a:9876", "hint: other")]
)
def test_without_a_server_at_the_default_address_the_hint_says_how_to_start_one(capsys, address, hint):
    with pytest.raises(SystemExit) as ended, reported():
        raise errors.ConnectionFailedError(f"cannot connect to {address}: refused", hint="other")
    assert ended.value.code == ExitCode.UNAVAILABLE
    assert capsys.readouterr().err.splitlines()[1].startswith(hint)
