"""Closed and full standard streams, other charsets, and arguments that are not text: every command."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from commands import command_lines
from rocketpy import Message, Server
from waiting import wait_until

RUN_SECONDS = 240
NOT_UTF8 = b"caf\xe9"
"""A latin-1 text, as an argument from a script in that charset."""


ARGUMENTS: dict[str, Sequence[str]] = {
    "status": ["--name-server", "{names}"],
    "consume": ["{topic}", "--name-server", "{names}"],
    "topic list": ["--name-server", "{names}"],
    "topic create": ["made", "--name-server", "{names}"],
    "topic delete": ["doomed", "--yes", "--name-server", "{names}"],
    "topic describe": ["{topic}", "--name-server", "{names}"],
    "topic perm": ["{topic}", "rw", "--name-server", "{names}"],
    "broker clean": ["--offsets", "--dry-run", "--name-server", "{names}"],
    "group list": ["--name-server", "{names}"],
    "group create": ["made", "--name-server", "{names}"],
    "group delete": ["doomed", "--yes", "--name-server", "{names}"],
    "group describe": ["readers", "--name-server", "{names}"],
    "group show": ["readers", "--name-server", "{names}"],
    "group producers": ["filler", "--name-server", "{names}"],
    "group lag": ["readers", "--name-server", "{names}"],
    "group reset": ["readers", "--topic", "{topic}", "--to", "earliest", "--new-topic", "--name-server", "{names}"],
    "group clone": ["readers", "others", "--name-server", "{names}"],
    "cluster list": ["--name-server", "{names}"],
    "ha status": ["--name-server", "{names}"],
    "dlq list": ["--name-server", "{names}"],
    "message query": ["{topic}", "--key", "k", "--name-server", "{names}"],
    "store stat": ["{store}"],
    "store verify": ["{store}"],
    "store dump": ["{store}"],
    "config show": [],
    "config explain": ["brokerName"],
}
"""Arguments with which a command prints something."""


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the arguments name: a server with one message, and a copy of its folder."""
    folder = tmp_path_factory.mktemp("streams") / "store"
    with Server(folder) as server, server.admin() as admin, server.producer("filler") as producer:
        for topic in ("filled", "doomed"):
            admin.create_topic(topic, queues=1)
        for group in ("readers", "doomed", "others"):
            admin.create_group(group)
        producer.send(Message("filled", "é漢😀\n".encode(), keys=["k"], tag="é漢"))
        yield {"topic": "filled", "names": server.name_server, "store": str(folder)}


def run(executable: Sequence[str], streams: str, *arguments: str | bytes, **environment: str) -> tuple[int, str, str]:
    """Runs a command with redirections of the shell; returns its exit code and output."""
    shell = ["bash", "-c", f'"$@" {streams}', "-", *executable, *arguments]
    ended = subprocess.run(
        shell,
        input=b"",
        capture_output=True,
        timeout=RUN_SECONDS,
        env={**os.environ, "COLUMNS": "120", **environment},
    )
    return ended.returncode, ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace")


def check_lines(code: int, expected: int, error: str) -> None:
    """Checks that a failure is an error with a hint, and not a traceback or a suspected defect."""
    assert code == expected, error
    assert "Traceback" not in error
    assert "defect" not in error
    assert "Exception ignored" not in error
    if code:
        assert error.count("error: ") == error.count("hint: ") == 1, error


@pytest.mark.parametrize("line", command_lines())
def test_a_full_standard_output_is_an_error_of_every_command(line: str, names: dict[str, str], executable: list[str]):
    """The help of commands that would print nothing."""
    arguments = [text.format_map(names) for text in ARGUMENTS.get(line, ["--help"])]
    code, _, error = run(executable, "<&- >/dev/full", *line.split(), *arguments)
    check_lines(code, 5, error)
    assert "cannot write standard output: No space left on device" in error


