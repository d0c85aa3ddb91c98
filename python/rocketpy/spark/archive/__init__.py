"""The job `archive` and the formats of its files. See `rocketpy.spark.archive.job`.

This file starts the job for spark-submit, and loads it only then: workers import the formats alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job from a command line.

    Args:
        arguments: Command line; default: that of the process.

    Returns:
        The exit code.
    """
    from rocketpy.spark.archive.job import main as run

    return run(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
