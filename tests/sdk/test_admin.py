"""Administration: topics, groups, offsets, brokers."""

import time
from pathlib import Path

import pytest
from reading import read_all

import rocketpy
from rocketpy import InvalidArgumentError, Message, Start
from rocketpy.testing import PatientServer, fresh_name
from waiting import moment_between, wait_until


@pytest.fixture
def admin(rocketpy_server):
    with rocketpy_server.admin() as admin:
        yield admin


@pytest.fixture
def filled(producer, admin, rocketpy_topic):
    """A topic of four queues with 100 messages."""
    producer.send_many([Message(rocketpy_topic, b"%d" % n) for n in range(100)])
    wait_until(lambda: sum(info.max_offset for info in admin.describe_topic(rocketpy_topic).queues) == 100)
    return rocketpy_topic


def consume(server, group, topic, count):
    with server.consumer(group, topic, start=Start.EARLIEST) as consumer:
        seen = 0
        while seen < count:
            batch = consumer.poll(count - seen, timeout=60)
            assert batch
            seen += len(batch)
        consumer.commit()
        return consumer.positions()


def test_a_topic_is_made_described_and_deleted(admin, rocketpy_server):
    topic = fresh_name()
    admin.create_topic(topic, queues=3)
    assert topic in admin.topics()
    info = admin.describe_topic(topic)
    assert (info.name, [one.queue.queue_id for one in info.queues]) == (topic, [0, 1, 2])
    assert all((one.min_offset, one.max_offset, one.last_stored_at) == (0, 0, None) for one in info.queues)
    (broker,) = info.brokers
    assert broker.addresses == {0: rocketpy_server.broker}
    assert (broker.read_queues, broker.write_queues, broker.readable, broker.writable) == (3, 3, True, True)
    admin.delete_topic(topic)
    assert topic not in admin.topics()
    with pytest.raises(rocketpy.TopicNotFoundError, match=topic):
        admin.describe_topic(topic)


def test_a_topic_can_grow(admin, filled):
    admin.create_topic(filled, queues=6)
    assert len(admin.queues(filled)) == 6
    assert sum(info.max_offset for info in admin.describe_topic(filled).queues) == 100


def test_attributes_are_set_kept_removed_and_refused_by_name(admin):
    topic = fresh_name()

    def attributes() -> dict[str, str]:
        (broker,) = admin.describe_topic(topic).brokers
        return broker.attributes

    admin.create_topic(topic, queues=1, attributes={"flush.type": "SYNC_FLUSH", "retention.hours": "1"})
    admin.create_topic(topic, queues=2)
    assert attributes() == {"flush.type": "SYNC_FLUSH", "retention.hours": "1"}, "what is not named stays"
    admin.create_topic(topic, queues=2, attributes={"flush.type": None})
    assert attributes() == {"retention.hours": "1"}
    with pytest.raises(rocketpy.RefusedError, match=r"\+retention\.hours=soon") as refused:
        admin.create_topic(topic, queues=2, attributes={"retention.hours": "soon"})
    assert refused.value.code == 29
    for name, value in (("a", "1,-b"), ("", "1"), ("a=b", "1"), ("a", "")):
        with pytest.raises(rocketpy.InvalidArgumentError, match="attributes"):
            admin.create_topic(topic, queues=2, attributes={name: value})
    with pytest.raises(TypeError):
        admin.create_topic(topic, queues=2, attributes={"retention.hours": 1})


def test_a_topic_may_be_closed_to_senders(admin, producer):
    topic = fresh_name()
    admin.create_topic(topic, queues=2, writable=False)
    (broker,) = admin.describe_topic(topic).brokers
    assert (broker.readable, broker.writable) == (True, False)
    with pytest.raises(rocketpy.RocketPyError, match=topic):
        producer.send(Message(topic, b"text"))


def test_what_queues_hold_is_told(admin, producer, filled):
    info = admin.describe_topic(filled)
    assert sum(one.max_offset - one.min_offset for one in info.queues) == 100
    for one in info.queues:
        assert admin.min_offset(one.queue) == one.min_offset == 0
        assert admin.max_offset(one.queue) == admin.next_offset(one.queue) == one.max_offset
        if one.max_offset:
            assert abs(one.last_stored_at.timestamp() - time.time()) < 60


