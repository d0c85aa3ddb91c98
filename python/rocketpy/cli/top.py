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
from rocketpy.cli.status import check_registered, screen
from rocketpy.commandline import output
from rocketpy.commandline.exits import SIGNALS, CommandError, ExitCode

OTHER_LINES = 13
"""Lines of the screen in addition to brokers and groups: titles, borders, headers, the last line."""
END_SECONDS = 5.0
"""Timeout for the last request at the end."""
ONCE = "`rocketpy status` prints the same screen once, also to a file or a pipe; --json prints JSON"
STALE_SECONDS = 3.0
"""Time beyond the interval after which the screen names its age."""


def top(
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.2, max=3600, help="Pause between two requests.")
    ] = 2.0,
    name_server: NameServer = LOCAL,
) -> None:
    """Show the screen of `rocketpy status` live, until q or Ctrl-C."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError("top needs a terminal for input and output", ExitCode.USAGE, ONCE)
    if Console().is_dumb_terminal:
        raise CommandError(f"terminal cannot draw a screen: TERM={os.environ['TERM']}", ExitCode.USAGE, ONCE)
    with (
        Admin(name_servers=name_server, **FIGURES) as admin,
        Watch(admin, None, interval) as watch,
        key_presses(watch.notice),
    ):
        show_live(watch, name_server)


class Watch:
    """Newest status of a cluster, requested by a thread."""

    def __init__(self, admin: Admin, first: ClusterStatus | None, interval: float) -> None:
        self._admin, self._interval = admin, interval
        self._ended = threading.Event()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._thread = threading.Thread(target=self._run, name="rocketpy-top", daemon=True)
        self.found, self.at_ms, self.error = first, now_ms(), ""
        self.failure: Exception | None = None
        """Error of the first request."""
        self._has_shown = False

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
        while True:
            try:
                self.found, self.at_ms, self.error = self._admin.status(), now_ms(), ""
            except Exception as error:
                self.error = str(error) if isinstance(error, RocketPyError) else f"{type(error).__name__}: {error}"
                if self.found is None:
                    self.failure = error
                    break
            finally:
                if not self._ended.is_set():
                    self.notice()
            if self._ended.wait(self._interval):
                return

    def status(self, name_server: str) -> ClusterStatus | None:
        """Returns the newest status; None before the first.

        Raises:
            CommandError: No broker was registered at the first request.
            Exception: The first request failed.
        """
        if self.failure is not None:
            raise self.failure
        if self.found is not None and not self._has_shown:
            check_registered(self.found, name_server)
            self._has_shown = True
        return self.found

    def staleness(self) -> str:
        """Returns the reason and the age of a status that is not the newest; an empty text for a new one."""
        if not self.error and now_ms() - self.at_ms < (self._interval + STALE_SECONDS) * 1000:
            return ""
        since = f"no newer status since {output.cell(datetime_of(self.at_ms))}"
        return f"{since}: {self.error}" if self.error else since

    def notice(self) -> None:
        """Has the screen drawn again."""
        with suppress(BlockingIOError):  # it is full of notices
            os.write(self._writer, b"!")

    def key(self) -> str | None:
        """Waits for a key press, a notice or the time when the status gets stale; returns the key."""
        ready, _, _ = select.select([sys.stdin, self._reader], [], [], self._interval + STALE_SECONDS)
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
            found = watch.status(name_server)
            if found is None:
                live.update(
                    Text(printable(f"waiting for the brokers at {name_server}; q or Ctrl-C ends")), refresh=True
                )
            else:
                live.update(drawn(watch, found, name_server, console.size.height), refresh=True)
            try:
                key = watch.key()
            except KeyboardInterrupt:
                return


def drawn(watch: Watch, found: ClusterStatus, name_server: str, height: int) -> Group:
    """Returns the whole screen for a terminal of this height."""
    most_groups = max(1, height - OTHER_LINES - len(found.brokers))
    last = Text(f"{output.cell(datetime_of(watch.at_ms))}; q ends", style="dim")
    stale = watch.staleness()
    failed = [Text(printable(stale), style="red")] if stale else []
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
