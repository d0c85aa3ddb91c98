"""RocketPy's Python client against Apache's name server and broker 5.5.0, and 4.9.7; and where the brokers differ."""

import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rocketpy
from apache_processes import apache_cluster
from peers import Answer, Cpp, Java, exchange, port_of_broker, set_up_apache_4_9
from sdk import fresh, in_order, messages, read, reply_to, send
from waiting import wait_until


def test_java_reads_what_python_sends_through_apache(java: Java, apache_address: str, home):
    topic = fresh("python-apache")
    receipts = send(apache_address, messages(topic, 10, "one", "TagA") + messages(topic, 2, "big", "TagA", 50_000))
    assert all(receipt.status == rocketpy.SendStatus.SEND_OK for receipt in receipts)
    lines = java.drive(home, "push", apache_address, topic, "12", fresh("java-group"))
    assert sorted(one["keys"] for one in lines) == sorted([f"one-{i}" for i in range(10)] + ["big-0", "big-1"])
    assert {one["msg_id"] for one in lines} == {receipt.msg_id for receipt in receipts}
    assert in_order(read(apache_address, topic, 12)) == in_order(lines)


@pytest.mark.parametrize("mode", ["send", "async", "batch"])
def test_java_gets_the_results_of_sends_from_rocketpy_as_from_apache(
    java: Java, apache_address: str, rocketpy_address: str, home, mode: str
):
    def results(address: str) -> list[dict]:
        return java.drive(home, mode, address, fresh(f"results-{mode}"), "3", "one", "TagA")

    def form(result: dict) -> dict:
        # Ids differ from run to run: how many there are, how long each is, and which of them are the same.
        ids = {name: [len(one) for one in (result.get(name) or "").split(",")] for name in ("msg_id", "offset_msg_id")}
        same = result.get("transaction_id") == result["msg_id"]
        rest = {name: result.get(name) for name in ("status", "region_id", "trace_on", "recall_handle")}
        return {**ids, **rest, "transaction_id": result.get("transaction_id") and same}

    apache, ours = ([form(one) for one in results(address)] for address in (apache_address, rocketpy_address))
    assert ours == apache
    if mode == "batch":
        assert len(ours[0]["msg_id"]) == 3, "one id a message"


def test_python_asks_and_replies_through_apache_as_through_rocketpy(apache_address: str, rocketpy_address: str):
    def outcomes(address: str) -> list[object]:
        topic, names = fresh("asked"), {"name_servers": [address]}
        with rocketpy.Admin(address) as admin:
            admin.create_topic(topic, queues=1)
        with rocketpy.Producer(fresh("asker"), **names) as asker, ThreadPoolExecutor(1) as pool:
            replying = pool.submit(reply_to, address, topic, 1)
            reply = asker.request(*messages(topic, 1, "one"), timeout=60)
            replying.result()
        with rocketpy.Producer(fresh("gone"), **names) as gone, pytest.raises(rocketpy.RequestTimeoutError):
            gone.request(*messages(topic, 1, "two"), timeout=0.5)
        with rocketpy.Consumer(fresh("late"), topic, **names) as consumer:
            request = next(one for one in consumer if one.body == b"two-0")
        with (
            rocketpy.Producer(fresh("late"), retries=0, **names) as late,
            pytest.raises(rocketpy.RefusedError) as refused,
        ):
            late.reply(request, b"late")
        known = {name for name in reply.properties if name not in ("MSG_REGION", "TRACE_ON", "CLUSTER")}
        return [reply.body, reply.topic.endswith("_REPLY_TOPIC"), known, refused.value.code]

    ours = outcomes(rocketpy_address)
    assert ours[0] == b"re:one-0"
    assert outcomes(apache_address) == ours


def test_send_many_reaches_apache_in_batches_and_in_order(java: Java, apache_address: str, home):
    topic = fresh("many-apache")
    todo = [
        rocketpy.Message(topic, f"{i}".encode(), order_key=f"key-{i % 7}", properties={"n": f"{i % 7}"})
        for i in range(2000)
    ]
    with rocketpy.Producer(fresh("many"), name_servers=[apache_address]) as producer:
        receipts = producer.send_many(todo)
    assert len(receipts) == 2000
    lines = in_order(read(apache_address, topic, 2000))
    assert sorted(int(one["body"]) for one in lines) == list(range(2000))
    for key in range(7):
        ours = [int(one["body"]) for one in lines if int(one["body"]) % 7 == key]
        assert ours == sorted(ours), f"order key {key}"


