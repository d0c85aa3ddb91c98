"""Writing with `format("rocketpy")`, in batches and in streams, to a real server."""

import json
import math
import re
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

import rocketpy
from closed_server import USERS_ON, ClosedServer
from rocketpy.spark.sink.rows import ROW_PROPERTY
from rocketpy.spark.sink.writers import batch_writer, stream_writer
from rocketpy.testing import SMALL_FILES, drain, fresh_name


def write(frame, server, **options):
    writer = frame.write.format("rocketpy").mode("append").options(name_server=server.name_server, **options)
    writer.save()


def received(server, *topics):
    """All messages of some topics, in the order of each queue."""
    with server.consumer(fresh_name("readers"), list(topics)) as consumer:
        return drain(consumer)


def bodies(server, topic):
    return Counter(message.body for message in received(server, topic))


def start(frame, server, checkpoint, **options):
    return (
        frame.writeStream.format("rocketpy")
        .options(name_server=server.name_server, checkpointLocation=str(checkpoint), **options)
        .queryName(fresh_name("query"))  # Spark hands the name over as an option
        .trigger(availableNow=True)
        .start()
    )


def run(frame, server, checkpoint, **options):
    query = start(frame, server, checkpoint, **options)
    assert query.awaitTermination(300)
    assert query.exception() is None
    return query


@pytest.fixture
def numbers(spark, tmp_path):
    """A stream of the numbers 0 to 99, as two batches of two files each."""
    folder = tmp_path / "numbers"
    folder.mkdir()
    for part in range(4):
        lines = "".join(json.dumps({"number": number}) + "\n" for number in range(part * 25, part * 25 + 25))
        (folder / f"{part}.json").write_text(lines)
    return spark.readStream.schema("number int").option("maxFilesPerTrigger", 2).json(str(folder))


def as_bodies(frame):
    return frame.select(sql.col("number").cast("string").alias("body"))


def test_every_column_arrives(spark, rocketpy_server, topic):
    with rocketpy_server.admin() as admin:
        admin.create_topic(other := fresh_name("other"), queues=2)
    rows = [
        (topic, b"one", "red", "k1 k2", {"a": "1", "b": "two"}, "key-1", None),
        (other, b"two", None, None, None, None, 1),
        (topic, b"three", "blue", "k3", {}, None, None),
    ]
    texts = "topic string, body binary, tag string, keys string"
    schema = f"{texts}, properties map<string,string>, order_key string, queue_id int"
    write(spark.createDataFrame(rows, schema), rocketpy_server)
    one, three, two = sorted(
        received(rocketpy_server, topic, other), key=lambda got: (got.topic == other, got.tag != "red")
    )
    assert (one.body, one.tag, one.keys, one.order_key) == (b"one", "red", ("k1", "k2"), "key-1")
    assert {name: one.properties[name] for name in "ab"} == {"a": "1", "b": "two"}
    assert (three.body, three.tag, three.keys, three.order_key) == (b"three", "blue", ("k3",), None)
    assert (two.topic, two.body, two.tag, two.keys, two.queue_id) == (other, b"two", None, (), 1)


def test_options_give_what_all_rows_have_and_a_body_may_be_text(spark, rocketpy_server, topic):
    frame = spark.createDataFrame([("grüße", ["a", "b"])], "body string, keys array<string>")
    write(frame, rocketpy_server, topic=topic, tag="red", orderKey="all")
    (message,) = received(rocketpy_server, topic)
    assert message.body == "grüße".encode()
    assert (message.tag, message.keys, message.order_key) == ("red", ("a", "b"), "all")


def test_rows_of_one_order_key_are_in_one_queue_in_their_order(spark, rocketpy_server, topic):
    frame = spark.range(0, 6000, 1, 1).select(
        sql.col("id").cast("string").alias("body"), (sql.col("id") % 7).cast("string").alias("order_key")
    )
    write(frame, rocketpy_server, topic=topic)
    by_key = defaultdict(list)
    queues = defaultdict(set)
    for message in received(rocketpy_server, topic):
        by_key[message.order_key].append(int(message.body))
        queues[message.order_key].add(message.queue)
    assert by_key == {str(key): list(range(key, 6000, 7)) for key in range(7)}
    assert all(len(used) == 1 for used in queues.values())


