"""A driver, to be killed: writes the files of a folder to a topic as a stream. `python sink_program.py JSON`."""

import json
import sys

from pyspark.sql import functions as sql

from rocketpy.spark import local_session
from rocketpy.spark.session import QUICK_JVM


def main(given: dict) -> None:
    """Runs until all files are written.

    Args:
        given: `files`, `checkpoint`, `sink` (options), `files_per_batch`, and `hang_at`: the number whose row is never
            computed, or -1.
    """
    spark = local_session(
        "sink",
        given["work"],
        cores="2,6",
        memory="1g",
        config={
            "spark.driver.extraJavaOptions": QUICK_JVM,
            "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
            "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    numbers = spark.readStream.schema("number int").option("maxFilesPerTrigger", given["files_per_batch"])
    sleep = "java_method('java.lang.Thread', 'sleep', 3600000L)"
    hang = f"CASE WHEN number = {given['hang_at']} THEN {sleep} ELSE '' END" if given["hang_at"] >= 0 else "''"
    rows = numbers.json(given["files"]).select(
        sql.concat(
            sql.col("number").cast("string"), sql.lit(" "), sql.expr(hang), sql.repeat(sql.lit("x"), 8000)
        ).alias("body"),
        (sql.col("number") % 5).cast("string").alias("order_key"),
    )
    query = rows.writeStream.format("rocketpy").options(**given["sink"], checkpointLocation=given["checkpoint"])
    query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
