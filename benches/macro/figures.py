"""Prints every figure with its target and writes them to ``benches/results/figures.json``.

Run by ``make bench`` after the criterion kernels. Each figure is taken on this machine now; ratios are interleaved.
"""

import json
import os
import platform
import subprocess
from pathlib import Path

from rich.console import Console
from rich.table import Table

import messages
import spark_scan
import start


def main() -> None:
    subprocess.run(["cargo", "build", "--release", "--locked", "-p", "rocketpy-server"], check=True)
    console, results = Console(), {}
    for page in (start, messages, spark_scan):
        with console.status(f"measuring {page.__name__}"):
            results |= page.figures()
    table = Table("figure", "value", "unit", "target", "more")
    for name, figure in results.items():
        more = ", ".join(
            f"{key} {value:.3g}"
            for key, value in figure.items()
            if key not in ("value", "unit", "target", "messages_per_s")
        )
        table.add_row(
            name,
            f"{figure['value']:,.3g}" if figure["value"] < 1000 else f"{figure['value']:,.0f}",
            str(figure["unit"]),
            str(figure["target"]),
            more,
        )
    console.print(table)
    path = Path("benches/results/figures.json")
    path.parent.mkdir(exist_ok=True)
    machine = {"processors": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    path.write_text(json.dumps({"machine": machine, "figures": results}, indent=1) + "\n")
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()