def test_an_offset_is_found_by_time(admin, producer, filled):
    queue = admin.queues(filled)[0]
    before = admin.max_offset(queue)
    moment = moment_between()
    producer.send_many([Message(filled, b"new") for _ in range(5)], queue=queue)
    wait_until(lambda: admin.max_offset(queue) == before + 5)
    assert admin.search_offset(queue, moment) == before
    assert admin.search_offset(queue, 0) == 0


def test_a_groups_lag_is_what_it_has_not_committed(admin, rocketpy_server, filled):
    group = fresh_name()
    positions = consume(rocketpy_server, group, filled, 60)
    rows = admin.group_lag(group, filled)
    assert sum(row.lag for row in rows) == 40
    assert {row.queue: row.committed_offset for row in rows if row.committed_offset} == {
        queue: offset for queue, offset in positions.items() if offset
    }
    assert all(row.lag == row.max_offset - (row.committed_offset or 0) for row in rows)
    assert {row.queue for row in admin.group_lag(group)} == {row.queue for row in rows}
    queue = rows[0].queue
    assert admin.committed_offset(group, queue) == rows[0].committed_offset


def test_what_live_members_hold_is_told_apart_from_what_is_stored(admin, rocketpy_server, filled):
    group = fresh_name()

    def figures() -> tuple[int, int]:
        rows = admin.group_lag(group, filled)
        return sum(row.lag for row in rows), sum(row.held for row in rows)

    with rocketpy_server.consumer(group, filled, start=Start.EARLIEST) as consumer:
        received = 0
        while received < 100:
            received += len(consumer.poll(timeout=60))
        assert figures() == (100, 100)
        consumer.commit()
        assert figures() == (0, 0)
    admin.reset_offsets(group, filled, Start.EARLIEST)
    assert figures() == (100, 0), "nobody is there to hold anything"
    never = fresh_name()
    one = admin.queues(filled)[0]
    with rocketpy_server.consumer(never, filled, start=Start.EARLIEST) as consumer:
        wait_until(lambda: admin.committed_offset(never, one) == 0)
    assert {row.committed_offset for row in admin.group_lag(never, filled)} <= {0, None}
    assert all(row.committed_offset is None for row in admin.group_lag(fresh_name(), filled))


def test_a_group_that_is_not_there_is_an_error(admin):
    for use in (admin.group_lag, admin.describe_group, admin.delete_group):
        with pytest.raises(rocketpy.GroupNotFoundError, match="no such group: nope") as refused:
            use("nope")
        assert isinstance(refused.value, rocketpy.RefusedError)
        assert refused.value.code == 26
        assert "group list" in refused.value.hint
    group = fresh_name()
    admin.create_group(group)
    assert admin.group_lag(group) == []


def test_a_query_that_a_broker_cuts_off_says_so(admin, producer, rocketpy_topic, caplog):
    producer.send_many([Message(rocketpy_topic, b"text", keys="many") for _ in range(70)])
    producer.send_many([Message(rocketpy_topic, b"text", keys="last")])
    while not admin.query_messages(rocketpy_topic, "last"):
        pass  # the index follows the acknowledgement in a moment
    assert len(admin.query_messages(rocketpy_topic, "many")) == 64
    assert not caplog.records
    assert len(admin.query_messages(rocketpy_topic, "many", max_messages=1000)) == 64
    (record,) = caplog.records
    assert record.name == "rocketpy.client"
    assert (
        "query result of broker-a may be incomplete: limit of 64 messages (maxMsgsNumBatch) reached for many"
        in record.getMessage()
    )


def test_what_a_server_does_not_serve_has_a_hint(rocketpy_server):
    with rocketpy.Admin(name_servers=rocketpy_server.broker) as admin:
        with pytest.raises(rocketpy.NotSupportedError, match="GET_ALL_TOPIC_LIST") as refused:
            admin.topics()
    assert "wants a name server, not a broker" in refused.value.hint


def test_groups_and_their_members_are_listed(admin, rocketpy_server, rocketpy_topic):
    group = fresh_name()
    with rocketpy_server.consumer(group, rocketpy_topic) as consumer:
        assert admin.group_members(group) == [consumer.client_id]
        (info,) = [one for one in admin.groups() if one.name == group]
        assert info.members == (consumer.client_id,)
    retries = f"%RETRY%{group}"
    assert retries in admin.topics()
    admin.delete_group(group)
    assert group not in [one.name for one in admin.groups()]
    assert retries not in admin.topics()


