"""What others wrote does not command the terminal: control characters are shown there; pipes get them as they are."""

import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

BODY = b"red \x1b[31m, bell \x07, \xff, tab \t, end"
RUN_SECONDS = 240


def on_a_terminal(*command: str, typed: bytes | None = None, after: bytes = b"", code: int = 0) -> bytes:
    """Runs a command whose standard output is a terminal; returns what came there.

    With `typed`, standard input and error are the terminal too, Ctrl-C there interrupts the command, and `typed` is
    typed once `after` is shown.
    """
    ours, theirs = pty.openpty()
    try:
        streams = {"stdin": subprocess.DEVNULL} if typed is None else {"stdin": theirs, "stderr": theirs}
        environment = {**os.environ, "TERM": "xterm"}
        controlled = () if typed is None else ("setsid", "--ctty")
        process = subprocess.Popen((*controlled, *command), stdout=theirs, env=environment, **streams)
        os.close(theirs)
        came = bytearray()
        while typed and after not in came and (piece := read(ours)):
            came += piece
        os.write(ours, typed or b"")
        while piece := read(ours):
            came += piece
        assert process.wait(RUN_SECONDS) == code
        return bytes(came)
    finally:
        os.close(ours)


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other side is closed
        return b""


def test_a_body_is_escaped_on_a_terminal_and_exact_in_a_pipe(rocketpy, server, executable: list[str], topic: str):
    rocketpy("produce", topic, stdin=BODY + b"\n")
    assert rocketpy("consume", topic, stdin=b"").stdout == BODY + b"\n"
    shown = on_a_terminal(*executable, "consume", topic, "--name-server", server.name_server)
    assert rb"red \x1b[31m, bell \x07, \xff, tab " in shown
    assert b"\x1b" not in shown
    assert b"\x07" not in shown


def test_nothing_is_drawn_over_what_is_typed(rocketpy, server, executable: list[str], topic: str):
    command = [*executable, "produce", topic, "--name-server", server.name_server]
    shown = on_a_terminal(*command, typed=b"one\ntwo\n\x04")
    assert b"Ctrl-D ends" in shown
    assert b"2 messages" in shown.replace(b"\x1b[1;36m", b"").replace(b"\x1b[0m", b"")
    assert b"msg/s" not in shown, "no progress bar"
    assert b"\x1b[2K" not in shown, "no line is erased"
    assert sorted(rocketpy("consume", topic).stdout.split()) == ["one", "two"]


def test_a_table_that_is_too_wide_for_the_terminal_breaks_no_address(server, executable: list[str]):
    for command in (["ha", "status"], ["cluster", "list"]):
        shown = on_a_terminal(*executable, *command, "--name-server", server.name_server)
        assert server.ready["broker"].encode() in shown


def test_an_error_shows_control_characters(rocketpy):
    error = rocketpy("topic", "describe", "a\x1b[2Jb", code=None).stderr
    assert "error:" in error
    assert "\x1b" not in error


def test_a_server_that_others_can_reach_says_so(start: Callable, tmp_path: Path):
    ports = ("--port", "0", "--name-server-port", "0")
    opened = start("server", str(tmp_path / "opened"), *ports, "--host", "0.0.0.0", "--set", "brokerIP1=127.0.0.1")
    assert opened.stop() == 0
    assert "warning: any host that reaches this address" in opened.log.read_text()
    closed = start("server", str(tmp_path / "closed"), *ports)
    assert closed.stop() == 0
    assert "any host" not in closed.log.read_text()


def test_a_topic_is_deleted_on_a_terminal_once_the_question_is_answered(
    rocketpy, server, executable: list[str], topic: str
):
    command = [*executable, "topic", "delete", topic, "--name-server", server.name_server]
    rocketpy("topic", "create", topic)
    shown = on_a_terminal(*command, typed=b"n\n", code=5)
    assert f"delete topic {topic} with 0 messages?".encode() in shown
    assert b"will be dropped. [y/N]" in shown
    assert b"nothing was changed" in shown
    assert topic in rocketpy("topic", "list").stdout.split()
    assert f"deleted topic {topic}".encode() in on_a_terminal(*command, typed=b"y\n")
    assert topic not in rocketpy("topic", "list").stdout.split()


# A line after Ctrl-C: a signal between the question and the read of the answer is noticed after the read.
@pytest.mark.parametrize("typed", [b"\x03y\n", b"\x04"], ids=["interrupt", "end_of_input"])
def test_a_question_that_is_interrupted_or_not_answered_changes_nothing(
    rocketpy, server, executable: list[str], topic: str, typed: bytes
):
    rocketpy("topic", "create", topic)
    rocketpy("group", "create", topic)
    for kind in ("topic", "group"):
        command = [*executable, kind, "delete", topic, "--name-server", server.name_server]
        shown = on_a_terminal(*command, typed=typed, after=b"[y/N]: ", code=5 if typed == b"\x04" else 130)
        assert b"Traceback" not in shown
        assert b"Aborted" not in shown
        assert topic in rocketpy(kind, "list").stdout.split()
