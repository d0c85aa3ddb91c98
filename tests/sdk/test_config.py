"""Durations, points in time, where a group starts, and options."""

import time
from datetime import UTC, datetime, timedelta

import pytest

import rocketpy
from rocketpy import InvalidArgumentError, Message, Start


def test_a_start_at_a_time_is_in_milliseconds():
    moment = datetime(2013, 1, 1, tzinfo=UTC)
    assert Start.at(moment) == Start.at(moment.timestamp()) == Start("timestamp", 1_356_998_400_000)


def test_text_is_a_start():
    assert Start.of("Earliest") is Start.EARLIEST
    assert Start.of("latest") is Start.LATEST
    assert Start.of("stored") is Start.STORED
    moment = datetime(2013, 1, 1)
    assert Start.of("2013-01-01") == Start.at("2013-01-01T00:00:00") == Start.of(moment) == Start.at(moment.timestamp())
    before = time.time() * 1000
    assert before - 600_001 <= Start.of("-10m").at_ms <= time.time() * 1000 - 600_000


@pytest.mark.parametrize("text", ["yesterday", "", "1357016400", "-10", "beginning"])
def test_other_text_is_no_start(text):
    with pytest.raises(InvalidArgumentError, match="not a start") as refused:
        Start.of(text)
    assert refused.value.hint


@pytest.mark.parametrize("start", [None, 5, 1.5, b"latest"])
def test_a_start_of_another_type_names_what_was_given_and_what_is_wanted(rocketpy_server, rocketpy_topic, start):
    with pytest.raises(TypeError, match=f"'earliest'.* not {type(start).__name__}"):
        rocketpy_server.consumer("options", rocketpy_topic, start=start)


@pytest.mark.parametrize("instant", [b"2013-01-01", None, True])
def test_what_is_no_point_in_time_is_a_type_error(instant):
    with pytest.raises(TypeError, match="point in time"):
        Start.at(instant)


def test_a_datetime_before_the_clock_is_no_point_in_time():
    with pytest.raises(InvalidArgumentError, match="not a point in time"):
        Start.at(datetime.min)


@pytest.mark.parametrize("instant", [1_356_998_400_000, "1356998400000", float("nan")])
def test_milliseconds_are_refused_with_the_unit(instant):
    with pytest.raises(InvalidArgumentError, match="seconds") as refused:
        Start.at(instant)
    assert "divide by 1000" in refused.value.hint


@pytest.mark.parametrize("instant", [60, -5, "5", 99_999_999.5])
def test_a_duration_is_refused_as_a_point_in_time(instant):
    with pytest.raises(InvalidArgumentError, match=r"seconds since 1970.*before 1973") as refused:
        Start.at(instant)
    assert "time.time()" in refused.value.hint
    with pytest.raises(InvalidArgumentError, match="before 1973"):
        Message("orders", b"x", deliver_at=instant)


def test_durations_are_seconds_or_timedeltas(rocketpy_server, rocketpy_topic):
    options = {"send_timeout": timedelta(seconds=2), "api_timeout": 30, "connect_timeout": 1.5}
    with rocketpy_server.producer("durations", **options) as producer:
        producer.send(rocketpy.Message(rocketpy_topic, b"text"), timeout=timedelta(seconds=60))
        producer.flush(timedelta(seconds=60))


@pytest.mark.parametrize(
    "duration",
    [-1, float("nan"), float("inf"), timedelta(seconds=-1), timedelta.max, 1e12, 1e308, 10**40, 10**400],
    ids=lambda duration: str(duration)[:12],
)
def test_a_duration_out_of_range_names_its_option(rocketpy_server, duration):
    said = "must be from 0 s to 100 years, given: "
    with pytest.raises(InvalidArgumentError, match=f"^option send_timeout {said}"):
        rocketpy_server.producer("durations", send_timeout=duration)
    with pytest.raises(InvalidArgumentError, match=f"^delay: a duration {said}"):
        Message("orders", b"x", delay=duration)


def test_negative_zero_is_no_delay():
    assert str(Message("orders", b"x", delay=-0.0).delay) == "0.0"


@pytest.mark.parametrize(
    "at", ["20000-01-01", 568_971_820_800, float("inf"), float("nan"), 10**40], ids=lambda at: str(at)[:12]
)
def test_a_time_of_delivery_out_of_range_names_its_argument(at):
    with pytest.raises(InvalidArgumentError, match=r"^deliver_at: ") as refused:
        Message("orders", b"x", deliver_at=at)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("value", "kind"),
    [(2**64, InvalidArgumentError), (-1, InvalidArgumentError), (10**40, InvalidArgumentError), (True, TypeError),
     (float("nan"), TypeError)],
    ids=lambda value: str(value)[:12],
)  # fmt: skip
def test_a_number_out_of_range_names_its_option(rocketpy_server, value, kind):
    with pytest.raises(kind, match="option max_message_size"):
        rocketpy_server.producer("numbers", max_message_size=value)


