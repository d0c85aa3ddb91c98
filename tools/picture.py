#!/usr/bin/env python3
"""Draws docs/terminal.svg: the commands of the README in a terminal, with what the installed `rocketpy` really prints.

tools/picture.py runs the block `console` of README.md in an empty folder, on free ports. Run it when that block or the
output of its commands has changed; a test compares the commands.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/terminal.svg"
WIDTH = 124
FREE_PORTS = {"ROCKETPY_LISTEN_PORT": "0", "ROCKETPY_NAME_SERVER_PORT": "0"}
SMALL_FILES = {"ROCKETPY_MAPPED_FILE_SIZE_COMMIT_LOG": "16777216"}
START_SECONDS = 30


def commands() -> list[str]:
    """Commands of the README's console block; the first one starts the server in the background."""
    (block,) = re.findall(r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    found = re.findall(r"^\$ (.*)$", block, re.MULTILINE)
    assert found[0].startswith("rocketpy server data"), found
    return found


def transcript(folder: Path) -> Text:
    """Runs the commands and returns what a terminal would show."""
    server, *others = commands()
    ready = folder / "ready.json"
    colours = {"COLUMNS": str(WIDTH), "TERM": "xterm-256color", "TZ": "UTC"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, **FREE_PORTS, **SMALL_FILES, **colours, "PATH": path}
    line = ["rocketpy", "server", "data", "--ready-file", str(ready)]
    shown = Text()
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(line, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not ready.exists():
            assert process.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline, f"no server within {START_SECONDS} s"
            time.sleep(0.01)
        environment["NAMESRV_ADDR"] = json.loads(ready.read_text())["name_server"]
        shown.append(f"$ {server}\n", "bold")
        for command in others:
            shown.append(f"$ {command}\n", "bold")
            terminal = ["script", "--quiet", "--return", "--command", command, os.devnull]
            ended = subprocess.run(
                terminal,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
            )
            shown.append_text(Text.from_ansi(settled(ended.stdout.decode())))
            shown.append("\n")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    return shown


def settled(output: str) -> str:
    """What stays on the terminal: of a line that is drawn again and again, such as a progress bar, the last drawing."""
    lines = output.replace("\r\n", "\n").rstrip().split("\n")
    return "\n".join(line.rpartition("\x1b[2K")[2].removeprefix("\r") for line in lines)


def main() -> None:
    """Draws the picture."""
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        console.print(transcript(Path(folder)), end="")
        # The fonts of the reader: a picture fetches nothing.
        own_fonts = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
        PICTURE.write_text(console.export_svg(title="rocketpy", code_format=own_fonts, unique_id="rocketpy") + "\n")


if __name__ == "__main__":
    main()
