"""All hints of the package: the names in them exist, and their read-only commands run."""

import ast
import contextlib
import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import rocketpy
from closed_server import ADMIN, USERS_ON
from rocketpy import _rocketpy
from rocketpy.cli import main
from rocketpy.cli.app import make_app
from rocketpy.commandline.exits import ExitCode
from rocketpy.spark import aliases
from rocketpy.spark import options as spark_options

ROOT = Path(__file__).parents[2]
PYTHON = sorted((ROOT / "python").rglob("*.py"))
RUST = sorted(
    path
    for path in (ROOT / "rust").glob("*/src/**/*.rs")
    if path.relative_to(ROOT).parts[1] not in ("proof", "proof-planted") and "tests" not in path.stem
)
PLACEHOLDER = "x"
"""Value of placeholders such as `{topic}`."""
COMMAND_IN_TEXT = re.compile(r"`(rocketpy(?: [^`]*)?)`")
RUST_HINT = re.compile(
    r"\.hint(?:_if)?\(|\brefusal\(|\bfn (?:\w+_)?hint\b[^{]*\{|const \w*(?:HINT|ELSEWHERE|NEEDS_TOPIC)\w*: &str = "
)
RUST_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
KEY = re.compile(r"(?<![\w./(])[a-z]+(?:[A-Z][a-z]+)+(?![\w(])")
NAME = re.compile(r"(?<![\w./-])[a-z]+(?:_[a-z0-9]+)+\b|\b[a-z_]+(?=\()")
PAGE = re.compile(r"docs/[\w/.-]+\.md")
FOREIGN = {
    "checkpointLocation", "outputMode", "--remote", "--upgrade", "rocketpy_done", "enablePropertyFilter",
}  # fmt: skip
"""Names of Spark, pip, Apache's brokers and SQL tables."""


def texts_of(node: ast.AST) -> Iterator[str]:
    """Texts of an expression; a placeholder counts as a word."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else PLACEHOLDER for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield re.sub(r"\{\w*\}", PLACEHOLDER, node.value)
    else:
        for child in ast.iter_child_nodes(node):
            yield from texts_of(child)


def python_hints(tree: ast.AST) -> Iterator[str]:
    """Arguments named hint, the third one of `CommandError` and `fail`, and what is assigned to a hint."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (text for word in node.keywords if word.arg == "hint" for text in texts_of(word.value))
            if getattr(node.func, "id", "") in ("CommandError", "fail", "existing"):
                yield from (text for argument in node.args[2:] for text in texts_of(argument))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(getattr(target, "id", "").lower().endswith(("hint", "hints", "way_out")) for target in targets):
                yield from texts_of(node.value)


def rust_texts(source: str) -> Iterator[str]:
    for found in RUST_TEXT.finditer(source):
        text = re.sub(r"\\\n\s*", "", found[1])
        yield re.sub(r"\{[^}]*\}", PLACEHOLDER, text.replace(r"\"", '"').replace("\\n", "\n"))


def rust_hints(source: str) -> Iterator[str]:
    """Texts in calls and functions that are named after hints."""
    for found in RUST_HINT.finditer(source):
        depth, end = 0, found.end() - 1
        for end in range(found.end() - 1, len(source)):
            depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1, ";": 0}.get(source[end], 0)
            if depth <= 0 and (source[end] in ")}" or source[end] == ";"):
                break
        yield from rust_texts(source[found.start() : end + 1])


def hints() -> dict[str, str]:
    """All hints, with the file of each."""
    found: dict[str, str] = {}
    for path in PYTHON:
        found |= dict.fromkeys(python_hints(ast.parse(path.read_text())), str(path.relative_to(ROOT)))
    for path in RUST:
        source = path.read_text().split("#[cfg(test)]\nmod tests")[0]
        found |= dict.fromkeys(rust_hints(source), str(path.relative_to(ROOT)))
    return found