def test_a_delay_and_a_time_of_delivery_are_kept(spark, rocketpy_server, topic):
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    write(
        spark.createDataFrame([(b"now", 0.0), (b"later", 3600.0)], "body binary, delay double"),
        rocketpy_server,
        topic=topic,
    )
    write(spark.createDataFrame([(b"at", at)], "body binary, deliver_at timestamp"), rocketpy_server, topic=topic)
    assert [message.body for message in received(rocketpy_server, topic)] == [b"now"]
    with rocketpy_server.admin() as admin:
        (timers,) = admin.queues("rmq_sys_wheel_timer")
        end = admin.next_offset(timers)
    with rocketpy.RangeReader(timers, 0, end, name_servers=rocketpy_server.name_server) as reader:
        messages = [message for some in reader.messages() for message in some]
    waiting = [message.body for message in messages if message.properties.get("REAL_TOPIC") == topic]
    assert sorted(waiting) == [b"at", b"later"]


def test_options_of_the_client_reach_it(spark, rocketpy_server, topic):
    frame = spark.createDataFrame([(b"x" * 101,)], "body binary")
    with pytest.raises(PythonException, match=r"row 0 of partition \d, .*101 bytes, at most 100"):
        write(frame, rocketpy_server, topic=topic, **{"client.maxMessageSize": "100"})


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        ("body binary, tags string", {"topic": "t"}, "unknown column: tags .did you mean tag"),
        ("body int", {"topic": "t"}, "column body must be binary or string, not int"),
        ("body string, body string", {"topic": "t"}, "two columns have the same name"),
        ("tag string", {"topic": "t"}, "column body is missing"),
        ("body string", {}, "topic is missing: add a column or an option"),
        ("body string, topic string", {"topic": "t"}, "topic is both a column and an option"),
        ("body string, broker_name string", {"topic": "t"}, "broker_name is valid only with queue_id"),
        ("body string", {"topic": "t", "tags": "x"}, "tags is an option of reading"),
        ("body string", {"topic": "t", "orderKeys": "x"}, "unknown option: orderkeys .did you mean order_key"),
        ("body string", {"topic": "t", "path": "/data"}, "give name_server, not path"),
        ("body string", {"topic": "t", "exactlyOnce": "maybe"}, "exactly_once must be true or false"),
        ("body string", {"topic": "t", "client.retries": "3"}, "client.retries cannot be set"),
        ("body string", {"topic": "t", "client.sendTimeout": "soon"}, "client.sendtimeout must be a duration"),
        ("body string", {"topic": "t", "client.send_time": "1"}, "did you mean client.send_timeout"),
    ],
)
def test_what_is_wrong_is_refused_by_name_before_anything_is_sent(spark, rocketpy_server, schema, options, said):
    given = {key.lower(): value for key, value in {"name_server": rocketpy_server.name_server, **options}.items()}
    for make in (batch_writer, stream_writer):
        with pytest.raises(rocketpy.RocketPyError) as refused:
            make(given, StructType.fromDDL(schema), False)
        assert re.search(said, f"{type(refused.value).__name__}: {refused.value}")


def test_the_user_sees_what_was_refused(spark, rocketpy_server, topic):
    frame = spark.createDataFrame([(1,)], "boddy int")
    with pytest.raises(AnalysisException, match=r"OptionError: unknown column: boddy .did you mean body") as refused:
        write(frame, rocketpy_server, topic=topic)
    assert "Traceback" not in str(refused.value)
    with pytest.raises(AnalysisException, match="NotSupportedError: format rocketpy cannot overwrite"):
        frame.write.format("rocketpy").mode("overwrite").options(
            name_server=rocketpy_server.name_server, topic=topic
        ).save()