def test_python_reads_by_tag_what_java_and_cpp_sent_to_apache(java: Java, cpp: Cpp, apache_address: str, home):
    topic = fresh("java-apache")
    java.drive(home, "send", apache_address, topic, "5", "j", "TagA", "20000")
    java.drive(home, "batch", apache_address, topic, "5", "b", "TagB")
    cpp.drive(home, "send", apache_address, topic, "5", "c", "TagC")
    lines = read(apache_address, topic, 10, tags="TagA || TagC")
    assert sorted(one["keys"] for one in lines) == sorted([f"j-{i}" for i in range(5)] + [f"c-{i}" for i in range(5)])
    assert {one["origin"] for one in lines} == {"java", "cpp"}
    assert len(read(apache_address, topic, 15)) == 15


def test_a_committed_group_goes_on_at_apache_and_can_be_reset(java: Java, apache_address: str, home):
    topic, group = fresh("group-apache"), fresh("group")
    send(apache_address, messages(topic, 6, "first"))
    first = read(apache_address, topic, 6, group=group)
    assert sorted(one["body"] for one in first) == [f"first-{i}" for i in range(6)], first
    send(apache_address, messages(topic, 4, "second"))
    second = read(apache_address, topic, 4, group=group)
    assert sorted(one["body"] for one in second) == [f"second-{i}" for i in range(4)], (first, second)
    with rocketpy.Admin(name_servers=[apache_address]) as admin:
        assert sum(one.lag for one in admin.group_lag(group, topic)) == 0
        offsets = admin.reset_offsets(group, topic, rocketpy.Start.EARLIEST)
        assert set(offsets) == set(admin.queues(topic))
        assert set(offsets.values()) == {0}
        assert sum(one.lag for one in admin.group_lag(group, topic)) == 10
    again = read(apache_address, topic, 10, group=group)
    assert sorted(one["body"] for one in again) == sorted(one["body"] for one in first + second)


def test_a_queue_goes_to_the_next_member_at_apache_after_the_commit_of_the_messages_in_work(apache_address: str):
    topic, group = fresh("handover-apache"), fresh("group")
    send(apache_address, messages(topic, 40, "one"))

    def member() -> rocketpy.Consumer:
        return rocketpy.Consumer(group, topic, name_servers=[apache_address], handover_timeout=600)

    with member() as one:
        in_work: list[rocketpy.ReceivedMessage] = []
        wait_until(lambda: in_work.extend(one.poll(timeout=0.2)) or len(in_work) == 40)
        queues = len(one.assignment())
        with member() as other:
            wait_until(lambda: len(other.assignment()) == queues - len(one.assignment()) > 0)
            early = other.poll(timeout=1.5)  # Apache's broker gives the lock to one member only
            assert (early, other.positions()) == ([], {})
            one.commit()
            wait_until(lambda: len(other.positions()) == len(other.assignment()))
            assert set(other.lag().values()) == {0}, "nothing comes twice"


NOT_FOR_BATCHES = {"DELAY": "1", "TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "1000", "TRAN_MSG": "true"}


def send_batch(port: int, topic: str, of_batch: dict[str, str], of_messages: dict[str, str]) -> Answer:
    """Two messages under SEND_BATCH_MESSAGE; the properties of a batch are apart from those of its messages."""

    def encoded(properties: dict[str, str]) -> str:
        return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())

    batch = b""
    for body in (b"first", b"second"):
        tail = encoded({"UNIQ_KEY": body.decode(), **of_messages}).encode()
        message = struct.pack(">III", 0, 0, len(body)) + body + struct.pack(">H", len(tail)) + tail
        batch += struct.pack(">II", 8 + len(message), 0) + message
    plain = {"a": "batches", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1_700_000_000_000, "h": 0, "j": 0}
    return exchange(port, 320, batch, b=topic, i=encoded(of_batch), k="false", m="true", **plain)