@pytest.mark.parametrize("line", ["topic list", "consume", "config show", "store dump", "--version"])
def test_a_closed_standard_stream_is_an_error_only_where_it_is_used(
    line: str, names: dict[str, str], executable: list[str]
):
    arguments = [*line.split(), *(text.format_map(names) for text in ARGUMENTS.get(line, []))]
    code, _, error = run(executable, ">&-", *arguments)
    check_lines(code, 5, error)
    assert "cannot write standard output: it is closed" in error
    code, output, error = run(executable, "<&- 2>&-", *arguments)
    assert (code, error) == (0, "")
    assert output
    assert run(executable, "<&- >&- 2>/dev/full", *arguments)[0] == 5, "standard error is full too"


def test_an_error_without_a_standard_error_keeps_its_exit_code(executable: list[str]):
    for streams in ("2>&-", "2>/dev/full", "<&- >&- 2>&-"):
        assert run(executable, streams, "topic", "list", "--name-server", "127.0.0.1:1") == (4, "", "")
        assert run(executable, streams, "nonsense") == (2, "", "")


@pytest.mark.parametrize(
    ("given", "unbuffered", "order"),
    [(["-u"], "", "abc"), ([], "1", "abc"), ([], "", "cba")],
    ids=["argument", "environment", "buffered"],
)
def test_an_unbuffered_standard_output_stays_unbuffered(given: list[str], unbuffered: str, order: str):
    program = """
import os, sys
from rocketpy.commandline import streams
streams.prepare()
print("a", end="")
sys.stdout.buffer.write(b"b")
os.write(1, b"c")
"""
    command = [sys.executable, "-P", *given, "-c", program]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    ended = subprocess.run(command, capture_output=True, timeout=RUN_SECONDS, text=True, env=environment)
    assert ended.stdout == order, ended.stderr


@pytest.mark.parametrize(("name", "code"), [("UNCERTAIN", 6), ("DAMAGED", 8), ("DEFECT", 10)])
def test_lost_output_keeps_exit_codes_that_a_caller_must_not_miss(name: str, code: int):
    program = f"""
from rocketpy.commandline import exits, streams
streams.prepare()
with exits.reported():
    print("findings")
    raise exits.CommandError("before", exits.ExitCode.{name})
"""
    ended = run([sys.executable, "-P", "-c", program], ">/dev/full", PYTHONUNBUFFERED="")
    check_lines(ended[0], code, ended[2])
    assert "error: cannot write standard output: No space left on device; error before: before\n" in ended[2]


def test_traceback_of_a_defect_is_escaped():
    program = """
from rocketpy.commandline import exits
with exits.reported():
    raise LookupError("red \\x1b[31m")
"""
    code, _, error = run([sys.executable, "-P", "-c", program], "", PYTHONUNBUFFERED="")
    assert code == 1
    assert "LookupError: red \\x1b[31m\n" in error


def test_lost_output_is_the_error_of_a_command_that_fails_too():
    program = """
import sys
from rocketpy.commandline import exits, streams
streams.prepare()
with exits.reported():
    print("findings")
    raise exits.CommandError("faults found: gaps", exits.ExitCode.MISMATCH)
"""
    python = [sys.executable, "-P", "-c", program]
    code, _, error = run(python, ">/dev/full", PYTHONUNBUFFERED="")
    check_lines(code, 5, error)
    assert "error: cannot write standard output: No space left on device; error before: faults found: gaps\n" in error
    assert run(python, "| true; exit ${PIPESTATUS[0]}", PYTHONUNBUFFERED="")[0] == 9, "a reader that has enough"
    assert run(python, "")[:2] == (9, "findings\n")


def test_produce_without_a_standard_input_is_an_error(names: dict[str, str], executable: list[str]):
    code, _, error = run(executable, "<&-", "produce", names["topic"], "--name-server", names["names"])
    check_lines(code, 5, error)
    assert "cannot read standard input: it is closed" in error


