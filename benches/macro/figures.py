"""Prints every figure with its target, saves them for this release and draws one chart a page.

Run by ``make bench`` after the criterion kernels. Each figure is taken on this machine now; ratios are interleaved.
"""

import os
import platform
import subprocess
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from rich.console import Console
from rich.table import Table

import kernels
import messages
import results
import spark_scan
import start


def holds(figure: dict[str, float | str]) -> bool | None:
    """Whether a figure meets its target, such as ``>= 0.5``; ``None`` when it has none."""
    comparison, _, bound = str(figure["target"]).partition(" ")
    if not bound:
        return None
    limit, value = float(bound), float(figure["value"])
    return value >= limit if comparison == ">=" else value <= limit


def draw(name: str, figures: dict[str, dict[str, float | str]]) -> None:
    """One bar for each figure that has a target: how much of the target was reached, 1 being all of it."""
    reached = {}
    for title, figure in figures.items():
        if holds(figure) is not None:
            limit, value = float(str(figure["target"]).split()[1]), float(figure["value"])
            reached[title] = value / limit if str(figure["target"]).startswith(">=") else limit / max(value, 1e-9)
    if not reached:
        return
    shown = {title: min(part, 3) for title, part in reversed(reached.items())}
    chart, axes = pyplot.subplots(figsize=(10, 1 + 0.4 * len(shown)), layout="constrained")
    axes.barh(
        list(shown), list(shown.values()), color=["tab:green" if part >= 1 else "tab:red" for part in shown.values()]
    )
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel("part of the target reached (cut at 3)")
    chart.savefig(results.CHARTS / f"{name}.png", dpi=100)
    pyplot.close(chart)


def main() -> None:
    subprocess.run(["cargo", "build", "--release", "--locked", "-p", "rocketpy-server"], check=True)
    console, taken = Console(width=None if sys.stdout.isatty() else 160), {}
    results.CHARTS.mkdir(parents=True, exist_ok=True)
    for page in (kernels, start, messages, spark_scan):
        with console.status(f"measuring {page.__name__}"):
            figures = page.figures()
        draw(page.__name__, figures)
        taken |= figures
    table = Table("figure", "value", "unit", "target", "holds", "more")
    for name, figure in taken.items():
        more = ", ".join(
            f"{key} {value:.3g}" for key, value in figure.items() if key not in ("value", "unit", "target")
        )
        table.add_row(
            name,
            f"{figure['value']:,.3g}" if figure["value"] < 1000 else f"{figure['value']:,.0f}",
            str(figure["unit"]),
            str(figure["target"]),
            {True: "yes", False: "no", None: ""}[holds(figure)],
            more,
        )
    console.print(table)
    machine = {"processors": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    path = results.save("figures", {"machine": machine, "figures": taken})
    console.print(f"written to {path}, charts to {results.CHARTS}")


if __name__ == "__main__":
    main()