def test_offsets_are_reset(admin, rocketpy_server, filled):
    group = fresh_name()
    consume(rocketpy_server, group, filled, 100)
    assert sum(row.lag for row in admin.group_lag(group, filled)) == 0
    assert set(admin.reset_offsets(group, filled, Start.EARLIEST).values()) == {0}
    assert sum(row.lag for row in admin.group_lag(group, filled)) == 100
    assert sum(admin.reset_offsets(group, filled, Start.LATEST).values()) == 100
    assert sum(admin.reset_offsets(group, filled, Start.at(0)).values()) == 0
    with pytest.raises(rocketpy.InvalidArgumentError):
        admin.reset_offsets(group, filled, Start.STORED)
    assert sum(admin.reset_offsets(group, filled, "latest").values()) == 100
    with pytest.raises(TypeError, match="Start"):
        admin.reset_offsets(group, filled, 5)


def test_offsets_of_a_group_with_members_are_reset_by_force_only(admin, rocketpy_server, filled):
    group = fresh_name()
    with rocketpy_server.consumer(group, filled, start=Start.EARLIEST) as consumer:
        consumer.poll(timeout=60)
        with pytest.raises(rocketpy.GroupConflictError, match=group) as active:
            admin.reset_offsets(group, filled, Start.LATEST)
        assert active.value.hint
        assert sum(admin.reset_offsets(group, filled, Start.LATEST, force=True).values()) == 100


def test_a_running_member_goes_where_its_group_is_reset(admin, rocketpy_server, filled):
    with rocketpy_server.consumer(fresh_name(), filled, start=Start.EARLIEST, auto_commit=False) as consumer:

        def take(count: int) -> set[bytes]:
            taken = []
            while len(taken) < count:
                taken += consumer.poll(timeout=60)
            return {one.body for one in taken}

        first = take(100)
        consumer.commit()
        admin.reset_offsets(consumer.group, filled, Start.EARLIEST, force=True)
        assert take(100) == first
        moves = consumer.offset_moves()
        assert {move.to_offset for move in moves} == {0}
        assert sum(move.from_offset for move in moves) == 100
        consumer.commit()
        assert sum(lag.committed_offset or 0 for lag in admin.group_lag(consumer.group)) == 100, "as before the reset"
        admin.reset_offsets(consumer.group, filled, Start.at(0), force=True)
        assert take(100) == first


def test_a_message_is_viewed_by_its_offset_id(admin, producer, rocketpy_topic):
    receipt = producer.send(Message(rocketpy_topic, b"text", tag="UA", keys=["k"]))
    message = admin.view_message(receipt.offset_msg_id)
    assert (message.topic, message.body, message.tag, message.keys) == (rocketpy_topic, b"text", "UA", ("k",))
    assert (message.msg_id, message.queue_id, message.queue_offset) == (
        receipt.msg_id,
        receipt.queue.queue_id,
        receipt.queue_offset,
    )


@pytest.mark.parametrize("id", ["", "abc", "7F00000100002A9F0000000000000", "ü" * 32])
def test_an_ill_formed_message_id_is_named(admin, id):
    with pytest.raises(rocketpy.InvalidArgumentError, match="offset message id"):
        admin.view_message(id)


def test_a_place_without_a_message_is_an_error(admin, producer, rocketpy_topic):
    receipt = producer.send(Message(rocketpy_topic, b"text"))
    beyond = f"{receipt.offset_msg_id[:16]}{2**40:016X}"
    with pytest.raises(rocketpy.RocketPyError) as missing:
        admin.view_message(beyond)
    assert missing.value.code is not None


def test_brokers_are_listed(admin, rocketpy_server):
    (broker,) = admin.brokers()
    assert (broker.broker_name, broker.cluster, broker.addresses) == (
        "broker-a",
        "DefaultCluster",
        {0: rocketpy_server.broker},
    )


@pytest.mark.parametrize("queues", [0, -1, 2**40])
def test_a_topic_has_at_least_one_queue(admin, queues):
    with pytest.raises(rocketpy.InvalidArgumentError, match="queues"):
        admin.create_topic(fresh_name(), queues=queues)