@pytest.mark.parametrize("duration", ["1", None, b"1"])
def test_what_is_no_duration_is_a_type_error(rocketpy_server, duration):
    with pytest.raises(TypeError, match="send_timeout"):
        rocketpy_server.producer("durations", send_timeout=duration)


def test_an_unknown_option_is_named_with_the_one_most_like_it_and_those_that_exist(rocketpy_server):
    with pytest.raises(TypeError, match=r"no option \"retrys\" \(did you mean retries\?\); options: .*retries"):
        rocketpy_server.producer("options", retrys=3)
    with pytest.raises(TypeError, match=r"no option \"tag\" \(did you mean tags\?\)"):
        rocketpy_server.consumer("options", "topic", tag="UA")
    with pytest.raises(TypeError, match=r"did you mean name_servers\?"):
        rocketpy.Producer("options", name_server="127.0.0.1:9876")
    with pytest.raises(TypeError, match="no option"):
        rocketpy_server.admin(timeout=3)


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"retries": -1}, InvalidArgumentError, "retries"),
        ({"retries": "two"}, TypeError, "retries"),
        ({"window_messages": 0}, InvalidArgumentError, "window_messages"),
        ({"compression": "gzip"}, InvalidArgumentError, "gzip"),
        ({"batch_bytes": 2**70}, InvalidArgumentError, "batch_bytes"),
    ],
)
def test_an_option_out_of_range_is_named(rocketpy_server, options, kind, says):
    with pytest.raises(kind, match=says):
        rocketpy_server.producer("options", **options)


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"start": "oldest"}, InvalidArgumentError, "oldest"),
        ({"start": Start("timestamp")}, InvalidArgumentError, "Start"),
        ({"pull_messages": 0}, InvalidArgumentError, "pull_messages"),
        ({"suspend": 30, "pull_timeout": 10}, InvalidArgumentError, "pull_timeout"),
        ({"suspend": True}, TypeError, "suspend"),
        ({"auto_commit": 0}, InvalidArgumentError, "auto_commit"),
        ({"auto_commit": -1}, InvalidArgumentError, "option auto_commit must be"),
        ({"auto_commit": "1"}, TypeError, "auto_commit"),
        ({"tags": 3}, TypeError, "tags"),
    ],
)
def test_a_bad_consumer_option_is_named(rocketpy_server, rocketpy_topic, options, kind, says):
    with pytest.raises(kind, match=says):
        rocketpy_server.consumer("options", rocketpy_topic, **options)


@pytest.mark.parametrize("given", [9876, b"host:9876", [9876], [("host", 9876)]], ids=repr)
def test_name_servers_of_a_wrong_type_are_refused_with_the_right_form(given):
    with pytest.raises(TypeError, match=r"name_servers must be text such as \"127.0.0.1:9876\", or a list"):
        rocketpy.Producer("none", name_servers=given)


@pytest.mark.parametrize("given", [None, 3, b"orders", [3]], ids=repr)
def test_topics_of_a_wrong_type_are_refused_with_the_right_form(rocketpy_server, given):
    with pytest.raises(TypeError, match="topic must be a name, or a list of names, not: "):
        rocketpy_server.consumer("none", given)


def test_an_interval_of_commits_in_milliseconds_is_refused_with_the_unit(rocketpy_server, rocketpy_topic):
    with pytest.raises(InvalidArgumentError, match=r"auto_commit.*5000s") as refused:
        rocketpy_server.consumer("options", rocketpy_topic, auto_commit=5000)
    assert "seconds" in refused.value.hint


def test_name_servers_come_from_the_environment(rocketpy_server, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", f"{rocketpy_server.name_server};{rocketpy_server.name_server}")
    with rocketpy.Admin() as admin:
        assert isinstance(admin.topics(), list)


def test_without_name_servers_the_error_says_where_to_name_them(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(InvalidArgumentError, match="name server") as missing:
        rocketpy.Producer("none")
    assert "NAMESRV_ADDR" in missing.value.hint


@pytest.mark.parametrize("address", ["nowhere", "host:", "host:port", ":9876", "host:99999"])
def test_an_address_without_host_or_port_is_refused(address):
    with pytest.raises(rocketpy.RocketPyError, match=r"(?i)address|connect|resolve") as refused:
        rocketpy.Producer("address", name_servers=[address], api_timeout=2).send(rocketpy.Message("topic", b"text"))
    assert refused.value.hint