def texts_with_commands() -> dict[str, str]:
    """All other texts that name a command: errors, help and docstrings."""
    found: dict[str, str] = {}
    for path in PYTHON:
        texts = (text for text in texts_of(ast.parse(path.read_text())) if COMMAND_IN_TEXT.search(text))
        found |= dict.fromkeys(texts, str(path.relative_to(ROOT)))
    for path in RUST:
        source = path.read_text().split("#[cfg(test)]\nmod tests")[0]
        texts = (text for text in rust_texts(source) if COMMAND_IN_TEXT.search(text))
        found |= dict.fromkeys(texts, str(path.relative_to(ROOT)))
    return found


HINTS = hints()
APP: Any = typer.main.get_command(make_app())


def is_group(command: Any) -> bool:
    return hasattr(command, "commands")


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    if is_group(command):
        for name, one in command.commands.items():
            yield from commands(one, (*path, name))


COMMANDS = dict(commands(APP))
ALL_OPTIONS = {
    flag for one in COMMANDS.values() for given in one.params for flag in (*given.opts, *given.secondary_opts)
} | {"--help"}
JOB_OPTIONS = {
    flag
    for path in (ROOT / "python/rocketpy/spark").rglob("*.py")
    for flag in re.findall(r"--[a-z][a-z-]+", path.read_text())
    if f'"{flag}"' in path.read_text()
}


@functools.cache
def help_of(path: tuple[str, ...]) -> str:
    """What `--help` of a command prints."""
    shown = CliRunner().invoke(make_app(), [*path, "--help"])
    assert shown.exit_code == 0, shown.output
    return shown.output


def resolved(line: str) -> tuple[tuple[str, ...], Any, list[str]]:
    """Path of the command of a line, the command, and its words after that path."""
    command, rest = APP, shlex.split(line)[1:]
    path: list[str] = []
    while rest and rest[0] == "--timeout":
        rest = rest[2:]
    while is_group(command) and rest and rest[0] not in ("...",):
        if rest[0] not in command.commands and any(one.param_type_name == "argument" for one in command.params):
            break  # `rocketpy broker DIR` starts a broker
        assert rest[0] in command.commands, f"no such command: rocketpy {' '.join([*path, rest[0]])}"
        command = command.commands[rest[0]]
        path.append(rest.pop(0))
    return tuple(path), command, rest


def check_command(line: str) -> None:
    """Resolves a command line of a hint with its options, and prints the help of the command."""
    path, command, rest = resolved(line)
    flags = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)}
    for word in rest:
        if word == "--":  # another command follows
            break
        if word.startswith("--"):
            assert word.split("=")[0] in flags, f"rocketpy {' '.join(path)} has no option {word}"
    if is_group(command):
        return
    assert "Usage" in help_of(path)


def lines_of(text: str) -> list[str]:
    return [found[1] for found in COMMAND_IN_TEXT.finditer(text)]


def fault_of(line: str) -> str | None:
    """What is wrong with a command line; None if it exists."""
    try:
        check_command(line)
    except AssertionError as error:
        return str(error)
    return None


def test_each_command_that_a_text_names_exists_with_its_options():
    texts = HINTS | texts_with_commands()
    lines = {line: place for text, place in texts.items() for line in lines_of(text)}
    wrong = {line: (place, fault) for line, place in lines.items() if (fault := fault_of(line))}
    assert not wrong
    assert len(lines) > 40
    for line in ("rocketpy topics", "rocketpy topic create x --queue-count 4", "rocketpy topic make x"):
        assert fault_of(line), line


READ_ONLY = {
    "cluster list", "config diff", "config explain", "config list", "config show", "consume", "dlq list", "dlq show",
    "doctor",
    "group describe", "group lag", "group list", "group show", "ha status", "message query", "offset show", "ping",
    "acl show", "quota list", "schedule list", "user list",
    "status",
    "store diff",
    "store dump", "store stat", "store verify", "topic describe", "topic list",
}  # fmt: skip
OTHERS = {
    "acl grant", "audit", "user add", "user finish-rotation", "user rotate", "user update",
    "bench produce", "broker", "broker drain", "broker undrain", "cluster up", "config set", "config unset", "console",
    "demo", "group create", "group reset", "group update", "ha demote",
    "ha promote", "message resend",
    "namesrv", "produce", "server", "store cut", "store import", "store repair", "store retention", "support-bundle",
    "testkit", "top",
    "topic create", "topic delete", "topic move", "topic perm",
}  # fmt: skip
"""Commands that change something, run until a signal, or need `--dry-run`."""


