"""The job `trace_latency`, on flights of clients that trace."""

import datetime

import pytest

import rocketpy
import spark_jobs
from rocketpy import _rocketpy, store
from rocketpy.spark.trace_latency import main
from rocketpy.testing import fresh_name
from waiting import wait_until

FLIGHTS = 200


@pytest.fixture(scope="module")
def traced(rocketpy_server):
    """A topic, its trace topic and a consumer group; every flight was consumed."""
    topic, traces, group = fresh_name("traced"), fresh_name("traces"), fresh_name("tracing")
    server = rocketpy_server
    with server.admin() as admin:
        admin.create_topic(topic, queues=2)
        admin.create_topic(traces, queues=1)
        with server.producer("flights", trace_topic=traces) as producer:
            (messages,) = spark_jobs.flights(FLIGHTS).messages(topic, FLIGHTS)
            receipts = list(producer.send_many(messages))
        with server.consumer(group, topic, start=rocketpy.Start.EARLIEST, trace_topic=traces) as consumer:
            read = 0
            while read < FLIGHTS:
                read += len(consumer.poll())
            consumer.commit()
        found: list[str] = []

        def all_are_there():
            (info,) = admin.describe_topic(traces).queues
            with rocketpy.RangeReader(info.queue, 0, info.max_offset, name_servers=server.name_server) as reader:
                bodies = [message.body for messages in reader.messages() for message in messages]
            found[:] = [record["step"] for body in bodies for record in _rocketpy.trace_records(body)]
            return sorted(found) == ["began"] * FLIGHTS + ["ended"] * FLIGHTS + ["sent"] * FLIGHTS

        wait_until(all_are_there, "the traces")
        with server.producer("again") as producer:
            (info,) = admin.describe_topic(traces).queues
            with rocketpy.RangeReader(info.queue, 0, 1, name_servers=server.name_server) as reader:
                (first,) = next(reader.messages())
            producer.send(rocketpy.Message(traces, first.body))  # a trace that its client sent twice
        wait_until(lambda: admin.max_offset(info.queue) > info.max_offset, "the trace that is there twice")
    spark_jobs.wait_for_receipts(server, receipts)
    return topic, traces, group


def test_each_way_of_a_message_is_measured(spark, traced, rocketpy_server, tmp_path, capsys):
    topic, traces, group = traced
    given = ("--topic", topic, "--trace-topic", traces, "--name-server", rocketpy_server.name_server)
    code, rows = spark_jobs.run(main, capsys, *given, "--out", tmp_path / "latency")
    assert code == 0
    by_measure = {row["measure"]: row for row in rows}
    assert len(rows) == 4
    assert {name: (row["topic"], row["group"]) for name, row in by_measure.items()} == {
        "stored": (topic, None),
        "sent": (topic, "flights"),
        "delivered": (topic, group),
        "worked": (topic, group),
    }
    for row in rows:
        assert (row["count"], row["failed"], row["repeated"]) == (FLIGHTS, 0, 0)
        assert 0 <= row["median_ms"] <= row["p90_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert (tmp_path / "latency" / "latencies.png").read_bytes().startswith(b"\x89PNG")
    assert len(spark.read.parquet(str(tmp_path / "latency" / "latencies.parquet")).first().quantiles_ms) == 102


def test_the_way_into_the_log_is_from_born_to_stored(spark, tmp_path, capsys):
    began = datetime.datetime.now(datetime.UTC)
    born = [(began - datetime.timedelta(seconds=number)).isoformat() for number in range(1, 10)]
    store.import_messages([{"topic": "t", "body": "x", "born_at": at} for at in born], tmp_path / "store")
    code, (row,) = spark_jobs.run(main, capsys, "--path", tmp_path / "store", "--topic", "t")
    assert (code, row["measure"], row["count"]) == (0, "stored", 9)
    scan = spark.read.format("rocketpy").options(path=str(tmp_path / "store"), topic="t", columns="born_at,stored_at")
    took = [(row.stored_at - row.born_at).total_seconds() * 1000 for row in scan.load().collect()]
    assert min(took) >= 999
    assert (row["mean_ms"], row["max_ms"]) == pytest.approx((sum(took) / len(took), max(took)))


def test_traces_alone_and_messages_alone(spark, traced, rocketpy_server, capsys):
    topic, traces, _ = traced
    given = ("--name-server", rocketpy_server.name_server)
    code, rows = spark_jobs.run(main, capsys, *given, "--trace-topic", traces)
    assert (code, [row["measure"] for row in rows]) == (0, ["delivered", "sent", "worked"])
    code = main([*given, "--topic", topic, "--trace-topic", "nowhere"])
    printed = capsys.readouterr()
    assert code == 0
    assert "stored" in printed.out
    assert "only the way into the log is measured" in " ".join(printed.err.split())
    assert main([*given, "--trace-topic", "nowhere"]) == 3
    assert "trace=True" in capsys.readouterr().err
    code, rows = spark_jobs.run(main, capsys, *given, "--topic", topic, "--trace-topic", traces, "--dry-run")
    assert code == 0
    assert {row["topic"] for row in rows} == {topic, traces}
