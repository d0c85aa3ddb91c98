"""RocketPy in Spark: a data source, ranges for `mapPartitions`, and a UDF that decodes bodies. No jar is needed.

`spark.read.format("rocketpy")` works without a call to anything here: Spark finds the module `pyspark_rocketpy`.
Importing this package loads neither Spark nor Arrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketpy.spark.bodies import decode
    from rocketpy.spark.java import JavaNotFoundError, prepare_java
    from rocketpy.spark.options import OptionError
    from rocketpy.spark.session import local_session
    from rocketpy.spark.source import RocketPyDataSource
    from rocketpy.spark.store import scan_ranges

__all__ = [
    "JavaNotFoundError",
    "OptionError",
    "RocketPyDataSource",
    "decode",
    "local_session",
    "prepare_java",
    "scan_ranges",
]

_HOMES = {
    "JavaNotFoundError": "java",
    "OptionError": "options",
    "RocketPyDataSource": "source",
    "decode": "bodies",
    "local_session": "session",
    "prepare_java": "java",
    "scan_ranges": "store",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rocketpy.spark' has no attribute {name!r}")
    value = getattr(import_module(f"rocketpy.spark.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
