"""Pages of docs/operations: their numbered steps, and an operator who runs them in a shell, as the page shows them."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rocketpy.testkit import SMALL_FILES
from waiting import wait_until

PAGES = Path(__file__).parents[1] / "docs/operations"
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"^(\d+)\. ", re.MULTILINE)
SERVER = re.compile(r"^rocketpy (server|namesrv|broker(?! (?:clean|drain|undrain) )) ")
EXIT_CODE = re.compile(r"# exit code (\d+)")
PLACEHOLDER = re.compile(r"(?<![\w$.%-])[A-Z][A-Z_]+(?![\w=])")
COLUMN = re.compile(r"`((?!rocketpy |mq|rmq_)[a-z]+(?:[ /_][a-z]+)*)`")
"""Name of a column in the text of a step, unless it is a word of the step's commands."""
AFTER_STEPS = re.compile(r"^(?! |$|\d+\. )", re.MULTILINE)
RUN_SECONDS = 240


def steps(text: str) -> dict[int, list[str]]:
    """Returns the fences of each numbered step that has any."""
    found: dict[int, list[str]] = {}
    for fence in FENCE.finditer(text):
        numbers = [int(item[1]) for item in ITEM.finditer(text, 0, fence.start())]
        assert numbers, f"commands before the first step: {fence[3]}"
        commands = "\n".join(line.removeprefix(fence[1]) for line in fence[3].splitlines())
        found.setdefault(numbers[-1], []).append(commands)
    return found


def columns(text: str) -> dict[int, set[str]]:
    """Returns the columns that each numbered step names."""
    items = list(ITEM.finditer(text))
    ends = [*(item.start() for item in items[1:]), len(text)]
    found: dict[int, set[str]] = {}
    for item, end in zip(items, ends, strict=True):
        after = AFTER_STEPS.search(text, item.end(), end)
        step = text[item.end() : after.start() if after else end]
        commands = " ".join(fence[3] for fence in FENCE.finditer(step))
        found[int(item[1])] = {name for name in COLUMN.findall(FENCE.sub("", step)) if name not in commands}
    return found


class Operator:
    """Runs commands in one folder, and starts servers there, each with a configuration file."""

    def __init__(self, folder: Path, start: Callable[..., Any]) -> None:
        self.folder = folder
        self.servers: dict[str, Any] = {}
        """By their folder, as commands name it."""
        self.environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self._start = start

    def start(self, kind: str, *arguments: str) -> Any:
        """Starts a server. A thread takes its exit status as soon as it ends, as a supervisor does."""
        server = self._start(kind, *arguments, cwd=self.folder, env=self.environment)
        threading.Thread(target=server.process.wait, daemon=True).start()
        self.servers[arguments[0]] = server
        if kind != "broker":
            self.environment["NAMESRV_ADDR"] = server.name_server
        return server

    @property
    def name_server(self) -> str:
        return self.environment["NAMESRV_ADDR"]

    def kill(self, folder: str) -> None:
        """Ends the server of a folder at once (SIGKILL)."""
        self.servers[folder].process.kill()
        self.servers[folder].process.wait()

    def configure(self, name: str, **settings: object) -> str:
        """Writes a configuration file of small log files, and returns its name."""
        lines = {**SMALL_FILES, **settings}
        file = self.folder / f"{name}.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return file.name

    def shell(self, commands: str, code: int = 0) -> str:
        """Runs commands in a shell, checks their exit code, and returns what they print."""
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=RUN_SECONDS,
        )  # fmt: skip
        printed = result.stdout + result.stderr
        assert result.returncode == code, f"{commands}\nexit code {result.returncode}\n{printed}"
        return printed

    @contextmanager
    def following(self, page: str, **words: object) -> Iterator["Runbook"]:
        """A page whose placeholders these words replace. All of its steps must run within the block."""
        runbook = Runbook(self, (PAGES / f"{page}.md").read_text(), words)
        yield runbook
        assert not runbook.left, f"steps that did not run: {sorted(runbook.left)}"


class Runbook:
    """The steps of one page.

    A fence that starts a server runs in the background, any other one in a shell. The comment `# exit code N` names the
    exit code of a command that fails as the page says.
    """

    def __init__(self, operator: Operator, text: str, words: dict[str, object]) -> None:
        self._operator = operator
        self._steps, self._columns = steps(text), columns(text)
        self.words = words
        self.left = set(self._steps)

    def run(self, *numbers: int) -> str:
        """Runs steps, and returns what they print. A step prints each column that its text names."""
        self.left -= set(numbers)
        return "".join(self._run_step(number) for number in numbers)

    def _run_step(self, number: int) -> str:
        printed = "".join(self._run(self.filled(commands)) for commands in self._steps[number])
        missing = [name for name in self._columns[number] if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", printed)]
        assert not missing, f"step {number} names columns that it does not print: {missing}\n{printed}"
        return printed

    def repeat(self, number: int, holds: Callable[[str], object]) -> str:
        """Runs a step until its output is as the page says."""
        printed = [""]

        def is_reached() -> object:
            printed.append(self.run(number))
            return holds(printed[-1])

        wait_until(is_reached, f"step {number}")
        return printed[-1]

    def filled(self, commands: str) -> str:
        """Replaces the placeholders; words that are functions are called."""
        values = {name: str(word() if callable(word) else word) for name, word in self.words.items()}
        unknown = {word for word in PLACEHOLDER.findall(commands) if word not in values}
        assert not unknown, f"placeholders without a value: {unknown}\n{commands}"
        return PLACEHOLDER.sub(lambda word: values[word[0]], commands)

    def _run(self, commands: str) -> str:
        if SERVER.match(commands):
            self._operator.start(*commands.split()[1:])
            return ""
        code = EXIT_CODE.search(commands)
        return self._operator.shell(commands, int(code[1]) if code else 0)
