"""Sends and groups that a server refuses, and bodies that grow when they are read."""

import pickle

import pyarrow
import pytest

from rocketpy import (
    Consumer,
    InvalidArgumentError,
    Message,
    MessageTooLargeError,
    Producer,
    RangeReader,
    Start,
    StoreReader,
)


@pytest.fixture
def serve(start, tmp_path):
    """Starts a server with some settings."""

    def serve(*settings: str):
        given = [argument for setting in settings for argument in ("--set", setting)]
        return start("server", str(tmp_path / "store"), "--port", "0", "--name-server-port", "0", *given)

    return serve


def test_sends_that_were_refused_outright_are_not_uncertain(serve, command):
    server = serve("brokerPermission=4")
    command("topic", "create", "t", name_server=server.name_server)
    produce = ("--timeout", "5", "produce", "t")  # each of the tries looks that long for a broker that lets it write
    refused = command(*produce, stdin="x\ny\n", name_server=server.name_server, code=3)
    assert "topic has no writable queue: t" in refused.stderr


def test_a_body_past_the_limit_names_both_limits_and_both_can_be_raised(serve, command):
    server = serve("maxMessageSize=8388608", "mappedFileSizeCommitLog=16777216")
    body = "x" * 5_000_000
    error = command("produce", "t", stdin=body, name_server=server.name_server, code=2).stderr
    assert "--max-message-size" in error
    assert "maxMessageSize" in error
    assert "4194304" in error
    command("produce", "t", "--max-message-size", "8388608", stdin=body, name_server=server.name_server)
    assert command("consume", "t", name_server=server.name_server).stdout == body + "\n"


def test_a_member_of_a_group_that_is_not_there_and_is_not_made_is_told(serve, command):
    server = serve("autoCreateSubscriptionGroup=false")
    command("produce", "t", stdin="x\n", name_server=server.name_server)
    error = command("consume", "t", "--group", "new", name_server=server.name_server, code=3).stderr
    assert "SUBSCRIPTION_GROUP_NOT_EXIST" in error
    assert "rocketpy group create" in error


def test_no_message_is_lost_around_a_body_that_grows_past_the_limit(serve, command, tmp_path):
    server = serve("maxMessageSize=8388608", "mappedFileSizeCommitLog=16777216")
    command("topic", "create", "t", "--queues", "1", name_server=server.name_server)
    bodies = [b"first", b"x" * 5_000_000, b"y" * (20 << 20), b"last"]
    with Producer("p", name_servers=server.name_server, max_message_size=32 << 20, send_timeout=60) as producer:
        for body in bodies:
            producer.send(Message("t", body))
    with Consumer("bounded", "t", name_servers=server.name_server, start=Start.EARLIEST) as consumer:
        assert [message.body for message in consumer.poll(timeout=60)] == bodies[:2]
        for _ in range(2):
            with pytest.raises(MessageTooLargeError) as error:
                consumer.poll(timeout=60)
            assert "max_body_bytes" in error.value.hint
            assert "16777216" in error.value.hint
        ((queue, position),) = consumer.positions().items()
        assert position == 2
        consumer.commit()
        assert consumer.committed(queue) == 2
        consumer.seek(queue, 3)
        assert [message.body for message in consumer.poll(timeout=60)] == bodies[3:]
    options = {"start": Start.EARLIEST, "max_body_bytes": 20 << 20}
    with Consumer("wide", "t", name_servers=server.name_server, **options) as consumer:
        messages = consumer.poll(timeout=60)
    assert [message.body for message in messages] == bodies
    assert [message.body for message in pickle.loads(pickle.dumps(messages))] == bodies
    server.stop()
    store = str(tmp_path / "store")
    assert "--max-body-bytes" in command("store", "dump", store, code=2).stderr
    dumped = command("store", "dump", store, "--max-body-bytes", str(20 << 20), stdin=b"").stdout
    assert dumped.split() == bodies


def test_every_way_to_read_takes_a_limit_for_bodies(serve, command, tmp_path):
    server = serve("maxMessageSize=8388608", "mappedFileSizeCommitLog=16777216")
    body = b"y" * (20 << 20)
    with Producer("p", name_servers=server.name_server, max_message_size=32 << 20, send_timeout=60) as producer:
        queue = producer.send(Message("t", body)).queue
    assert "--max-body-bytes" in command("consume", "t", name_server=server.name_server, code=11).stderr
    wide = ["--max-body-bytes", str(20 << 20)]
    for arguments in ([], ["--group", "g"]):
        assert command("consume", "t", *wide, *arguments, name_server=server.name_server).stdout == body.decode() + "\n"
    reader = StoreReader(tmp_path / "store")

    def over_network(**options):
        with RangeReader(queue, 0, 1, columns=["body"], name_servers=server.name_server, **options) as part:
            return [pyarrow.record_batch(batch)["body"][0].as_py() for batch in part]

    def of_folder(**options):
        return [pyarrow.record_batch(one)["body"][0].as_py() for one in reader.scan("t", columns=["body"], **options)]

    for read in (over_network, of_folder):
        with pytest.raises(MessageTooLargeError) as error:
            read()
        assert "max_body_bytes" in error.value.hint
        with pytest.raises(InvalidArgumentError, match="max_body_bytes"):
            read(max_body_bytes=0)
        assert read(max_body_bytes=20 << 20) == [body]
