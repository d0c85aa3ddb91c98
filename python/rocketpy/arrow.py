"""From the extension's Arrow data to pyarrow, which is needed only here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    import pyarrow

    from rocketpy._rocketpy import ArrowBatch, Scan


def pyarrow_batch(batch: ArrowBatch) -> pyarrow.RecordBatch:
    """The same columns as a `pyarrow.RecordBatch`; nothing is copied."""
    try:
        import pyarrow
    except ImportError as missing:
        raise needs_pyarrow() from missing
    return pyarrow.record_batch(batch)


def pyarrow_reader(scan: Scan) -> pyarrow.RecordBatchReader:
    """The same batches as a `pyarrow.RecordBatchReader`; nothing is copied."""
    try:
        import pyarrow
    except ImportError as missing:
        raise needs_pyarrow() from missing
    return pyarrow.RecordBatchReader.from_stream(scan)


def needs_pyarrow() -> RocketPyError:
    """The error of an environment without pyarrow."""
    return RocketPyError("pyarrow is not installed", hint='pip install "rocketpy-mq[arrow]"')
