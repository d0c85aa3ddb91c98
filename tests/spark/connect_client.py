"""A client of Spark Connect, which has no Java: does all that works there. `python connect_client.py JSON`.

It prints what came of each step as one JSON object.
"""

import json
import sys
import threading

import pyarrow as pa
from pyspark.sql import SparkSession

from rocketpy.errors import NotSupportedError
from rocketpy.spark import LagListener, aggregate, commit_group_offsets, cores, decode, map_batches, scan, tag_hash
from rocketpy.spark.flight_delays import delays_by_ranges
from rocketpy.spark.job import session

REPORT_SECONDS = 300


def count(batch):
    return pa.record_batch({"messages": pa.array([batch.num_rows])})


def refusal(call):
    """What a call is refused with."""
    try:
        call()
    except NotSupportedError as error:
        return f"{error}; {error.hint}"
    return None


def main(given: dict) -> dict:
    """Runs all steps.

    Args:
        given: `remote`, `name_server`, `path`, `topic`, `batch_target`, `stream_target` and `checkpoint`.
    """
    spark = SparkSession.builder.remote(given["remote"]).getOrCreate()
    source = {"name_server": given["name_server"], "topic": given["topic"]}
    target = {"name_server": given["name_server"], "progress_topic": ""}
    done: dict[str, object] = {"cores": cores(spark)}

    bodies = spark.read.format("rocketpy").options(**source).load().select(decode("n int")("body").alias("body"))
    done["batch"] = bodies.selectExpr("sum(body.n)").first()[0]
    done["folder"] = scan(spark, path=given["path"], topic=given["topic"]).count()
    mapped = map_batches(spark, count, "messages bigint", columns=["body"], **source)
    done["map_batches"] = mapped.selectExpr("sum(messages)").first()[0]
    done["aggregate"] = {row.tag: row.messages for row in aggregate(spark, ["tag"], **source).collect()}

    rows = scan(spark, columns=["body", "tag"], **source)
    spark.udf.register("tag_hash", tag_hash())
    rows.createOrReplaceTempView("messages")
    hashes = spark.sql("select distinct tag, tag_hash(tag) hash from messages")
    done["tag_hashes"] = {row.tag: row.hash for row in hashes.collect()}
    rows.write.format("rocketpy").options(topic=given["batch_target"], **target).mode("append").save()

    lags: list[int] = []
    caught_up = threading.Event()

    def report(lag):
        lags.append(lag.total)
        if not lag.total:
            caught_up.set()

    listener = LagListener(report)
    spark.streams.addListener(listener)
    stream = spark.readStream.format("rocketpy").options(**source, max_offsets_per_trigger="200").load().select("body")
    writer = stream.writeStream.format("rocketpy").options(
        name_server=given["name_server"], topic=given["stream_target"]
    )
    query = writer.option("checkpointLocation", given["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()
    done["lags"] = [caught_up.wait(REPORT_SECONDS), *lags]
    spark.streams.removeListener(listener)  # its thread would keep this process alive
    done["committed"] = sum(commit_group_offsets(query, given["group"], given["name_server"]).values())

    done["ranges"] = refusal(lambda: delays_by_ranges(spark, given["path"], given["topic"]))
    done["jobs"] = refusal(session("audit").__enter__)
    spark.stop()
    return done


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