@pytest.mark.parametrize(
    ("schema", "row", "said"),
    [
        ("body binary, topic string", (bytes(5 << 20), "T"), "row 2 of partition 0, .*too large"),
        ("body binary, topic string", (b"x", "SCHEDULE_TOPIC_XXXX"), "row 2 of partition 0, .*system topic"),
        ("body binary, topic string", (b"x", "no such topic"), "row 2 of partition 0, .*invalid character"),
        ("body binary, topic string", (b"x", None), "row 2 of partition 0, .*its topic is null"),
        ("body binary, topic string", (None, "T"), "row 2 of partition 0, .*its body is null"),
        ("body binary, topic string, queue_id int", (b"x", "T", 9), "row 2 of partition 0, .*has no queue #9"),
        ("body binary, topic string, delay double", (b"x", "T", 1e7), "row 2 of partition 0, .*timerMaxDelaySec"),
        ("body binary, topic string, delay double", (b"x", "T", math.nan), "row 2 of partition 0, .*delay: a duration"),
        ("body binary, topic string, delay double", (b"x", "T", 1e300), "row 2 of partition 0, .*delay: a duration"),
        ("body binary, topic string, delay double", (b"x", "T", -1.0), "row 2 of partition 0, .*delay: a duration"),
        ("body binary, topic string, delay_level int", (b"x", "T", 2**31 - 1), "row 2 of .*delay_level must be"),
        ("body binary, topic string, queue_id int", (b"x", "T", -1), "row 2 of partition 0, .*queue"),
        (
            "body binary, topic string, properties map<string,string>",
            (b"x", "T", {"UNIQ_KEY": "7F"}),
            r'row 2 of partition 0, .*reserved for the system: UNIQ_KEY(?s:.)*option\("dropReservedProperties"',
        ),
    ],
)
def test_a_row_that_is_refused_ends_the_task_with_its_place(spark, rocketpy_server, topic, schema, row, said):
    def placed(row):
        return tuple(topic if value == "T" else value for value in row)

    good = placed((b"good", "T", None)[: len(row)])
    rows = spark.createDataFrame([good, good, placed(row), good], schema).coalesce(1)
    with pytest.raises(PythonException, match=said):
        write(rows, rocketpy_server)


def test_a_time_of_delivery_after_the_years_of_python_names_its_row(spark, rocketpy_server, topic):
    rows = spark.sql("SELECT 'x' AS body, timestamp_seconds(id * 568971820800) AS deliver_at FROM range(0, 2, 1, 1)")
    said = "row 1 of partition 0, .*deliver_at must be from 1970-01-01 and before 9999-12-31, .*: 568971820800000000"
    with pytest.raises(PythonException, match=said):
        write(rows, rocketpy_server, topic=topic)


def test_text_that_is_not_utf8_names_its_row(spark, rocketpy_server, topic):
    rows = spark.sql(
        "SELECT 'x' AS body, CASE WHEN id = 1 THEN CAST(x'ff' AS string) ELSE 'a' END AS tag FROM range(0, 2, 1, 1)"
    )
    with pytest.raises(PythonException, match=r"row 1 of partition 0, .*column tag"):
        write(rows, rocketpy_server, topic=topic)


def test_a_topic_that_was_read_is_written_to_another(spark, rocketpy_server, topic):
    copied = fresh_name("copied")
    with rocketpy_server.admin() as admin:
        admin.create_topic(copied, queues=2)
    sent = [
        rocketpy.Message(topic, b"one", tag="red", keys=["k1", "k2"], order_key="o", properties={"a": "1"}),
        rocketpy.Message(topic, b"two", delay=0.001),
        rocketpy.Message(topic, b"three"),
    ]
    with rocketpy_server.producer(fresh_name()) as producer:
        for message in sent:
            producer.send(message)
    assert len(received(rocketpy_server, topic)) == 3
    read = spark.read.format("rocketpy").options(name_server=rocketpy_server.name_server, topic=topic).load()
    with pytest.raises(PythonException, match="reserved for the system"):
        write(read.select("body", "properties"), rocketpy_server, topic=copied)
    for columns in (("body", "properties"), ("body", "properties", "tag", "keys")):
        write(read.select(*columns), rocketpy_server, topic=copied, dropReservedProperties="true")
    copies = received(rocketpy_server, copied)
    assert Counter(one.body for one in copies) == {b"one": 2, b"two": 2, b"three": 2}
    for one in copies:
        has_all = (one.tag, one.keys, one.order_key) == ("red", ("k1", "k2"), "o")
        assert has_all == (one.body == b"one")
        assert one.properties.get("a") == ("1" if one.body == b"one" else None)
        assert "TIMER_DELAY_MS" not in one.properties