def is_placeholder(word: str) -> bool:
    return word.isupper() or set(word) == set(PLACEHOLDER)


def filled(line: str, case: dict[str, list[str]]) -> list[str]:
    """Arguments of a line, with the values of a case by the names of parameters for placeholders and missing words."""
    path, command, rest = resolved(line)
    options = {flag: one for one in command.params for flag in one.opts if flag.startswith("-")}
    positional = [
        (value, one.required) for one in command.params if not one.opts[0].startswith("-") for value in case[one.name]
    ]
    arguments, words = [*path], iter(rest)
    for word in words:
        if word.startswith("-"):
            arguments.append(word)
            if not options[word].is_flag:
                value = next(words, PLACEHOLDER)
                arguments.append(case[options[word].name][0] if is_placeholder(value) else value)
        else:
            value, _ = positional.pop(0)
            arguments.append(value if is_placeholder(word) else word)
    arguments += [value for value, is_required in positional if is_required]
    if "--name-server" in options:
        arguments += ["--name-server", *case["name_server"]]
    return arguments


def commands_of_texts() -> dict[str, str]:
    """Name of the command by each command line of a text; lines of commands that do not exist are left out."""
    names: dict[str, str] = {}
    for line in {line for text in HINTS | texts_with_commands() for line in lines_of(text)}:
        with contextlib.suppress(AssertionError):  # of the test above
            path, command, _ = resolved(line)
            if not is_group(command):
                names[line] = " ".join(path)
    return dict(sorted(names.items()))


LINES = commands_of_texts()


def test_each_command_that_a_text_names_is_known_to_read_only_or_not():
    assert set(LINES.values()) - READ_ONLY - OTHERS == set()


@pytest.fixture(scope="module")
def case(tmp_path_factory) -> Iterator[dict[str, list[str]]]:
    """A server with users, a topic and a group, the folder of another store, and two configuration files."""
    folder, topic, group = tmp_path_factory.mktemp("hints"), "hint-topic", "hint-group"
    stores = [folder / "first", folder / "second"]
    for store in stores:
        with rocketpy.Server(store) as server, server.admin() as admin:
            admin.create_topic(topic, queues=1)
    for name in ("a.conf", "b.conf"):
        (folder / name).write_text("brokerName=broker-a\n")
    with pytest.MonkeyPatch.context() as environment, rocketpy.Server(folder / "live", settings=USERS_ON) as server:
        environment.setenv("ROCKETPY_ACCESS_KEY", ADMIN.access_key)
        environment.setenv("ROCKETPY_SECRET_KEY", ADMIN.secret_key)
        with server.admin() as admin, server.producer("hints") as producer:
            admin.create_topic(topic, queues=1)
            admin.create_group(group)
            admin.create_user("hint-user", "secret of hint-user")
            producer.send(rocketpy.Message(topic, b"hint", keys=["k"]))
        yield {
            "topic": [topic], "group": [group], "key": ["timerMaxDelaySec"], "name_server": [server.name_server],
            "server": ["broker-a"], "user": ["hint-user"],
            "folder": [str(stores[0])], "first": [str(stores[0])], "second": [str(stores[1])],
            "files": [str(folder / "a.conf"), str(folder / "b.conf")], "config": [str(folder / "a.conf")],
        }  # fmt: skip


@pytest.mark.parametrize("line", [line for line, name in LINES.items() if name in READ_ONLY])
def test_command_of_a_hint_that_only_reads_succeeds(case, line, capsys):
    code = main(["--timeout", "60", *filled(line, case)])
    assert code == ExitCode.OK, capsys.readouterr().err


@pytest.mark.parametrize("line", ["rocketpy topic describe", "rocketpy topic list"])
def test_command_with_another_argument_is_a_usage_error(case, line, capsys):
    assert main([*filled(line, case), "another"]) == ExitCode.USAGE
    assert "error: " in capsys.readouterr().err


def identifiers() -> set[str]:
    """Names of functions, arguments, options and fields of the package and its stub."""
    found: set[str] = set()
    for path in [*PYTHON, ROOT / "python/rocketpy/_rocketpy.pyi"]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg)
    return found | set(dir(rocketpy))


