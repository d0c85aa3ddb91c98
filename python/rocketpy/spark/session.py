"""A Spark session on this machine alone, set up so that it starts fast and needs no network name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from rocketpy.errors import NotSupportedError, RocketPyError
from rocketpy.spark.java import prepare_java

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

END_SECONDS = 5.0

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options for `spark.driver.extraJavaOptions` that start a session sooner and make long scans slower."""


MOST_CORES = 1 << 16
"""More than any cluster has."""

NO_CONTEXT = "this needs a classic session: Spark Connect has no SparkContext"
NO_CONTEXT_HINT = (
    "start it by spark-submit without --remote and SPARK_REMOTE, or use what runs under Spark Connect: "
    "format('rocketpy'), map_batches, aggregate"
)


class WorkerPythonError(RocketPyError):
    """Spark's workers run a Python without RocketPy. A retry helps only after another session was started."""


def prepare() -> None:
    """Ensures that Spark finds a Java, and runs its workers with this Python. Call it before the first session.

    Without it Spark takes the `python3` of the search path, which has no RocketPy unless the virtual environment is
    activated. `PYSPARK_PYTHON` has precedence if it is set.

    Raises:
        JavaNotFoundError: Java 17 or newer is not installed.
        WorkerPythonError: A session runs already, and the Python of its workers has no RocketPy.
    """
    prepare_java()
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    if context is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return
    worker = shutil.which(str(context.pythonExec))
    if worker is None:  # it is on other machines only
        return
    if subprocess.run([worker, "-c", "import rocketpy, pyspark_rocketpy"], capture_output=True).returncode != 0:
        raise WorkerPythonError(
            f"Spark's workers run a Python without RocketPy: {worker}",
            hint=f"call rocketpy.spark.prepare() before the session is made, or set PYSPARK_PYTHON={sys.executable}",
        )


def local_session(
    name: str = "rocketpy",
    folder: str | Path | None = None,
    *,
    cores: str = "2",
    memory: str = "2g",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Starts (or takes over) the Spark session of this process.

    Workers run this process's Python, and everything stays on loopback. Memory and Java options count only for
    the first session of a process, which starts the JVM.

    Args:
        name: Application name.
        folder: Folder for tables and temporary files; None for Spark's defaults.
        cores: Tasks at once, as in `local[...]`: "2", "*", or "2,3" for three tries of each task.
        memory: Heap of the JVM, such as "2g".
        config: More Spark settings; they override the ones made here.

    Returns:
        The session. Stop it with its `stop()`.

    Raises:
        JavaNotFoundError: Java 17 or newer is not installed.
        WorkerPythonError: The session of this process has workers without RocketPy.
    """
    prepare()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")  # a machine's name need not resolve
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if folder is not None:
        settings |= {"spark.local.dir": f"{folder}/spark", "spark.sql.warehouse.dir": f"{folder}/warehouse"}
    settings |= config or {}
    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def cores(spark: SparkSession) -> int:
    """Counts the tasks that the cluster runs at once, for the option `min_partitions`.

    A Python data source is planned in a process that knows of the driver's own cores only.

    Args:
        spark: Spark session. With Spark Connect, a small query counts the tasks.

    Returns:
        At least 1. While executors are still joining, only those that have joined count.

    Examples:
        With a session::

            spark.read.format("rocketpy").option("min_partitions", cores(spark))
    """
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        return max(1, int(context.defaultParallelism))
    from pyspark.sql.functions import spark_partition_id

    # Spark cuts a range into as many partitions as tasks run at once, if not told how many.
    return spark.range(MOST_CORES).select(spark_partition_id()).distinct().count()


def context_of(spark: SparkSession) -> SparkContext:
    """Returns the context of a session, for RDDs and the progress of tasks.

    Args:
        spark: Classic Spark session.

    Raises:
        NotSupportedError: The session is one of Spark Connect.
    """
    context: SparkContext | None = getattr(spark, "sparkContext", None)
    if context is None:
        raise NotSupportedError(NO_CONTEXT, hint=NO_CONTEXT_HINT)
    return context


def refuse_connect() -> None:
    """Rejects a process that has sessions of Spark Connect, or would get one.

    Raises:
        NotSupportedError: The process uses Spark Connect.
    """
    if {"SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"} & os.environ.keys():
        raise NotSupportedError(NO_CONTEXT, hint=NO_CONTEXT_HINT)


def no_pyspark() -> RocketPyError:
    """Returns the error for a missing PySpark."""
    return RocketPyError("PySpark is not installed", hint='pip install "rocketpy-mq[spark]"')


def end_spark() -> None:
    """Kills the Java process of this process's Spark; calls that wait for its answer get an error.

    For a program that must end quickly; does nothing without a session. Normally, call the session's `stop()`.
    """
    pyspark = sys.modules.get("pyspark")
    gateway = None if pyspark is None else pyspark.SparkContext._gateway
    java = getattr(gateway, "proc", None)
    if java is None:
        return
    java.terminate()
    try:
        java.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()