def test_a_write_with_an_id_is_repeated_without_a_row_twice(spark, rocketpy_server, topic):
    frame = spark.createDataFrame([(str(number % 30),) for number in range(60)], "body string")  # equal rows as well
    for _ in range(2):
        write(frame, rocketpy_server, topic=topic, write_id=f"{topic}-load")
        assert bodies(rocketpy_server, topic) == {b"%d" % number: 2 for number in range(30)}
    write(frame, rocketpy_server, topic=topic)
    assert bodies(rocketpy_server, topic) == {b"%d" % number: 4 for number in range(30)}


def test_a_task_that_fails_and_runs_again_writes_no_row_twice(spark, rocketpy_server, topic):
    """The third row is refused as long as its topic is not there. A repetition with the same id finds the first two."""
    late = fresh_name("late")
    rows = [(b"%d" % number, topic, 0) for number in range(2000)] + [(b"last", topic, 5)]
    frame = spark.createDataFrame(rows, "body binary, topic string, queue_id int").coalesce(1)
    with pytest.raises(PythonException, match=r"row 2000 of partition 0.*has no queue #5"):
        write(frame, rocketpy_server, write_id=late)
    with rocketpy_server.admin() as admin:
        admin.create_topic(topic, queues=6)
    write(frame, rocketpy_server, write_id=late)
    assert bodies(rocketpy_server, topic) == {row[0]: 1 for row in rows}


def test_a_stream_arrives_once_and_says_where_each_row_comes_from(spark, numbers, rocketpy_server, topic, tmp_path):
    query = run(as_bodies(numbers), rocketpy_server, tmp_path / "checkpoint", topic=topic)
    messages = received(rocketpy_server, topic)
    assert sorted(int(message.body) for message in messages) == list(range(100))
    rows = [message.properties[ROW_PROPERTY].split("/") for message in messages]
    assert {row[0] for row in rows} == {query.id}
    assert {row[1] for row in rows} == {"0", "1"}
    assert len(set(map(tuple, rows))) == 100


