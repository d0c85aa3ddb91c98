"""The driver of test_cluster.py. Each line of its input is a step as JSON; it prints what came of it.

What spark-submit would be told is in the environment.
"""

import json
import sys

from pyspark.sql import SparkSession

import rocketpy
from rocketpy.spark import cores, map_batches, scan

PADDING = b" " * 500


def fill(_spark, name_server, topic, messages, targets):
    """Makes topics, and sends numbers to the first."""
    with rocketpy.Admin(name_server) as admin, rocketpy.Producer("cluster", name_servers=name_server) as producer:
        for name in (topic, *targets):
            admin.create_topic(name, queues=4)
        producer.send_many([rocketpy.Message(topic, b"%010d" % number + PADDING) for number in range(messages)])


def plan(spark, **source):
    """How many tasks the cluster runs at once, and how many partitions are made for it."""
    return {"cores": cores(spark), "partitions": scan(spark, **source).rdd.getNumPartitions()}


def add_up(spark, barrier, **source):
    """Adds up in the workers. Each says where it runs, and waits at its first batch until the barrier is open."""

    def add(batch):
        import time
        from pathlib import Path

        import pyarrow as pa
        import pyarrow.compute as pc

        import rocketpy

        machine = (Path(rocketpy.__file__).parents[1] / "machine").read_text()
        Path(barrier, machine).touch()
        while not Path(barrier, "open").exists():
            time.sleep(0.01)
        numbers = pc.utf8_slice_codeunits(batch.column("body").cast(pa.string()), 0, 10).cast(pa.int64())
        return pa.record_batch({"machine": [machine], "messages": [len(numbers)], "total": [pc.sum(numbers).as_py()]})

    rows = map_batches(
        spark, add, "machine string, messages bigint, total bigint", columns=["body"], **source
    ).collect()
    return {
        "machines": sorted({row.machine for row in rows}),
        "sums": [sum(row.messages for row in rows), sum(row.total for row in rows)],
    }


def copy(spark, name_server, topic, target, state):
    """Copies a topic by a stream."""
    stream = spark.readStream.format("rocketpy").options(name_server=name_server, topic=topic, min_partitions=4)
    writer = stream.load().select("body").writeStream.format("rocketpy").options(name_server=name_server, topic=target)
    query = writer.option("checkpointLocation", state).trigger(availableNow=True).start()
    query.awaitTermination()
    return {"rows": query.lastProgress.numInputRows}


def count(spark, **source):
    """Counts rows."""
    return {"rows": scan(spark, columns=["queue_offset"], **source).count()}


def main() -> None:
    """Runs steps until its input ends."""
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    steps = {step.__name__: step for step in (fill, plan, add_up, copy, count)}
    for line in sys.stdin:
        given = json.loads(line)
        try:
            answer = steps[given.pop("step")](spark, **given)
        except Exception as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