IDENTIFIERS = identifiers()
SPARK_OPTIONS = set(
    re.findall(r'"([a-zA-Z_.]+)"', Path(spark_options.__file__).read_text() + Path(aliases.__file__).read_text())
)
UNUSED, AT_ANY_VALUE = _rocketpy.config_unused_keys()
KEYS = {key["name"] for key in _rocketpy.config_keys(None, [], False)[0]} | {row[0] for row in UNUSED} | {*AT_ANY_VALUE}


def unknown_names(hint: str) -> set[str]:
    """Options, keys, functions and pages of a hint that do not exist."""
    options = set(OPTION.findall(hint)) - ALL_OPTIONS - JOB_OPTIONS - FOREIGN
    names = (set(KEY.findall(hint)) | set(NAME.findall(hint))) - KEYS - IDENTIFIERS - SPARK_OPTIONS - FOREIGN
    return options | names | {page for page in PAGE.findall(hint) if not (ROOT / page).is_file()}


def test_each_option_key_function_and_page_of_a_hint_exists():
    wrong = {hint: (place, unknown) for hint, place in HINTS.items() if (unknown := unknown_names(hint))}
    assert not wrong
    page = "docs" + "/nothing.md"  # not cited: test_references checks citations
    hint = f"`rocketpy topic create x --queue-count 4`, see fileReservedTim, or {page}"
    assert unknown_names(hint) == {"--queue-count", "fileReservedTim", page}


EVERYWHERE = {"--credentials", "--help", "--name-server", "--timeout", "--tls-ca"}
"""Options that hints name for any command of a client."""
SHARED = {
    "consume them first, or add force=True": {"topic create"},
    "stop the members of the target first": {"group clone"},
    "create them at another broker": {"broker drain"},
    "let a group consume them": {"topic move"},
    "force a reset (--force, force=True)": {"group reset"},
    "for example --property color=red": {"dlq export", "dlq resend", "dlq show"},
    "raise the producer's max_message_size": {"produce"},
    "raise the limit of x bytes with max_body_bytes": {"consume", "store dump"},
    "start it as a slave (--role slave)": {"broker"},
    "for a slave set brokerRole=SLAVE": {"broker"},
    "give one of them another name, or replace": {"schedule add"},
    "run the command without --offline": {"user add"},
    "in a file with mode 0600 (--config)": {"server", "broker", "namesrv"},
    "start with --secure, or listen on": {"server"},
    "name another path with --ready-file": {"server", "broker", "namesrv"},
    "stop it, or choose another folder for --data": {"console"},
    "choose another folder for --data": {"console"},
    "or another folder for --data": {"console"},
}
"""Beginnings of hints outside of the modules of commands, and the commands that show them."""


def options_of(name: str) -> set[str]:
    command = COMMANDS[tuple(name.split())]
    return {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)}


def bare_options(hint: str) -> set[str]:
    """Options of a hint for the command that failed: those outside of command lines."""
    return set(OPTION.findall(COMMAND_IN_TEXT.sub("", hint))) - FOREIGN - EVERYWHERE


def test_each_command_has_the_options_that_its_shared_hints_name():
    shared = {
        hint: bare
        for hint, place in HINTS.items()
        if (bare := bare_options(hint)) and not place.startswith(("python/rocketpy/cli/", "python/rocketpy/spark/"))
    }
    known = {hint: names for hint in shared for part, names in SHARED.items() if part in hint}
    assert sorted(shared) == sorted(known)
    assert len(known) == len(SHARED)
    missing = {(hint, name) for hint, names in known.items() for name in names if not shared[hint] <= options_of(name)}
    assert not missing


def test_the_table_has_the_hints_of_every_part():
    assert len(HINTS) > 200
    for part in ("python/rocketpy/cli", "python/rocketpy/spark", "python/rocketpy/dedup", "python/rocketpy/producing",
                 "rust/client", "rust/store", "rust/broker", "rust/server", "rust/env", "rust/python"):  # fmt: skip
        assert any(place.startswith(part) for place in HINTS.values()), part
    assert sum(bool(lines_of(text)) for text in HINTS) > 30
