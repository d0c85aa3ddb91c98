"""The clock for timeouts.

Test libraries (freezegun, time-machine) freeze or move the clocks of `time`: a timeout by them never passes, or passes
at once. They do not reach the clock of the extension module. Ruff rejects the others (`pyproject.toml`).
"""

from rocketpy._rocketpy import monotonic

__all__ = ["monotonic"]
