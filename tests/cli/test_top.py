"""`rocketpy top` on a terminal."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rocketpy import Admin, ClusterStatus
from rocketpy.cli.top import Watch
from waiting import wait_until

END_SECONDS = 60
RARELY = ["--interval", "3600"]
OFTEN = ["--interval", "0.2"]


class Terminal:
    """A terminal with a program in it, whose output is kept."""

    def __init__(self, command: Sequence[str], kind: str = "xterm") -> None:
        self.ours, theirs = pty.openpty()
        self.resize(24, 80)
        self.before = termios.tcgetattr(self.ours)
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            ("setsid", "--ctty", *command),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": kind},
        )
        os.close(theirs)
        os.set_blocking(self.ours, False)
        self.came = ""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def shows(self, pattern: str) -> bool:
        with suppress(OSError):  # nothing new, or the program has ended
            self.came += os.read(self.ours, 65536).decode(errors="replace")
        return re.search(pattern, self.came) is not None

    def wait_for_width(self, columns: int) -> None:
        """Waits until the newest screen is so wide; the program fills its lines."""

        def is_so_wide() -> bool:
            newest = self.came.rpartition("\x1b[H")[2] if self.shows("q ends") else ""
            lines = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", newest).splitlines()
            return max((len(line) for line in lines), default=0) == columns

        wait_until(is_so_wide, f"{columns} columns", process=self.process, seconds=60)

    def wait_for(self, pattern: str) -> None:
        wait_until(lambda: self.shows(pattern), f"the screen shows {pattern}", process=self.process)


@contextmanager
def top(executable: list[str], address: str, *arguments: str, shows: str = "q ends") -> Iterator[Terminal]:
    terminal = Terminal([*executable, "--timeout", "60", "top", "--name-server", address, *arguments])
    try:
        terminal.wait_for(shows)
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.ours)


def check_end(terminal: Terminal, code: int) -> None:
    """Checks the exit code, and that the terminal is as it was."""
    wait_until(lambda: terminal.shows(re.escape("\x1b[?1049l")), "the screen of before is back")
    assert terminal.process.wait(END_SECONDS) == code
    assert termios.tcgetattr(terminal.ours) == terminal.before
    assert "Traceback" not in terminal.came


def test_top_follows_the_cluster_and_ends_with_q(rocketpy, server, executable: list[str], topic: str):
    with top(executable, server.name_server, *OFTEN) as terminal:
        count = int(re.search(r"(\d+) topics", terminal.came)[1])
        assert server.ready["broker"] in terminal.came
        rocketpy("topic", "create", f"{topic}-new")
        terminal.wait_for(rf"{count + 1} topics")
        terminal.type(b"q")
        check_end(terminal, 0)


def test_top_draws_again_when_the_terminal_is_resized_and_ends_with_ctrl_c(server, executable: list[str]):
    with top(executable, server.name_server, *RARELY) as terminal:
        terminal.type(b"x")  # another key ends nothing
        for columns in (40, 100):
            terminal.resize(30, columns)
            terminal.wait_for_width(columns)
        terminal.type(b"\x03")
        check_end(terminal, 0)


def test_a_terminated_top_restores_the_terminal(server, executable: list[str]):
    with top(executable, server.name_server, *RARELY) as terminal:
        terminal.process.send_signal(signal.SIGTERM)
        check_end(terminal, 143)


def test_top_ends_at_once_while_a_broker_hangs(start, executable: list[str], tmp_path: Path):
    names = start("namesrv", "--port", "0")
    address = names.ready["name_server"]
    broker = start("broker", str(tmp_path / "store"), "--port", "0", "--name-server", address)
    with top(executable, address, *OFTEN) as terminal:
        broker.process.send_signal(signal.SIGSTOP)
        try:
            terminal.came = ""
            terminal.resize(30, 90)
            terminal.wait_for("no newer status since 20")
            terminal.type(b"q")
            check_end(terminal, 0)  # a request waits for 60 s
            with top(executable, address, shows="waiting for the brokers at 127") as waiting:
                waiting.type(b"q")
                check_end(waiting, 0)
        finally:
            broker.process.send_signal(signal.SIGCONT)


def test_top_shows_that_no_broker_is_left_and_continues(start, executable: list[str], tmp_path: Path):
    names = start("namesrv", "--port", "0")
    address = names.ready["name_server"]
    broker = start("broker", str(tmp_path / "store"), "--port", "0", "--name-server", address)
    with top(executable, address, *OFTEN) as terminal:
        broker.stop()
        terminal.wait_for(f"no broker is registered at {address}")
        terminal.came = ""
        start("broker", str(tmp_path / "store"), "--port", "0", "--name-server", address)
        terminal.wait_for("1 broker")
        terminal.type(b"q")
        check_end(terminal, 0)


def test_top_and_status_without_a_broker_exit_as_other_commands(start, command, executable: list[str]):
    address = start("namesrv", "--port", "0").ready["name_server"]
    said = f"error: no broker is registered at {address}"
    for arguments in (["status"], ["status", "--json"]):
        refused = command(*arguments, name_server=address, code=3)
        assert (refused.stdout, refused.stderr.splitlines()[0]) == ("", said)
    with top(executable, address, shows=said) as terminal:
        check_end(terminal, 3)


def test_top_on_a_dumb_terminal_names_status(executable: list[str]):
    terminal = Terminal([*executable, "top"], "dumb")
    try:
        terminal.wait_for("`rocketpy status`")
        assert "error: terminal cannot draw a screen: TERM=dumb" in terminal.came
        assert terminal.process.wait(END_SECONDS) == 2
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.ours)


def test_top_without_a_terminal_names_status(rocketpy):
    error, hint = rocketpy("top", code=2).stderr.splitlines()
    assert error == "error: top needs a terminal for input and output"
    assert "`rocketpy status`" in hint


class Failing(Admin):
    """Raises an error that is none of RocketPy's."""

    def status(self) -> ClusterStatus:
        raise ValueError("no number")


def test_an_unexpected_error_is_shown_and_the_next_round_follows(server):
    with Failing(server.name_server) as admin, Watch(admin, ClusterStatus((), None, None, None, ()), 0.01) as watch:
        wait_until(lambda: watch.error == "ValueError: no number")
        watch.error = ""
        wait_until(lambda: watch.error)