def test_more_queues_than_a_broker_makes_are_refused_by_it(admin):
    with pytest.raises(rocketpy.RocketPyError):
        admin.create_topic(fresh_name(), queues=10**6)


@pytest.mark.parametrize("topic", ["", "a/b", "x" * 128, "../../etc/passwd"])
def test_bad_topic_names_are_refused(admin, topic):
    for use in (admin.create_topic, admin.delete_topic):
        with pytest.raises(rocketpy.RocketPyError) as refused:
            use(topic)
        assert not refused.value.retryable


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "TBW102"])
def test_system_topics_are_not_made_or_deleted(admin, topic):
    for use in (admin.create_topic, admin.delete_topic):
        with pytest.raises(
            rocketpy.InvalidArgumentError, match=f"cannot be created, changed or deleted: {topic}"
        ) as no:
            use(topic)
        assert no.value.hint


def test_a_new_group_can_be_told_where_to_begin(admin, rocketpy_server, producer, rocketpy_topic):
    group = fresh_name("fresh")
    for n in range(8):
        producer.send(Message(rocketpy_topic, b"old-%d" % n))
    with pytest.raises(rocketpy.GroupNotFoundError) as missing:
        admin.reset_offsets(group, rocketpy_topic, Start.LATEST)
    assert missing.value.code == 26
    for _again in range(2):
        admin.create_group(group)
    assert group in {one.name for one in admin.groups()}
    while sum(info.max_offset for info in admin.describe_topic(rocketpy_topic).queues) < 8:
        pass  # entries follow the acknowledgement in a moment
    assert sum(admin.reset_offsets(group, rocketpy_topic, Start.LATEST).values()) == 8
    producer.send(Message(rocketpy_topic, b"new"))
    with rocketpy_server.consumer(group, rocketpy_topic, start=Start.EARLIEST) as consumer:
        assert [message.body for message in consumer.poll(timeout=60)] == [b"new"]
    with pytest.raises(rocketpy.InvalidArgumentError):
        admin.create_group("a b")


def test_a_topic_to_delete_that_is_not_there_is_not_one_to_create(admin):
    topic = fresh_name("misspelt")
    with pytest.raises(rocketpy.TopicNotFoundError, match=topic) as missing:
        admin.delete_topic(topic)
    assert "create" not in missing.value.hint


def test_the_name_servers_of_an_admin_may_come_first(rocketpy_server, rocketpy_topic):
    with rocketpy.Admin(rocketpy_server.name_server) as admin:
        assert rocketpy_topic in admin.topics()


def test_a_cluster_or_broker_that_is_not_there_is_named(admin):
    for place in ({"cluster": "elsewhere"}, {"broker": "elsewhere"}):
        with pytest.raises(rocketpy.BrokerNotFoundError, match="elsewhere"):
            admin.create_topic(fresh_name(), **place)


def test_no_broker_at_all_is_an_error_with_the_way_out():
    with rocketpy.NameServer() as names, names.admin(api_timeout=60) as admin:
        calls = [
            lambda: admin.create_group("g"),
            lambda: admin.delete_group("g"),
            admin.groups,
            admin.topics,
            lambda: admin.create_topic(fresh_name()),
        ]
        for call in calls:
            with pytest.raises(rocketpy.BrokerNotFoundError, match=names.name_server) as missing:
                call()
            assert missing.value.retryable
            assert "rocketpy broker --name-server" in missing.value.hint
        assert admin.brokers() == []


def test_the_producers_of_a_group_are_told_with_their_connections(admin, rocketpy_server, rocketpy_topic):
    group = fresh_name("producers")
    assert admin.producer_connections(group) == []
    with rocketpy_server.producer(group) as one, rocketpy_server.producer(group) as other:
        for producer in (one, other):
            producer.send(Message(fresh_name(), b"x"))
        wait_until(lambda: len(admin.producer_connections(group)) == 2)  # the first heartbeats are on their way
        found = admin.producer_connections(group)
        assert [connection.client_id for connection in found] == sorted([one.client_id, other.client_id])
        assert {connection.language for connection in found} == {"PYTHON"}
        assert all(connection.address.startswith("127.0.0.1:") for connection in found)
        assert {connection.version for connection in found} == {479}
    assert admin.producer_connections(group) == []
    with rocketpy_server.consumer(group, rocketpy_topic):
        (member,) = admin.describe_group(group)
        assert (member.language, member.version) == ("PYTHON", 479)


