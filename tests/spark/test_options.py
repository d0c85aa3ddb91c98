"""Options of a read, without Spark."""

import re
from datetime import datetime
from pathlib import Path

import pytest

from rocketpy.config import ClientOptions, Credentials, Tls
from rocketpy.errors import InvalidArgumentError
from rocketpy.spark.aliases import REFUSED
from rocketpy.spark.columns import DEFAULT, TYPES, check_columns
from rocketpy.spark.connection import client_options
from rocketpy.spark.options import CLIENT_NAMES, OPTION_NAMES, OptionError, parse_options
from rocketpy.spark.sink.options import parse_sink_options

FOLDER = {"path": "/data", "topic": "flights"}


def test_names_are_read_in_both_spellings_and_any_case():
    for name in ("starting_time", "startingTime", "STARTINGTIME"):
        assert parse_options({**FOLDER, name: "1357016400"}).starting_time_ms == 1_357_016_400_000


def test_an_unknown_option_is_refused_with_the_one_that_was_meant():
    with pytest.raises(OptionError, match=r"unknown option: tag \(did you mean tags\?\)"):
        parse_options({**FOLDER, "tag": "UA"})
    assert issubclass(OptionError, InvalidArgumentError)


@pytest.mark.parametrize(
    "options",
    [
        {"topic": "a"},
        {"path": "/data", "name_server": "h:1", "topic": "a"},
        {"path": "/data"},
        {"path": "/data", "topic": " , "},
        {"path": "/data", "topic": "a", "topics": "a,b"},
        {"name_server": " ; ", "topic": "a"},
        {"name_server": "h:1", "topic": "a", "commit_log_path": "/log"},
        {**FOLDER, "starting_time": "soon"},
        {**FOLDER, "starting_time": "1356998400000"},
        {**FOLDER, "starting_time": "1357016400", "ending_time": "1357016399"},
        {**FOLDER, "starting_time": "1357016400", "starting_offsets": '{"flights":{"0":1}}'},
        {**FOLDER, "starting_offsets": "latest"},
        {**FOLDER, "ending_offsets": "earliest"},
        {**FOLDER, "starting_offsets": '{"other":{"0":1}}'},
        {**FOLDER, "starting_offsets": '{"flights":{"0":-1}}'},
        {**FOLDER, "starting_offsets": '{"flights":{"zero":1}}'},
        {**FOLDER, "starting_offsets": '{"flights":{"0":1.5}}'},
        {**FOLDER, "starting_offsets": '{"flights":{"0":true}}'},
        {**FOLDER, "starting_offsets": "[1]"},
        {**FOLDER, "min_partitions": "0"},
        {**FOLDER, "min_partitions": "many"},
        {**FOLDER, "max_partition_bytes": "12"},
        {**FOLDER, "max_partition_bytes": "12parsecs"},
        {**FOLDER, "fail_on_data_loss": "perhaps"},
        {**FOLDER, "verify": "perhaps"},
        {**FOLDER, "tags": "UA,AA"},
        {**FOLDER, "tags": "tag = 'UA'"},
        {**FOLDER, "max_body_bytes": "many"},
        {"name_server": "h:1", "topic": "a", "verify": "false"},
        {"name_server": "h:1", "topic": "a", "broker_name": "b"},
        {**FOLDER, "starting_group": "g"},
        {**FOLDER, "max_offsets_per_trigger": "5"},
        {"name_server": "h:1", "topic_pattern": "("},
        {"name_server": "h:1", "assign": '{"a": 0}'},
        {"name_server": "h:1", "assign": "a"},
        {"name_server": "h:1", "topic": "a", "startingTimestamp": "soon"},
        {"name_server": "h:1", "topic": "a", "starting_offsets_by_timestamp": "{}", "starting_time": "-1m"},
        {"name_server": "h:1", "topic": "a", "starting_offsets_by_timestamp_strategy": "perhaps"},
        {"name_server": "h:1", "topic": "a", "retry_timeout": "long"},
    ],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(OptionError):
        parse_options(options)


THOUSANDS_OF_DIGITS = "1" * 5000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("columns", ""),
        ("columns", " , "),
        ("path", ""),
        ("topic_pattern", " "),
        ("broker_name", ""),
        ("starting_time", "20000-01-01T00:00:00"),
        ("starting_time", "1e400"),
        ("starting_time", "568971820800"),
        ("starting_time", THOUSANDS_OF_DIGITS),
        ("ending_time", "nan"),
        ("min_partitions", THOUSANDS_OF_DIGITS),
        ("min_partitions", "-0"),
        ("max_partition_bytes", THOUSANDS_OF_DIGITS),
        ("max_partition_bytes", f"{THOUSANDS_OF_DIGITS}g"),
        ("max_body_bytes", str(2**64)),
        ("starting_offsets", '{"flights":{"0":1e400}}'),
        ("starting_offsets", '{"flights":{"0":NaN}}'),
        ("starting_offsets", f'{{"flights":{{"0":{2**63}}}}}'),
        ("starting_offsets", f'{{"flights":{{"0":{THOUSANDS_OF_DIGITS}}}}}'),
        ("starting_offsets", f'{{"flights":{{"{2**31}":1}}}}'),
        ("ending_offsets", f'{{"flights":{{"{THOUSANDS_OF_DIGITS}":1}}}}'),
        ("ending_offsets", "[" * 100_000),
        ("assign", f'{{"flights":[{2**31}]}}'),
        ("assign", '{"flights":[-1]}'),
        ("assign", f'{{"flights":[{THOUSANDS_OF_DIGITS}]}}'),
        ("starting_timestamp", THOUSANDS_OF_DIGITS),
    ],
    ids=lambda value: value if len(value) < 60 else f"{value[:20]}...",
)
def test_a_value_out_of_its_range_names_its_option(name, value):
    ways = {"assign": {}, "topic_pattern": {}, "path": {"topic": "flights"}}
    others = ways.get(name, {"topic": "flights"})
    where = {} if name == "path" else {"path": "/data"}
    with pytest.raises(OptionError, match=name.replace("starting_timestamp", "starting_?timestamp")) as refused:
        parse_options({**where, **others, name: value})
    assert len(str(refused.value)) < 300


