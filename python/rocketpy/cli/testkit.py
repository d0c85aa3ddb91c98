"""`rocketpy testkit`: a command with a test server of its own."""

import os
import re
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from rocketpy.base.names import VARIABLE
from rocketpy.cli.flags import SETTING
from rocketpy.cli.serve import leave_to_the_pipe, settings_of
from rocketpy.commandline.exits import CommandError, ExitCode, ended_by_signals
from rocketpy.testkit import QUEUES, serve_clock, temporary_server

TOPIC = re.compile(r"([^:]+)(?::(\d{1,9}))?")
PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that the command receives in place of this process."""
OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""Signals that a terminal sends to the command too: its foreground process group includes it."""
CLOCK = "ROCKETPY_TEST_CLOCK"
"""Environment variable of the clock's URL. Servers take no configuration key from the prefix `ROCKETPY_TEST_`."""
MAX_SIGNALS = 64
"""Maximum number of signals that one read returns."""
SIGNALLED = 128
"""Exit code of a command that a signal ended, less the number of the signal: as in a shell."""


def run_with_server(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="Command to run, with its arguments.")],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="NAME[:QUEUES]",
            help=f"Topic to create before the command starts, with {QUEUES} queues by default; may be repeated.",
        ),
    ] = None,
    setting: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=SETTING.help)] = None,
) -> None:
    """Run a command with a test server of its own.

    An example: `rocketpy testkit --topic orders:4 -- mvn -q test`.

    The command reads the server's address from NAMESRV_ADDR. A POST of a number of seconds to the URL in
    ROCKETPY_TEST_CLOCK advances the server's clock. The command receives signals, and its exit code is returned. The
    server creates no topic at the first send, and its folder is removed at the end.
    """
    topics = topics_of(topic or [])
    with ended_by_signals(), temporary_server(settings=settings_of(setting or [])) as server:
        with server.admin() as admin:
            for name, queues in topics.items():
                admin.create_topic(name, queues=queues)
        with serve_clock(server) as clock:
            code = exit_code_of(command, {**os.environ, VARIABLE: server.name_server, CLOCK: clock})
    raise SystemExit(code)


def topics_of(texts: Sequence[str]) -> dict[str, int]:
    """Reads the numbers of queues by topic.

    Raises:
        CommandError: A text has another form, or two name the same topic.
    """
    topics: dict[str, int] = {}
    for text in texts:
        name, queues = topic_of(text)
        if name in topics:
            raise CommandError(f"--topic names {name} twice", ExitCode.USAGE, "keep one of them")
        topics[name] = queues
    return topics


def topic_of(text: str) -> tuple[str, int]:
    """Reads `NAME[:QUEUES]`.

    Raises:
        CommandError: The text has another form.
    """
    found = TOPIC.fullmatch(text)
    if found is None:
        raise CommandError(
            f"--topic: expected NAME or NAME:QUEUES: {text}", ExitCode.USAGE, "for example --topic orders:4"
        )
    return found[1], QUEUES if found[2] is None else int(found[2])


def exit_code_of(command: Sequence[str], environment: dict[str, str]) -> int:
    """Runs a command, passes signals on to it, and returns its exit code.

    Raises:
        CommandError: The command does not exist or cannot be executed.
    """
    with received_signals() as received:
        try:
            process = subprocess.Popen(command, env=environment)
        except FileNotFoundError:
            hint = "check the name and PATH: `rocketpy testkit -- COMMAND` runs a program, not a function of the shell"
            raise CommandError(f"no such command: {command[0]}", ExitCode.NO_COMMAND, hint) from None
        except OSError as error:
            raise CommandError(
                f"cannot execute {command[0]}: {error.strerror}", ExitCode.NOT_EXECUTABLE, "check its mode and format"
            ) from None
        while process.poll() is None:
            for number in os.read(received, MAX_SIGNALS):
                if number != signal.SIGCHLD and not (number in OF_TERMINAL and is_in_foreground()):
                    process.send_signal(number)
    code = process.returncode
    return code if code >= 0 else SIGNALLED - code


@contextmanager
def received_signals() -> Generator[int]:
    """Collects the signals to pass on, and the ends of child processes, as bytes of a pipe.

    Unlike a handler, a byte is not missed between two system calls, or when another thread receives the signal. An
    ignored signal, such as SIGHUP under nohup, stays ignored.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    former_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    numbers = [each for each in PASSED_ON if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, leave_to_the_pipe) for each in [*numbers, signal.SIGCHLD]}
    try:
        yield reader
    finally:
        for each, former in before.items():
            signal.signal(each, former)
        signal.set_wakeup_fd(former_fd)
        os.close(reader)
        os.close(writer)


def is_in_foreground() -> bool:
    """Whether the terminal sends its signals to the process group of this process, and so to the command too."""
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
    except OSError:  # no controlling terminal
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)