def test_a_group_is_put_to_an_offset_in_one_queue(admin, rocketpy_server, filled):
    group, queue = fresh_name("put"), max(admin.describe_topic(filled).queues, key=lambda info: info.max_offset).queue
    end = admin.max_offset(queue)
    with pytest.raises(rocketpy.GroupNotFoundError):
        admin.commit_offset(group, queue, 1)
    admin.create_group(group)
    for offset in (end, 1, 0):  # forward and back
        admin.commit_offset(group, queue, offset)
        assert admin.committed_offset(group, queue) == offset
    with pytest.raises(rocketpy.OffsetError):
        admin.commit_offset(group, queue, end + 1)
    with rocketpy_server.consumer(group, filled):
        with pytest.raises(rocketpy.GroupConflictError):
            admin.commit_offset(group, queue, 1)
        admin.commit_offset(group, queue, 1, force=True)


def test_a_group_begins_where_the_one_is_whose_offsets_it_gets(admin, rocketpy_server, filled):
    blue, green, other = fresh_name("blue"), fresh_name("green"), fresh_name("other")
    admin.create_topic(other, queues=1)
    with rocketpy_server.producer("clones") as producer:
        producer.send(Message(other, b"x"))
    consume(rocketpy_server, blue, filled, 60)
    consume(rocketpy_server, blue, other, 1)
    with pytest.raises(rocketpy.GroupNotFoundError):
        admin.clone_offsets(blue, green)
    admin.create_group(green)
    with pytest.raises(rocketpy.GroupNotFoundError):
        admin.clone_offsets(fresh_name("nobody"), green)
    assert admin.clone_offsets(blue, green, topic=filled) == [filled]
    committed = [admin.committed_offset(blue, queue) for queue in admin.queues(filled)]
    assert [admin.committed_offset(green, queue) for queue in admin.queues(filled)] == committed
    assert admin.committed_offset(green, *admin.queues(other)) is None
    assert admin.clone_offsets(blue, green) == sorted([filled, other])
    assert admin.committed_offset(green, *admin.queues(other)) == 1
    rest = consume(rocketpy_server, green, filled, 40)
    assert rest == {queue: admin.max_offset(queue) for queue in rest}, "up to the ends"
    with rocketpy_server.consumer(green, filled):
        with pytest.raises(rocketpy.GroupConflictError):
            admin.clone_offsets(blue, green)
        assert admin.clone_offsets(blue, green, topic=filled, force=True) == [filled]
    empty = fresh_name("empty")
    admin.create_group(empty)
    assert admin.clone_offsets(empty, green) == []


def test_settings_of_a_broker_are_read_and_changed_while_it_runs(tmp_path: Path):
    server = rocketpy.Server(tmp_path)  # settings would override live values
    with server, server.admin() as admin, server.producer("settings") as producer:
        before = admin.broker_config(server.broker)
        assert (before["brokerName"], before["autoCreateTopicEnable"]) == (admin.brokers()[0].broker_name, "true")
        admin.update_broker_config(server.broker, {"autoCreateTopicEnable": False, "defaultTopicQueueNums": 3})
        after = admin.broker_config(server.broker)
        assert (after["autoCreateTopicEnable"], after["defaultTopicQueueNums"]) == ("false", "3")
        with pytest.raises(rocketpy.TopicNotFoundError):
            producer.send(Message(fresh_name(), b"x"))
        for changes in ({"autoCreateTopicEnabled": True}, {"defaultTopicQueueNums": "many"}, {"listenPort": 1}):
            with pytest.raises(rocketpy.RefusedError, match=next(iter(changes))):
                admin.update_broker_config(server.broker, {"fileReservedTime": 1, **changes})
        assert admin.broker_config(server.broker) == after, "all or nothing"


def test_a_closed_admin_says_so(rocketpy_server):
    admin = rocketpy_server.admin()
    admin.close()
    with pytest.raises(rocketpy.ClosedError):
        admin.topics()


