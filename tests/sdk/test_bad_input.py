"""What a stranger may send or a machine may do: each gets an answer that names it, and the others are served on."""

import json
import random
import re
import socket
import threading

import pytest
from wire import MESSAGE_ILLEGAL, OK, PULL_MESSAGE, SEND, SEND_MESSAGE, UPDATE_OFFSET, Raw, frame, request

import rocketpy
from rocketpy import Message, Start
from rocketpy.testing import SMALL_FILES, fresh_name


@pytest.fixture(params=["name_server", "broker"])
def address(request, rocketpy_server):
    """Both listeners, and a check that both serve others afterwards."""
    yield getattr(rocketpy_server, request.param)
    topic = fresh_name("served")
    with rocketpy_server.producer("others") as producer:
        producer.send(Message(topic, b"text"))
    with rocketpy_server.consumer("others", topic, start=Start.EARLIEST) as consumer:
        assert [message.body for message in consumer.poll(timeout=60)] == [b"text"]


HEADER = json.dumps({"code": 105, "opaque": 7, "extFields": {"topic": "x"}}).encode()


@pytest.mark.parametrize(
    "data",
    [
        frame(HEADER, length=2**31 - 1),
        frame(HEADER, length=-1),
        frame(HEADER, length=3),
        frame(HEADER, length=17 << 20),
        frame(HEADER, header_length=2**24 - 1),
        frame(HEADER, header_length=len(HEADER) + 1),
        frame(b"{", kind=0),
        frame(b"not json", kind=0),
        frame(b"[1, 2]", kind=0),
        frame(b"\xff\xfe\xfd", kind=0),
        frame(b"\x00" * 5, kind=1),
        frame(b"\xff" * 40, kind=1),
        frame(HEADER, kind=99),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        random.Random(1).randbytes(1000),
    ],
    ids=lambda data: data[:6].hex(),
)
def test_a_frame_that_lies_ends_its_connection_only(address, data):
    with Raw(address) as bystander:
        with Raw(address) as raw:
            raw.socket.sendall(data)
            raw.socket.shutdown(socket.SHUT_WR)
            while raw.socket.recv(65536):
                pass
        assert bystander.answer(request(105, {"topic": fresh_name()}))["opaque"] == 7


def test_an_unknown_request_is_refused_by_its_code(address):
    with Raw(address) as raw:
        answer = raw.answer(request(31_999))
        assert answer["code"] == 3
        assert "31999" in answer["remark"]


@pytest.fixture
def broker(rocketpy_server):
    with Raw(rocketpy_server.broker) as raw:
        yield raw
        assert raw.answer(request(SEND_MESSAGE, {**SEND, "topic": fresh_name()}, b"text"))["code"] == OK


@pytest.mark.parametrize("topic", ["a/b", "../../tmp/x", "x" * 300, "", "a b", "a\x00b"])
def test_a_bad_topic_name_is_refused_by_the_broker_too(broker, topic):
    answer = broker.answer(request(SEND_MESSAGE, {**SEND, "topic": topic}, b"text"))
    assert answer["code"] != OK
    assert "topic" in answer["remark"].lower()


def test_a_body_over_the_limit_is_refused_by_the_broker_too(broker):
    answer = broker.answer(request(SEND_MESSAGE, {**SEND, "topic": fresh_name()}, bytes((4 << 20) + 1)))
    assert answer["code"] == MESSAGE_ILLEGAL
    assert str(4 << 20) in answer["remark"]


def test_properties_over_the_limit_are_refused(broker):
    answer = broker.answer(request(SEND_MESSAGE, {**SEND, "properties": f"a\x01{'x' * 40_000}\x02"}, b"text"))
    assert answer["code"] == MESSAGE_ILLEGAL