def test_checksums_are_compared_unless_the_read_says_otherwise():
    assert parse_options(FOLDER).max_body_bytes is None
    assert parse_options({**FOLDER, "maxBodyBytes": "256m"}).max_body_bytes == 256 << 20
    assert parse_options(FOLDER).verify
    assert not parse_options({**FOLDER, "verify": "false"}).verify


def test_options_that_spark_adds_to_a_table_do_not_count():
    assert parse_options({**FOLDER, "owner": "me", "provider": "rocketpy", "option.path": "x"}).path == "/data"


def test_several_topics_and_name_servers_are_lists():
    read = parse_options({"nameServer": "a:1; b:2,c:3", "topics": " x, y ,x"})
    assert (read.name_servers, read.topics, read.path) == (("a:1", "b:2", "c:3"), ("x", "y"), None)


def test_offsets_are_by_queue_with_or_without_the_broker():
    read = parse_options(
        {
            "path": "/data",
            "topics": "a,b",
            "starting_offsets": '{"a":{"0":5,"1":-2},"b":{"broker-a":{"3":7}}}',
            "ending_offsets": '{"a":{"0":-1}}',
        }
    )
    assert read.starting_offsets == {("a", "", 0): 5, ("b", "broker-a", 3): 7}
    assert read.ending_offsets == {}


def test_sizes_have_units():
    sizes = [
        parse_options({**FOLDER, "max_partition_bytes": text}).max_partition_bytes for text in ("2048", "3k", "1MiB")
    ]
    assert sizes == [2048, 3072, 1 << 20]


def test_times_are_absolute_or_count_back_from_now():
    def start(text):
        return parse_options({**FOLDER, "starting_time": text}, now_ms=10**9).starting_time_ms

    assert start("2013-01-01T01:00:00+01:00") == start("1356998400") == 1_356_998_400_000
    assert start("2013-01-01T05:00:00") == datetime(2013, 1, 1, 5).timestamp() * 1000, "local time"
    assert [start(text) for text in ("-250ms", "-1s", "-1m", "-1h", "-1d")] == [
        10**9 - 250,
        10**9 - 1000,
        10**9 - 60_000,
        10**9 - 3_600_000,
        10**9 - 86_400_000,
    ]
    assert start("-100000d") == 0
    with pytest.raises(OptionError, match="starting_time") as refused:
        start("1356998400000")
    assert "divide by 1000" in refused.value.hint


KAFKA = {"name_server": "h:1", "subscribe": "a,b"}


def test_options_of_sparks_kafka_source_are_taken_under_its_names():
    read = parse_options(
        {
            **KAFKA,
            "startingTimestamp": "1357016400000",
            "endingOffsets": '{"a":{"0":9}}',
            "minPartitions": "7",
            "maxRecordsPerPartition": "100",
            "includeHeaders": "false",
            "failOnDataLoss": "false",
        }
    )
    assert (read.topics, read.starting_time_ms, read.ending_offsets) == (
        ("a", "b"),
        1_357_016_400_000,
        {("a", "", 0): 9},
    )
    assert (read.min_partitions, read.max_records_per_partition) == (7, 100)
    assert (read.include_properties, read.fail_on_data_loss) == (False, False)
    by_pattern = parse_options({"name_server": "h:1", "subscribePattern": "orders-.*"})
    assert (by_pattern.topics, by_pattern.topic_pattern) == ((), "orders-.*")
    assigned = parse_options({"name_server": "h:1", "assign": '{"a": [0, 2], "b": {"broker-a": [1]}}'})
    assert assigned.topics == ("a", "b")
    assert assigned.assigned == {("a", "", 0), ("a", "", 2), ("b", "broker-a", 1)}
    times = '{"a":{"0":1357016400000}}'
    by_queue = parse_options(
        {**KAFKA, "startingOffsetsByTimestamp": times, "startingOffsetsByTimestampStrategy": "error"}
    )
    assert (by_queue.starting_times_ms, by_queue.must_find_time) == ({("a", "", 0): 1_357_016_400_000}, True)