@pytest.fixture
def keyed(producer, admin, rocketpy_topic):
    """Receipts of three messages with keys, which the index has."""
    sent = [producer.send(Message(rocketpy_topic, b"%d" % n, tag="paid", keys=["all", f"own-{n}"])) for n in range(3)]
    wait_until(lambda: len(admin.query_messages(rocketpy_topic, "all")) == 3)
    return sent


def test_messages_are_found_by_key_by_tag_and_by_unique_key(admin, rocketpy_topic, keyed):
    def bodies(key, **options):
        return sorted(message.body for message in admin.query_messages(rocketpy_topic, key, **options))

    assert bodies("own-1") == [b"1"]
    assert bodies("all") == [b"0", b"1", b"2"]
    assert bodies("all", max_messages=2) == [b"1", b"2"]
    assert bodies("paid") == []
    assert bodies("paid", kind="tag") == [b"0", b"1", b"2"]
    assert bodies(keyed[2].msg_id, kind="unique_key") == [b"2"]
    [first] = admin.query_messages(rocketpy_topic, "own-0")
    assert (first.keys, first.queue, first.queue_offset) == (("all", "own-0"), keyed[0].queue, keyed[0].queue_offset)
    assert bodies("own-0", begin=first.stored_at, end=first.stored_at) == [b"0"]
    assert bodies("own-0", begin=first.stored_at_ms / 1000 + 1) == []
    assert bodies("own-0", end=first.stored_at_ms / 1000 - 1) == []
    with pytest.raises(rocketpy.InvalidArgumentError, match="not colour"):
        bodies("own-0", kind="colour")
    with pytest.raises(rocketpy.InvalidArgumentError, match="max_messages"):
        bodies("own-0", max_messages=0)
    with pytest.raises(rocketpy.TopicNotFoundError):
        admin.query_messages(fresh_name(), "own-0")


def test_a_message_is_found_by_either_of_its_ids(admin, rocketpy_topic, keyed):
    for msg_id in (keyed[1].msg_id, keyed[1].offset_msg_id):
        message = admin.message(rocketpy_topic, msg_id)
        assert (message.body, message.queue) == (b"1", keyed[1].queue)
    assert admin.message(rocketpy_topic, "no-such-id") is None


def test_a_store_finds_messages_by_key_without_its_server(tmp_path):
    with PatientServer(tmp_path / "store") as server, server.producer("writer") as producer:
        sent = [producer.send(Message("flights", b"%d" % n, keys=[f"own-{n}", "all"])) for n in range(3)]
    reader = rocketpy.StoreReader(tmp_path / "store")
    assert [message.body for message in reader.query("flights", "all")] == [b"0", b"1", b"2"]
    assert [message.body for message in reader.query("flights", "all", max_messages=1)] == [b"2"]
    [one] = reader.query("flights", sent[1].msg_id, kind="unique_key")
    assert (one.body, one.queue_id, one.queue_offset) == (b"1", sent[1].queue.queue_id, sent[1].queue_offset)
    assert reader.query("flights", "nothing") == []
    with pytest.raises(rocketpy.DamagedDataError, match="10 slots"):
        reader.query("flights", "all", slots_and_entries=(10, 20))


def test_a_topic_that_is_declared_again_keeps_what_is_not_named(admin, rocketpy_server):
    topic = fresh_name("declared")
    admin.create_topic(topic, queues=12, write_queues=6, writable=False)
    admin.create_topic(topic)
    (broker,) = admin.describe_topic(topic).brokers
    assert (broker.read_queues, broker.write_queues, broker.readable, broker.writable) == (12, 6, True, False)
    admin.create_topic(topic, writable=True)
    with rocketpy_server.producer("declares") as producer:
        for queue in admin.queues(topic)[:6]:
            producer.send(Message(topic, b"x"), queue=queue)
    with pytest.raises(InvalidArgumentError, match="the removed queues hold 2 messages"):
        admin.create_topic(topic, queues=4)
    assert len(admin.queues(topic)) == 12
    admin.create_topic(topic, queues=4, force=True)
    assert len(admin.queues(topic)) == 4
    admin.create_topic(topic, queues=6)  # as many as before bring them back
    assert len(read_all(rocketpy_server, topic, 6)) == 6
