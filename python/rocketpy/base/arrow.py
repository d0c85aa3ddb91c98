"""From the extension's Arrow data to pyarrow and other packages, which are needed only there."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow

    from rocketpy._rocketpy import ArrowBatch


OLDEST_POLARS = (1, 36)
"""The oldest version that was tried and takes Arrow's maps; 1.20 does not."""


def import_optional(module: str, extra: str) -> ModuleType:
    """A module that the package does without, imported now.

    Args:
        module: Its name, which is also that of its package.
        extra: The extra that brings it.

    Raises:
        RocketPyError: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as missing:
        raise RocketPyError(f"{module} is not installed", hint=f'pip install "rocketpy-mq[{extra}]"') from missing


def import_pyarrow() -> ModuleType:
    """The module, imported now.

    Raises:
        RocketPyError: It is not installed.
    """
    return import_optional("pyarrow", "arrow")


def import_polars() -> ModuleType:
    """The module, imported now.

    Raises:
        RocketPyError: It is not installed, or too old: it would panic at the properties, after they were taken.
    """
    polars = import_optional("polars", "polars")
    if tuple(map(int, polars.__version__.split(".")[:2])) < OLDEST_POLARS:
        oldest = ".".join(map(str, OLDEST_POLARS))
        raise RocketPyError(
            f"polars {polars.__version__} cannot hold properties, {oldest} can",
            hint='pip install --upgrade "rocketpy-mq[polars]", or fetch_arrow()',
        )
    return polars


def pyarrow_batch(batch: ArrowBatch) -> pyarrow.RecordBatch:  # pyright: ignore[reportUnknownParameterType, reportUnknownMemberType]
    """The same columns as a `pyarrow.RecordBatch`; nothing is copied."""
    return import_pyarrow().record_batch(batch)
