"""Converts the extension's Arrow data for pyarrow and other optional packages."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow

    from rocketpy._rocketpy import ArrowBatch


OLDEST_POLARS = (1, 36)
"""Minimum supported version, which accepts Arrow's maps; 1.20 does not."""


def import_optional(module: str, extra: str) -> ModuleType:
    """Imports an optional module.

    Args:
        module: Name of the module, which is also the name of its package.
        extra: Extra of this package that installs it.

    Raises:
        RocketPyError: The package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as missing:
        raise RocketPyError(f"{module} is not installed", hint=f'pip install "rocketpy-mq[{extra}]"') from missing


def import_pyarrow() -> ModuleType:
    """Imports the module.

    Raises:
        RocketPyError: The package is not installed.
    """
    return import_optional("pyarrow", "arrow")


def import_polars() -> ModuleType:
    """Imports the module.

    Raises:
        RocketPyError: The package is not installed, or too old: it would panic at the properties, after messages were
            taken.
    """
    polars = import_optional("polars", "polars")
    if tuple(map(int, polars.__version__.split(".")[:2])) < OLDEST_POLARS:
        oldest = ".".join(map(str, OLDEST_POLARS))
        raise RocketPyError(
            f"polars {polars.__version__} cannot hold message properties: polars {oldest} or later is required",
            hint='pip install --upgrade "rocketpy-mq[polars]", or use fetch_arrow()',
        )
    return polars


def pyarrow_batch(batch: ArrowBatch) -> pyarrow.RecordBatch:  # pyright: ignore[reportUnknownParameterType, reportUnknownMemberType]
    """Converts to a `pyarrow.RecordBatch` without a copy."""
    return import_pyarrow().record_batch(batch)