@pytest.mark.parametrize("queue_id", ["-5", "99999", "2147483648", "first", ""])
def test_a_queue_id_out_of_range_is_never_stored(broker, rocketpy_server, rocketpy_topic, queue_id):
    answer = broker.answer(request(SEND_MESSAGE, {**SEND, "topic": rocketpy_topic, "queueId": queue_id}, b"text"))
    if answer["code"] == OK:  # Apache puts a message without a queue somewhere
        assert queue_id.startswith("-")
        assert int(answer["extFields"]["queueId"]) in range(4)
    else:
        assert answer["remark"]


@pytest.mark.parametrize(
    ("properties", "sys_flag", "feature"),
    [
        ("a\x01b\x02", "4", "(?i)transaction"),  # no property asks for one
        ("TIMER_DELAY_SEC\x01ten\x02", "0", "(?i)timer|delay"),
        ("TIMER_DELAY_SEC\x019999999\x02", "0", "(?i)timer|delay"),
    ],
)
def test_what_is_not_there_yet_or_only_half_asked_for_is_refused_by_name(broker, properties, sys_flag, feature):
    answer = broker.answer(
        request(SEND_MESSAGE, {**SEND, "topic": fresh_name(), "properties": properties, "sysFlag": sys_flag}, b"text")
    )
    assert answer["code"] != OK
    assert re.search(feature, answer["remark"])


PULL = {
    "consumerGroup": "raw",
    "topic": "raw",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "1000",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}


@pytest.mark.parametrize(
    "fields",
    [
        {"queueOffset": "-1"},
        {"queueOffset": "9223372036854775807"},
        {"queueOffset": "x"},
        {"queueId": "77"},
        {"queueId": "-1"},
        {"topic": "missing-topic"},
        {"topic": "a/b"},
        {"consumerGroup": "a/b"},
        {"expressionType": "SQL92", "subscription": "a > 1"},
    ],
    ids=str,
)
def test_a_pull_that_makes_no_sense_gets_a_code_and_no_messages(broker, producer, rocketpy_topic, fields):
    producer.send(Message(rocketpy_topic, b"text"))
    answer = broker.answer(request(PULL_MESSAGE, {**PULL, "topic": rocketpy_topic, **fields}))
    assert answer["code"] != OK


PULL_BYTES = 262_144
"""`maxTransferBytesOnMessageInMemory` by default."""
LITTLE = b"x"
RECORD_BYTES = 400
"""More than a record of it takes."""


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        ("3", 3, 3),
        ("2147483647", PULL_BYTES // RECORD_BYTES, 4096),
        ("-1", 1, 1),
        ("0", 1, 1),
        ("2147483648", 0, 0),
    ],
)
def test_a_pull_of_any_number_of_messages_is_bounded(
    broker, rocketpy_server, producer, rocketpy_topic, asked, least, most
):
    queue = producer.queues(rocketpy_topic)[0]
    producer.send_many([Message(rocketpy_topic, LITTLE)] * 5000, queue=queue)
    with rocketpy_server.admin() as admin:
        while admin.max_offset(queue) < 5000:
            pass  # entries follow the acknowledgement in a moment
    answer = broker.answer(request(PULL_MESSAGE, {**PULL, "topic": rocketpy_topic, "maxMsgNums": asked}))
    taken = int(answer["extFields"]["nextBeginOffset"]) if answer["code"] == OK else 0
    assert least <= taken <= most, answer
    assert len(broker.body) <= PULL_BYTES
    assert (answer["code"] == OK) is (most > 0), answer


def test_a_missing_field_is_named(broker):
    for name in ("topic", "queueId", "bornTimestamp"):
        fields = {key: value for key, value in SEND.items() if key != name}
        answer = broker.answer(request(SEND_MESSAGE, fields, b"text"))
        assert answer["code"] != OK
        assert name in answer["remark"]


def test_an_offset_outside_of_the_queue_is_not_committed(broker, rocketpy_server, rocketpy_topic):
    group = fresh_name()
    fields = {"consumerGroup": group, "topic": rocketpy_topic, "queueId": "0"}
    with rocketpy_server.admin() as admin:
        admin.create_group(group)
        for offset, is_taken in (
            ("0", True),
            ("5", False),
            ("-7", False),
            ("-9223372036854775808", False),
            ("x", False),
        ):
            answer = broker.answer(request(UPDATE_OFFSET, {**fields, "commitOffset": offset}))
            assert (answer["code"] == OK) is is_taken, answer
        assert admin.committed_offset(group, rocketpy.MessageQueue(rocketpy_topic, "broker-a", 0)) == 0