@pytest.mark.parametrize(
    ("charset", "tag"), [("ascii", r"\xe9\u6f22"), ("cp1252", "\xe9\\u6f22"), ("utf-8", "\xe9\u6f22")]
)
def test_output_in_another_charset_has_escapes(charset: str, tag: str, names: dict[str, str], executable: list[str]):
    arguments = [text.format_map(names) for text in ARGUMENTS["message query"]]
    environment = {"PYTHONIOENCODING": charset, "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    command = ["bash", "-c", '"$@"', "-", *executable, "message", "query", *arguments]
    ended = subprocess.run(command, capture_output=True, timeout=RUN_SECONDS, env={**os.environ, **environment})
    check_lines(ended.returncode, 0, ended.stderr.decode(charset))
    assert tag in ended.stdout.decode(charset)


@pytest.mark.parametrize(
    ("line", "where"),
    [
        (["produce", "{}"], "topic"),
        (["produce", "filled", "--tag", "{}"], "--tag"),
        (["produce", "filled", "--key", "{}"], "--key"),
        (["consume", "{}"], "topic"),
        (["consume", "filled", "--group", "{}"], "--group"),
        (["topic", "create", "{}"], "topic"),
        (["group", "create", "{}"], "group"),
        (["group", "reset", "readers", "--topic", "{}", "--to", "earliest"], "--topic"),
        (["message", "query", "filled", "--key", "{}"], "--key"),
        (["topic", "list", "--name-server", "{}"], "--name-server"),
        (["server", "folder", "--set", "{}"], "--set"),
        (["broker", "folder", "--name-server", "{}"], "--name-server"),
        (["dlq", "resend", "readers", "--to", "{}"], "--to"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_an_argument_that_is_not_text_is_wrong_usage(line: list[str], where: str, executable: list[str]):
    arguments = [NOT_UTF8 if text == "{}" else text for text in line]
    code, _, error = run(executable, "", *arguments, PYTHONUTF8="1")
    check_lines(code, 2, error)
    assert error.startswith(f"error: {where} is not valid in the charset of the locale: caf\\udce9\n")


def test_a_path_may_have_bytes_that_are_not_text(tmp_path: Path, names: dict[str, str], executable: list[str]):
    file = tmp_path / os.fsdecode(NOT_UTF8)
    file.write_bytes(b"from a file\n")
    code, _, error = run(
        executable, "", "produce", "by-path", "--file", os.fsencode(file), "--name-server", names["names"]
    )
    check_lines(code, 0, error)
    code, _, error = run(executable, "", "store", "stat", os.fsencode(file))
    check_lines(code, 3, error)


def test_json_with_a_lone_surrogate_names_its_line(names: dict[str, str], executable: list[str]):
    line = json.dumps({"body": "x", "properties": {"p": "\udcff"}})
    bodies = {line: "property p is not valid Unicode", json.dumps({"body": "\udcff"}): '"body" has a lone surrogate'}
    for text, words in bodies.items():
        command = ["produce", names["topic"], "--format", "json", "--name-server", names["names"]]
        ended = subprocess.run([*executable, *command], input=text, capture_output=True, text=True, timeout=RUN_SECONDS)
        check_lines(ended.returncode, 2, ended.stderr)
        assert f"error: line 1: {words}" in ended.stderr


def test_a_server_opens_closed_descriptors_before_its_files_and_sockets(tmp_path: Path, executable: list[str]):
    ready = tmp_path / "ready.json"
    command = [*executable, "server", str(tmp_path / "store"), "--port", "0", "--name-server-port", "0"]
    shell = ["bash", "-c", 'exec "$@" <&- >&- 2>&-', "-", *command, "--ready-file", str(ready)]
    with subprocess.Popen(shell) as process:
        try:
            wait_until(ready.exists, "the server accepts", process=process)
            streams = [Path(f"/proc/{process.pid}/fd/{number}").readlink() for number in range(3)]
            assert streams == [Path("/dev/null")] * 3
            process.terminate()
            assert process.wait(RUN_SECONDS) == 0
        finally:
            process.kill()


def test_a_server_of_a_program_opens_closed_descriptors(tmp_path: Path):
    program = f"""
import os, rocketpy
for number in range(3):
    os.close(number)
with rocketpy.Server({str(tmp_path / "store")!r}):
    open({str(tmp_path / "streams")!r}, "w").write(" ".join(os.readlink(f"/proc/self/fd/{{n}}") for n in range(3)))
"""
    assert subprocess.run([sys.executable, "-P", "-c", program], timeout=RUN_SECONDS).returncode == 0
    assert (tmp_path / "streams").read_text() == "/dev/null /dev/null /dev/null"
