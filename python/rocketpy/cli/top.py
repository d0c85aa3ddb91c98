"""`rocketpy top`."""

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from rocketpy import Admin, ClusterStatus, RocketPyError
from rocketpy.base.instant import datetime_of, now_ms
from rocketpy.base.text import printable
from rocketpy.cli.options import FIGURES, LOCAL, NameServer
from rocketpy.cli.status import screen
from rocketpy.console import output
from rocketpy.console.exits import SIGNALS, CommandError, ExitCode

OTHER_LINES = 13
"""Lines of the screen in addition to brokers and groups: titles, borders, headers, the last line."""
END_SECONDS = 5.0
"""Timeout for the last request at the end."""


def top(
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.2, max=3600, help="Pause between two requests.")
    ] = 2.0,
    name_server: NameServer = LOCAL,
) -> None:
    """Show the screen of `rocketpy status` live, until q or Ctrl-C."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        hint = "`rocketpy status` prints the same screen once, also to a file or a pipe; --json prints JSON"
        raise CommandError("top needs a terminal for input and output", ExitCode.USAGE, hint)
    with Admin(name_servers=name_server, **FIGURES) as admin:
        with output.STDERR.status("waiting for the brokers"):
            first = admin.status()
        with Watch(admin, first, interval) as watch, key_presses(watch.notice):
            show_live(watch, name_server)


class Watch:
    """Newest status of a cluster, requested by a thread."""

    def __init__(self, admin: Admin, first: ClusterStatus, interval: float) -> None:
        self._admin, self._interval = admin, interval
        self._ended = threading.Event()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._thread = threading.Thread(target=self._run, name="rocketpy-top", daemon=True)
        self.found, self.at_ms, self.error = first, now_ms(), ""

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._admin.close()  # a request that waits for a broker ends
        self._thread.join(END_SECONDS)
        os.close(self._writer)
        os.close(self._reader)

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            try:
                self.found, self.at_ms, self.error = self._admin.status(), now_ms(), ""
            except RocketPyError as error:
                self.error = str(error)
            except Exception as error:
                self.error = f"{type(error).__name__}: {error}"
            if not self._ended.is_set():
                self.notice()

    def notice(self) -> None:
        """Has the screen drawn again."""
        with suppress(BlockingIOError):  # it is full of notices
            os.write(self._writer, b"!")

    def key(self) -> str | None:
        """Waits for a key press or a notice; returns the key."""
        ready, _, _ = select.select([sys.stdin, self._reader], [], [])
        if self._reader in ready:
            os.read(self._reader, 4096)
        # An empty text: the terminal is gone.
        return os.read(sys.stdin.fileno(), 1).decode(errors="replace") if sys.stdin in ready else None


def show_live(watch: Watch, name_server: str) -> None:
    """Draws the newest status until a key ends it."""
    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        key = None
        while key not in ("q", "Q", ""):
            live.update(drawn(watch, name_server, console.size.height), refresh=True)
            try:
                key = watch.key()
            except KeyboardInterrupt:
                return


def drawn(watch: Watch, name_server: str, height: int) -> Group:
    """Returns the whole screen for a terminal of this height."""
    found = watch.found
    most_groups = max(1, height - OTHER_LINES - len(found.brokers))
    last = Text(f"{output.cell(datetime_of(watch.at_ms))}; q ends", style="dim")
    failed = [Text(printable(f"no newer status: {watch.error}"), style="red")] if watch.error else []
    return Group(*failed, *screen(found, name_server, most_groups), last)


@contextmanager
def key_presses(on_resize: Callable[[], None]) -> Generator[None]:
    """Delivers keys without Enter, and calls a function when the terminal has a new size. Restores the terminal.

    Args:
        on_resize: Function to call.
    """

    def leave(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(int(SIGNALS[signal.Signals(number)]))

    mode = termios.tcgetattr(sys.stdin)
    handlers = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda _number, _frame: on_resize())
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, mode)
        for number, handler in handlers.items():
            signal.signal(number, handler)