def test_a_disk_that_fills_up_refuses_by_name_and_goes_on_when_there_is_room(child, tmp_path):
    """The limit of file sizes stands in for a full disk: making the next log file fails with it in the same way."""
    ended = child(
        """
        import os, resource, sys, time
        import rocketpy
        from rocketpy import Message
        from rocketpy.testing import PatientServer
        settings = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20 * 1000}
        with PatientServer(sys.argv[1], settings=settings) as server, server.producer("p", retries=0) as producer:
            before = producer.send(Message("topic", b"before"))
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, resource.RLIM_INFINITY))
            error = None
            for n in range(100):
                try:
                    producer.send(Message("topic", os.urandom(100_000)))
                except rocketpy.RocketPyError as refused:
                    error = refused
                    break
            print(type(error).__name__, error.code, error)
            print(error.hint)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                try:
                    print(producer.send(Message("topic", os.urandom(100_000))).status)
                    break
                except rocketpy.RocketPyError:
                    time.sleep(0.05)
            with server.admin() as admin:
                print(admin.view_message(before.offset_msg_id).body)
        """,
        str(tmp_path / "store"),
    )
    assert ended.returncode == 0, ended.stderr
    refused, hint, status, body = ended.stdout.splitlines()
    assert refused.startswith("RefusedError 14"), refused
    assert "space" in refused
    assert "free space" in hint
    assert status == "SEND_OK"
    assert body == "b'before'"


def test_a_wrong_name_server_address_is_named(free_port):
    address = f"127.0.0.1:{free_port}"
    with rocketpy.Producer("wrong", name_servers=[address], retries=0) as producer:
        with pytest.raises(rocketpy.ConnectionFailedError, match=address) as failed:
            producer.send(Message("topic", b"text"), timeout=3)
    assert failed.value.hint
    with pytest.raises(rocketpy.ConnectionFailedError, match=address):
        rocketpy.Consumer("wrong", "topic", name_servers=[address])


def test_a_name_that_does_not_resolve_is_named():
    with rocketpy.Admin(name_servers=["no-such-host.invalid:9876"], connect_timeout=5) as admin:
        with pytest.raises(rocketpy.ConnectionFailedError, match=r"no-such-host\.invalid"):
            admin.topics()


def test_a_server_that_speaks_something_else_is_reported():
    listener = socket.create_server(("127.0.0.1", 0))

    def talk():
        connection, _ = listener.accept()
        connection.sendall(b"220 mail.example ESMTP\r\n" * 3)
        connection.recv(1000)
        connection.close()

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    with rocketpy.Admin(name_servers=[f"127.0.0.1:{listener.getsockname()[1]}"], api_timeout=5) as admin:
        with pytest.raises(rocketpy.RocketPyError) as broken:
            admin.topics()
    assert isinstance(
        broken.value, rocketpy.ConnectionLostError | rocketpy.ProtocolError | rocketpy.RequestTimeoutError
    )
    thread.join(10)
    listener.close()


def test_many_connections_that_say_nothing_do_not_stop_others(rocketpy_server):
    silent = [Raw(rocketpy_server.broker) for _ in range(200)]
    half = [Raw(rocketpy_server.broker) for _ in range(50)]
    for raw in half:
        raw.socket.sendall(frame(HEADER)[:9])
    with rocketpy_server.producer("others") as producer:
        assert producer.send(Message(fresh_name(), b"text")).status == rocketpy.SendStatus.SEND_OK
    for raw in silent + half:
        raw.socket.close()


def test_settings_of_the_fixtures_are_known_keys(tmp_path):
    with rocketpy.Server(tmp_path / "store", settings=SMALL_FILES) as server:
        server.check()
