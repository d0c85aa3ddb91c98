"""Programs of the guides: the blocks of Python in a page of docs, each to be run in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import rocketpy

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^(<!-- p2 -->\n)?```python ?(\S*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUN_SECONDS = 240


def blocks(page: Path) -> list[tuple[str, str]]:
    """File name, if any, and text of each block. Marked ones are left out: what they show is not merged yet."""
    return [(name, text) for mark, name, text in BLOCK.findall(page.read_text()) if not mark]


def programs(*pages: Path) -> dict[str, str]:
    """Blocks without a file name, by page and number."""
    return {
        f"{page.stem}-{number}": text for page in pages for number, (name, text) in enumerate(blocks(page)) if not name
    }


def run(command: list[str], folder: Path, server: rocketpy.Server) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NAMESRV_ADDR": server.name_server}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )


def check_program(program: str, folder: Path, server: rocketpy.Server) -> None:
    """Runs a program as it stands, with warnings as errors."""
    (folder / "program.py").write_text(program)
    ended = run([sys.executable, "-W", "error", "program.py"], folder, server)
    assert ended.returncode == 0, f"{program}\n{ended.stdout}\n{ended.stderr}"