@pytest.mark.parametrize("name", [*REFUSED, "kafka.security.protocol"])
def test_what_kafkas_source_has_and_this_one_has_not_is_refused_by_name(name):
    with pytest.raises(OptionError, match=f"has no option {re.escape(name)}") as refused:
        parse_options({**KAFKA, name: "1"})
    assert refused.value.hint


def test_names_that_mean_the_same_are_not_taken_together():
    with pytest.raises(OptionError, match="topics is given twice: subscribe"):
        parse_options({"name_server": "h:1", "topics": "a", "subscribe": "a"})
    for other in ({"topic": "a"}, {"assign": '{"a":[0]}'}, {"subscribePattern": "a"}):
        with pytest.raises(OptionError, match="not both"):
            parse_options({"name_server": "h:1", **other, "topics": "a"})


def test_client_options_and_durations_are_passed_on():
    read = parse_options({**KAFKA, "client.apiTimeout": "10s", "client.connect_timeout": "500ms", "retryTimeout": "2m"})
    assert (dict(read.client), read.retry_timeout) == ({"api_timeout": 10.0, "connect_timeout": 0.5}, 120.0)
    assert set(CLIENT_NAMES) < set(ClientOptions.__annotations__)
    with pytest.raises(OptionError, match=r"unknown option: client.apitime \(did you mean client.api_timeout\?\)"):
        parse_options({**KAFKA, "client.apitime": "1s"})


def test_paths_are_made_absolute_on_the_driver(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    read = parse_options({"path": "data", "topic": "a", "commitLogPath": "log"})
    assert (read.path, read.commit_log_path) == (str(tmp_path / "data"), str(tmp_path / "log"))


def test_columns_are_those_of_the_native_scan():
    import rocketpy

    with pytest.raises(OptionError, match=r"unknown column: boddy \(did you mean body\?\)"):
        check_columns(["boddy"])
    with pytest.raises(OptionError, match="twice"):
        check_columns(["body", "body"])
    with pytest.raises(rocketpy.InvalidArgumentError) as unknown:
        rocketpy.RangeReader(rocketpy.MessageQueue("a", "b", 0), 0, 1, columns=["boddy"], name_servers="127.0.0.1:1")
    hint = str(unknown.value.hint)
    assert hint.removeprefix("available columns: ").split(", ") == list(TYPES)
    assert len(DEFAULT) == 12


def test_the_documentation_names_every_option_and_every_column():
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    columns, options = page.split("## Columns")[1].split("## Options")
    assert set(re.findall(r"`([a-z_]+)`", columns)) >= set(TYPES)
    listed = {
        name
        for row in options.split("\n## ")[0].split("\n")
        if row.startswith("| `")
        for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    assert listed | {"name_servers"} == set(OPTION_NAMES)


def test_the_user_of_the_clients_is_given_whole_and_never_shown():
    cluster = {"nameServer": "a:9876", "topic": "flights"}
    user = {"accessKey": "spark", "secretKey": "of nobody"}
    read, sink = parse_options({**cluster, **user}), parse_sink_options({**cluster, **user})
    for options in (read, sink):
        assert options.client["credentials"] == Credentials("spark", "of nobody")
        assert "of nobody" not in repr(options)
    other = parse_options({**cluster, **user, "secretKey": "another"})
    assert client_options(read)["instance_name"] == client_options(read)["instance_name"]
    assert client_options(read)["instance_name"] != client_options(other)["instance_name"]
    for name in user:
        with pytest.raises(OptionError, match=f"{name[:6]}_key is given without"):
            parse_options({**cluster, name: user[name]})
    with pytest.raises(OptionError, match="access_key is valid only with the name_server"):
        parse_options({**FOLDER, **user})


def test_clients_use_tls_by_its_files_or_by_a_switch():
    cluster = {"nameServer": "a:9876", "topic": "flights"}
    files = {"tlsCa": "ca.pem", "tlsCert": "/etc/client.pem", "tlsKey": "/etc/client.key"}
    for parse in (parse_options, parse_sink_options):
        assert "tls" not in parse(cluster).client
        assert parse({**cluster, "tls": "true"}).client["tls"] is True
        assert parse({**cluster, "tls": "false"}).client["tls"] is False
        tls = Tls(str(Path("ca.pem").absolute()), "/etc/client.pem", "/etc/client.key")
        assert parse({**cluster, **files}).client["tls"] == tls
        with pytest.raises(OptionError, match="tls=false is given with files"):
            parse({**cluster, **files, "tls": "false"})
    plain, encrypted = parse_options(cluster), parse_options({**cluster, **files})
    assert client_options(plain)["instance_name"] != client_options(encrypted)["instance_name"]
