"""Two wheels in turns, such as that of a release and the one after a change: each figure of the new one as a ratio.

    python benches/macro/wheels.py OLD_ENVIRONMENT NEW_ENVIRONMENT --rounds 5

An environment is a folder in which a wheel is installed (`python -m venv`, `pip install`). Each turn is a process of
that environment; its server is the command of the same wheel. The ratio of a figure is taken in each round; the table
shows the median of the ratios, and the least and the most. A figure that got worse by more than 5 % is red, and the
exit code is 1 then. `--sends` takes the native sends alone, for many rounds.
"""

import argparse
import json
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

import messages
from connections import idle, make_topic
from native import Figures, native
from process import COMMAND, Running, anonymous_memory_bytes, cpu_seconds, server
from start import empty_peak_memory, first_acknowledged
from turns import Rounds, figures_of, take_turns

if TYPE_CHECKING:
    from collections.abc import Callable

TURN_SECONDS = 900
WORSE = 0.05
STARTS = 5
SENDS = {"1 at a time": (1, 1, 20_000, 1), "64 at a time": (64, 1, 200_000, 1), "batches": (4, 4, 1_000_000, 32)}
"""Native sends: connections, window, messages, and messages of a batch."""


def sends(running: Running) -> Figures:
    """Rates and broker processor time of the native load."""
    found: Figures = {}
    for name, (connections, window, count, batch) in SENDS.items():
        broker = cpu_seconds(running.pid)
        figures = native(connections, window, count, batch=batch)(running)
        found[f"send, {name}: messages/s"] = figures["messages"] / figures["seconds"]
        found[f"send, {name}: broker CPU s"] = cpu_seconds(running.pid) - broker
    return found


def python_clients(running: Running) -> Figures:
    """Rates and processor time of Python's clients."""
    found: Figures = {}
    works: tuple[Callable[[Running], int], ...] = (
        messages.send_many,
        messages.poll,
        messages.fetch_arrow,
        messages.submit,
    )
    for work in works:
        one = messages.measured(running, partial(work, running))
        found[f"Python {work.__name__}: messages/s"] = one["messages_per_s"]
        found[f"Python {work.__name__}: client CPU s"] = one["client_cpu_s_per_million"]
        found[f"Python {work.__name__}: broker CPU s"] = one["broker_cpu_s_per_million"]
    return found


def only_sends() -> Figures:
    """The figures of the native load."""
    with server(COMMAND) as running:
        make_topic(running)
        return sends(running)


def turn() -> Figures:
    """Every figure of the wheel of this process."""
    found = {f"10,000 connections: {name}": value for name, value in idle(COMMAND).items()}
    found["start to first acknowledged message: s"] = statistics.median(
        first_acknowledged(COMMAND) for _ in range(STARTS)
    )
    found["empty: peak memory"] = empty_peak_memory(COMMAND)
    with server(COMMAND) as running:
        make_topic(running)
        found |= sends(running)
    with server(COMMAND) as running:
        make_topic(running)
        found |= python_clients(running)
        found["after the messages: anonymous memory"] = anonymous_memory_bytes(running.pid)
    return found


def change(figure: str, ratio: float) -> float:
    """How much worse a ratio of new to old is: more messages a second are better, more of the rest is worse."""
    return 1 - ratio if figure.endswith("messages/s") else ratio - 1


def compare(console: Console, taken: Rounds) -> bool:
    """Prints the ratios. Returns whether none is worse than allowed."""
    olds, news = taken["old"], taken["new"]
    table = Table("figure", "old", "new", "new / old (least to most)")
    holds = True
    for figure in olds[0]:
        ratios = [new[figure] / old[figure] for old, new in zip(olds, news, strict=True) if old[figure]]
        if not ratios:
            continue
        ratio = statistics.median(ratios)
        is_worse = change(figure, ratio) > WORSE
        holds &= not is_worse
        medians = (statistics.median(one[figure] for one in rounds) for rounds in (olds, news))
        spread = f"{ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        table.add_row(figure, *(f"{median:,.4g}" for median in medians), spread, style="red" if is_worse else None)
    console.print(table)
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "environments", nargs="*", type=Path, metavar="ENVIRONMENT", help="the old one, then the new one"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sends", action="store_true", help="only the native sends")
    given = parser.parse_args()
    if not given.environments:  # a turn
        print(json.dumps(only_sends() if given.sends else turn()))
        return 0
    if len(given.environments) != 2:
        parser.error("two environments are compared")
    pythons = dict(zip(("old", "new"), (one.absolute() / "bin/python" for one in given.environments), strict=True))
    for python in pythons.values():
        subprocess.run([python, "-c", "import rocketpy"], check=True)
    console = Console(width=None if sys.stdout.isatty() else 160)

    def one_turn(name: str) -> Figures:
        of_turn = ["--sends"] * given.sends
        return figures_of([str(pythons[name]), __file__, *of_turn], str(Path.home()), TURN_SECONDS)

    taken, failures = take_turns(console, "wheels", pythons, given.rounds, one_turn)
    for failure in failures:
        console.print(failure, style="red", markup=False)
    return 0 if not failures and compare(console, taken) else 1


if __name__ == "__main__":
    sys.exit(main())