def test_batches_that_apache_delivers_too_early_are_refused(apache_address: str, rocketpy_address: str):
    """Apache refuses a level of the whole batch too.

    A time of the whole batch is not tried there: it is acknowledged, and then no timer of that broker comes any more.
    """
    plain = "plain"
    whole, parts = ([f"{name} of {where}" for name in NOT_FOR_BATCHES] for where in ("batch", "messages"))

    def outcomes(address: str, names: list[str]) -> dict[str, tuple[int, int]]:
        """Code, and how many of two messages can be read at once."""
        found: dict[str, tuple[int, int]] = {}
        with rocketpy.Admin(address) as admin:
            for name in names:
                topic, (kind, _, where) = fresh("batch"), name.partition(" of ")
                admin.create_topic(topic, queues=1)
                asked = {kind: NOT_FOR_BATCHES[kind]} if where else {}
                properties = ({}, asked) if where == "messages" else (asked, {})
                answer = send_batch(port_of_broker(admin), topic, *properties)
                [marker] = send(address, messages(topic, 1, "marker"))  # what is stored before it can be read with it
                found[name] = answer.code, marker.queue_offset
                remarks[name] = answer.remark or ""
        return found

    remarks: dict[str, str] = {}
    stored, refused = (0, 2), (13, 0)
    assert outcomes(apache_address, [plain, "DELAY of batch", "TRAN_MSG of batch", *parts]) == {
        plain: stored,
        "DELAY of batch": refused,
        "TRAN_MSG of batch": stored,
        **dict.fromkeys(parts, stored),
    }
    assert remarks["DELAY of batch"].startswith("the message is illegal, maybe msg body or properties length")
    assert outcomes(rocketpy_address, [plain, *whole, *parts]) == {
        plain: stored,
        **dict.fromkeys(whole + parts, refused),
    }
    for name in whole + parts:
        kind = (
            "sent in a transaction (property TRAN_MSG)" if "TRAN_MSG" in name else "delayed (DELAY or a timer property)"
        )
        assert remarks[name].endswith(f"a batch cannot be {kind}; send the messages one by one")