def test_a_batch_whose_commit_was_lost_is_skipped(spark, numbers, rocketpy_server, topic, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    run(as_bodies(numbers), rocketpy_server, checkpoint, topic=topic)
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    query = run(as_bodies(numbers), rocketpy_server, checkpoint, topic=topic)
    assert query.lastProgress["batchId"] == 1, "the batch was repeated"
    assert len(received(rocketpy_server, topic)) == 100


def test_without_a_progress_topic_a_repeated_batch_comes_twice(spark, numbers, rocketpy_server, topic, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    for _ in range(2):
        run(as_bodies(numbers), rocketpy_server, checkpoint, topic=topic, progress_topic="")
        (checkpoint / "commits" / "1").unlink()
        (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    messages = received(rocketpy_server, topic)
    assert len(messages) == 150
    assert all(ROW_PROPERTY not in message.properties for message in messages)


def test_complete_mode_is_refused_by_name(spark, numbers, rocketpy_server, topic, tmp_path):
    counts = numbers.groupBy("number").count().select(sql.col("number").cast("string").alias("body"))
    writer = counts.writeStream.format("rocketpy").outputMode("complete").trigger(availableNow=True)
    writer = writer.options(
        name_server=rocketpy_server.name_server, topic=topic, checkpointLocation=str(tmp_path / "c")
    )
    with pytest.raises((StreamingQueryException, AnalysisException), match="cannot overwrite"):
        writer.start().awaitTermination(300)


def test_with_exactly_once_a_write_that_fails_leaves_nothing_and_its_repetition_writes_all_once(
    spark, rocketpy_server, topic
):
    decisions = fresh_name("decisions")
    with rocketpy_server.admin() as admin:
        admin.create_topic(decisions, queues=1)
    options = {"topic": topic, "exactlyOnce": "true", "progressTopic": decisions, "writeId": fresh_name("write")}
    frame = spark.range(0, 200, 1, 2)
    body = "CASE WHEN id = 150 THEN NULL ELSE cast(id AS string) END"
    with pytest.raises(PythonException, match="its body is null"):
        write(frame.selectExpr(f"{body} AS body"), rocketpy_server, **options)
    assert bodies(rocketpy_server, topic) == {}
    for _ in range(2):
        write(frame.selectExpr("cast(id AS string) AS body"), rocketpy_server, **options)
        assert bodies(rocketpy_server, topic) == dict.fromkeys((b"%d" % number for number in range(200)), 1)


def test_a_stream_with_exactly_once_writes_each_row_once(spark, rocketpy_server, topic, numbers, tmp_path):
    decisions = fresh_name("decisions")
    with rocketpy_server.admin() as admin:
        admin.create_topic(decisions, queues=1)
    options = {"topic": topic, "exactly_once": "true", "progress_topic": decisions}
    run(as_bodies(numbers), rocketpy_server, tmp_path / "checkpoint", **options)
    assert bodies(rocketpy_server, topic) == dict.fromkeys((b"%d" % number for number in range(100)), 1)


TLS = Path(__file__).parents[1] / "tls"


@pytest.fixture
def encrypted(tmp_path):
    """A server that accepts users with TLS only."""
    files = {"tlsServerCertPath": str(TLS / "server.pem"), "tlsServerKeyPath": str(TLS / "server.key")}
    settings = {**SMALL_FILES, **USERS_ON, **files, "tlsServerMode": "enforcing"}
    with ClosedServer(tmp_path / "closed", settings=settings) as server:
        yield server


def test_source_sink_and_stream_use_tls_and_a_user_whose_secret_is_not_shown(spark, encrypted, numbers, tmp_path):
    topic, secret, tls = fresh_name("numbers"), fresh_name("secret"), rocketpy.Tls(ca_file=str(TLS / "ca.pem"))
    with encrypted.admin(tls=tls) as admin:
        admin.create_topic(topic, queues=1)
        admin.create_user("spark", secret)
        admin.grant("spark", f"Topic:{topic}", "Pub,Sub,Get")
        admin.grant("spark", "Topic:rocketpy-spark-sink*", "Pub,Sub,Get,Create")
        admin.grant("spark", "Cluster:*", "Get")
        admin.grant("spark", "Group:TOOLS_CONSUMER", "Sub")
    user = {"accessKey": "spark", "secretKey": secret, "tlsCa": str(TLS / "ca.pem")}
    source = {"name_server": encrypted.name_server, "topic": topic, "columns": "body"}

    write(spark.createDataFrame([(b"from a batch",)], "body binary"), encrypted, topic=topic, **user)
    run(numbers.selectExpr("cast(number as string) body"), encrypted, tmp_path / "out", topic=topic, **user)
    frame = spark.read.format("rocketpy").options(**source, **user).load()
    assert frame.count() == 101
    stream = spark.readStream.format("rocketpy").options(**source, **user).load()
    query = stream.writeStream.format("memory").queryName("encrypted").trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path / "in")).start()
    assert query.awaitTermination(300)
    assert spark.table("encrypted").count() == 101

    shown = [
        str(one.physicalPlanDescription())
        for one in seq(spark, spark._jsparkSession.sharedState().statusStore().executionsList())
    ]
    plans = (frame._jdf.queryExecution(), stream._jdf.queryExecution(), query._jsq.streamingQuery().lastExecution())
    shown += [str(plan) for plan in plans]
    assert any(topic in text or "rocketpy" in text for text in shown)
    assert not [text for text in shown if secret in text]
    kept = [*(tmp_path / "in").rglob("*"), *(tmp_path / "out").rglob("*"), *(tmp_path / "closed").rglob("commitlog/*")]
    assert not [path for path in kept if path.is_file() and secret.encode() in path.read_bytes()]


def seq(spark, values):
    """Elements of a sequence of Scala."""
    return [values.apply(number) for number in range(values.size())]
