"""From the extension's Arrow data to pyarrow, which is needed only here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow

    from rocketpy._rocketpy import ArrowBatch


def import_pyarrow() -> ModuleType:
    """The module, imported now.

    Raises:
        RocketPyError: It is not installed.
    """
    try:
        return import_module("pyarrow")
    except ImportError as missing:
        raise RocketPyError("pyarrow is not installed", hint='pip install "rocketpy-mq[arrow]"') from missing


def pyarrow_batch(batch: ArrowBatch) -> pyarrow.RecordBatch:  # pyright: ignore[reportUnknownParameterType, reportUnknownMemberType]
    """The same columns as a `pyarrow.RecordBatch`; nothing is copied."""
    return import_pyarrow().record_batch(batch)