def test_a_pull_with_a_broken_expression_is_refused_where_apache_delivers_everything(
    apache_address: str, rocketpy_address: str
):
    """By frames made by hand: no client sends such a pull."""

    def pulled(address: str, expression: str) -> tuple[int, int, str]:
        """Code, how many of three messages came, and the remark."""
        with rocketpy.Admin(address) as admin:
            port = port_of_broker(admin)
        place = {"topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "commitOffset": 0}
        how = {"sysFlag": 4, "suspendTimeoutMillis": 0, "expressionType": "SQL92", "subVersion": 1}
        answer = exchange(port, 11, consumerGroup=fresh("broken"), subscription=expression, **place, **how)
        return answer.code, sum(answer.body.count(b"one-%d.." % i) for i in range(3)), answer.remark or ""

    topic = fresh("broken")
    for address in (apache_address, rocketpy_address):
        with rocketpy.Admin(address) as admin:
            admin.create_topic(topic, queues=1)
        send(address, messages(topic, 3, "one", body_bytes=10))
        assert len(read(address, topic, 3)) == 3
        assert pulled(address, "origin = 'python'")[:2] == (0, 3)
        assert pulled(address, "origin = 'nobody'")[:2] == (20, 0)
    for broken in ("origin >", "origin = 'nobody' AND", "1 +"):
        assert pulled(apache_address, broken) == (0, 3, "FOUND")
        code, came, remark = pulled(rocketpy_address, broken)
        assert (code, came) == (23, 0)
        assert broken in remark


def test_admin_makes_describes_and_deletes_a_topic_at_apache(apache_address: str):
    topic = fresh("admin-apache")
    with rocketpy.Admin(name_servers=[apache_address]) as admin:
        admin.create_topic(topic, queues=3)
        assert topic in admin.topics()
        assert len(admin.describe_topic(topic).queues) == 3
        assert admin.describe_topic(topic).brokers[0].attributes == {}
        admin.create_topic(topic, queues=3, attributes={"message.type": "FIFO"})
        assert admin.describe_topic(topic).brokers[0].attributes == {"message.type": "FIFO"}
        with pytest.raises(rocketpy.RefusedError, match=r"retention\.hours"):
            admin.create_topic(topic, queues=3, attributes={"retention.hours": "24"})
        admin.delete_topic(topic)
        assert topic not in admin.topics()


def test_a_running_member_goes_where_its_group_is_set(rocketpy_address: str):
    goes_where_its_group_is_set(rocketpy_address, fresh("reset"))


def goes_where_its_group_is_set(address: str, topic: str) -> None:
    """Resets a group back and forth, while its member runs."""
    group = fresh("resetting")
    send(address, messages(topic, 10, "one"))
    with (
        rocketpy.Admin(address) as admin,
        rocketpy.Consumer(group, topic, name_servers=[address], auto_commit=False) as consumer,
    ):

        def take(count: int) -> list[str]:
            taken: list[rocketpy.ReceivedMessage] = []
            wait_until(lambda: taken.extend(consumer.poll(timeout=0.2)) or len(taken) >= count)
            return sorted(one.body.decode() for one in taken)

        first = take(10)
        consumer.commit()
        offsets = admin.reset_offsets(group, topic, rocketpy.Start.EARLIEST, force=True)
        assert offsets == dict.fromkeys(admin.queues(topic), 0)
        assert take(10) == first
        assert {move.to_offset for move in consumer.offset_moves()} == {0}
        admin.reset_offsets(group, topic, rocketpy.Start.LATEST, force=True)
        consumer.commit()
        assert sum(one.lag for one in admin.group_lag(group, topic)) == 0


def test_a_group_goes_on_at_apache_4_9_which_knows_no_lite_pull(home):
    topic, group, reset = fresh("python-4-9"), fresh("group"), fresh("reset")
    with apache_cluster(set_up_apache_4_9(), home, topics=[topic, reset]) as address:
        goes_where_its_group_is_set(address, reset)  # by its members: they are told
        send(address, messages(topic, 5, "a", "TagA") + messages(topic, 5, "b", "TagB"))
        first = read(address, topic, 5, tags="TagA", group=group)
        assert sorted(one["keys"] for one in first) == [f"a-{i}" for i in range(5)]
        send(address, messages(topic, 2, "later", "TagA"))
        second = read(address, topic, 2, tags="TagA", group=group)
        assert sorted(one["keys"] for one in second) == ["later-0", "later-1"], "it continues at the committed offset"


def check_namespaces_and_groups(java: Java, address: str, home: Path) -> None:
    """Sends and reads in a namespace, and asks and changes what brokers know of it."""
    space, topic, blue, green = fresh("space"), fresh("orders"), fresh("blue"), fresh("green")
    wrapped = f"{space}%{topic}"
    names = {"name_servers": [address], "namespace": space}
    with rocketpy.Admin(address, api_timeout=60) as admin:
        admin.create_topic(wrapped, queues=2)
        with rocketpy.Producer(fresh("shop"), send_timeout=60, **names) as producer:
            sent = [producer.send(message) for message in messages(topic, 4, "inside")]
            wait_until(lambda: admin.producer_connections(f"{space}%{producer.group}"), seconds=60)
            (connection,) = admin.producer_connections(f"{space}%{producer.group}")
            assert connection.client_id == producer.client_id
            assert connection.language
        assert admin.producer_connections(fresh("nobody")) == []
        assert {receipt.queue.topic for receipt in sent} == {topic}
        with rocketpy.Consumer(blue, topic, **names) as consumer:
            came = [next(consumer) for _ in range(4)]
            assert {one.topic for one in came} == {one.queue.topic for one in came} == {topic}
            consumer.commit()
            (member,) = admin.describe_group(f"{space}%{blue}")
            assert member.client_id == consumer.client_id
        # The Java client finds them under their names on the wire.
        lines = java.drive(home, "push", address, wrapped, "4", fresh("java-group"))
        assert {one["msg_id"] for one in lines} == {receipt.msg_id for receipt in sent}
        admin.create_group(green)
        assert admin.clone_offsets(f"{space}%{blue}", green) == [wrapped]
        assert sum(one.lag for one in admin.group_lag(green, wrapped)) == 0
        (queue, _) = admin.queues(wrapped)
        admin.commit_offset(green, queue, 0)
        assert admin.committed_offset(green, queue) == 0
        (broker,) = admin.brokers()
        for queues in ("5", "8"):
            admin.update_broker_config(broker.addresses[0], {"defaultTopicQueueNums": queues})
            assert admin.broker_config(broker.addresses[0])["defaultTopicQueueNums"] == queues


def test_namespaces_connections_clones_and_settings_at_apache_as_at_rocketpy(
    java: Java, apache_address: str, rocketpy_address: str, home: Path
):
    for address in (apache_address, rocketpy_address):
        check_namespaces_and_groups(java, address, home)
