"""RocketPy in Spark: source, sink, archive, ranges for `mapPartitions`, and UDFs of bodies, tags and message ids.

No jar is needed.

`spark.read.format("rocketpy")` and `spark.readStream.format("rocketpy")` work without a call to anything here: Spark
finds the module `pyspark_rocketpy`.
Importing this package loads neither Spark nor Arrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rocketpy_mq import check_installation

if TYPE_CHECKING:
    # What `_HOMES` says, for type checkers; tests/sdk/test_names.py compares the two.
    from rocketpy.spark.aggregation import aggregate as aggregate
    from rocketpy.spark.archive.job import ArchiveFormat as ArchiveFormat
    from rocketpy.spark.archive.job import ArchiveJob as ArchiveJob
    from rocketpy.spark.archive.job import ArchiveOptions as ArchiveOptions
    from rocketpy.spark.archive.manifest import ArchiveError as ArchiveError
    from rocketpy.spark.batches import map_batches as map_batches
    from rocketpy.spark.batches import scan as scan
    from rocketpy.spark.bodies import DecodeError as DecodeError
    from rocketpy.spark.bodies import decode as decode
    from rocketpy.spark.ids import msg_id_parts as msg_id_parts
    from rocketpy.spark.ids import offset_msg_id_parts as offset_msg_id_parts
    from rocketpy.spark.ids import tag_hash as tag_hash
    from rocketpy.spark.java import JavaNotFoundError as JavaNotFoundError
    from rocketpy.spark.java import prepare_java as prepare_java
    from rocketpy.spark.options import OptionError as OptionError
    from rocketpy.spark.progress import LagListener as LagListener
    from rocketpy.spark.progress import StreamLag as StreamLag
    from rocketpy.spark.progress import commit_group_offsets as commit_group_offsets
    from rocketpy.spark.session import WorkerPythonError as WorkerPythonError
    from rocketpy.spark.session import cores as cores
    from rocketpy.spark.session import local_session as local_session
    from rocketpy.spark.session import prepare as prepare
    from rocketpy.spark.sink.rows import WriteError as WriteError
    from rocketpy.spark.source import RocketPyDataSource as RocketPyDataSource
    from rocketpy.spark.store import scan_ranges as scan_ranges

_HOMES = {
    "ArchiveError": "archive.manifest",
    "ArchiveFormat": "archive.job",
    "ArchiveJob": "archive.job",
    "ArchiveOptions": "archive.job",
    "DecodeError": "bodies",
    "JavaNotFoundError": "java",
    "LagListener": "progress",
    "OptionError": "options",
    "RocketPyDataSource": "source",
    "StreamLag": "progress",
    "WorkerPythonError": "session",
    "WriteError": "sink.rows",
    "aggregate": "aggregation",
    "commit_group_offsets": "progress",
    "cores": "session",
    "decode": "bodies",
    "local_session": "session",
    "map_batches": "batches",
    "msg_id_parts": "ids",
    "offset_msg_id_parts": "ids",
    "prepare": "session",
    "prepare_java": "java",
    "scan": "batches",
    "scan_ranges": "store",
    "tag_hash": "ids",
}
"""Public names, and the module that defines each."""

check_installation()

if not TYPE_CHECKING:
    __all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rocketpy.spark' has no attribute {name!r}")
    value = getattr(import_module(f"rocketpy.spark.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
