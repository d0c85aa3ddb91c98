"""Apache's Java clients 5.5.0 and 4.9.8 against RocketPy: each side reads what the other wrote.

Shows wire and stored-message compatibility on one broker; says nothing of durability.
"""

from pathlib import Path

import pytest

from peers import Java, finish, lines, mqadmin, start
from rocketpy import Admin, Producer
from sdk import fresh, in_order, messages, read, reply_to, send
from waiting import wait_until

COUNT = 20


@pytest.mark.parametrize("mode", ["send", "async", "oneway", "batch"])
def test_python_and_java_read_what_the_java_producer_sends(java: Java, rocketpy_address: str, home, mode: str):
    topic = fresh(f"java-{mode}")
    results = java.drive(home, mode, rocketpy_address, topic, str(COUNT), mode, "TagA")
    assert all(result["status"] == "SEND_OK" for result in results)
    by_python = read(rocketpy_address, topic, COUNT)
    assert sorted(one["body"] for one in by_python) == sorted(f"{mode}-{i}" for i in range(COUNT))
    assert all(one["keys"] == one["body"] and one["tag"] == "TagA" and one["origin"] == "java" for one in by_python)
    by_java = java.drive(home, "push", rocketpy_address, topic, str(COUNT), fresh("java-reader"))
    assert in_order(by_java) == in_order(by_python)
    if mode in ("send", "async"):
        assert {one["msg_id"] for one in results} == {one["msg_id"] for one in by_python}
        at = {one["msg_id"]: (one["queue_id"], one["queue_offset"]) for one in by_python}
        assert all(at[one["msg_id"]] == (one["queue_id"], one["queue_offset"]) for one in results)


def test_a_body_that_java_compressed_is_read_whole(java: Java, rocketpy_address: str, home):
    topic = fresh("java-compressed")
    java.drive(home, "send", rocketpy_address, topic, "3", "big", "TagA", "100000")
    assert {one["body"] for one in read(rocketpy_address, topic, 3)} == {
        f"big-{i}".ljust(100_000, ".") for i in range(3)
    }


@pytest.mark.parametrize("mode", ["push", "lite"])
def test_java_consumers_read_what_python_sent_by_tag(java: Java, rocketpy_address: str, home, mode: str):
    topic = fresh(f"python-{mode}")
    for tag in ("TagA", "TagB", "TagC"):
        send(rocketpy_address, messages(topic, 5, tag, tag))
    send(rocketpy_address, messages(topic, 2, "big", "TagA", 50_000))
    lines = java.drive(home, mode, rocketpy_address, topic, "12", fresh("java-tags"), "TagA || TagC")
    expected = [f"Tag{letter}-{i}" for letter in "AC" for i in range(5)] + ["big-0", "big-1"]
    assert sorted(one["keys"] for one in lines) == sorted(expected)
    assert all(one["origin"] == "python" and one["body"].startswith(one["keys"]) for one in lines)
    assert {len(one["body"]) for one in lines if one["keys"].startswith("big")} == {50_000}
    by_python = read(rocketpy_address, topic, 12, tags="TagA || TagC")
    assert in_order(lines) == in_order(by_python)


def test_transactions_of_java_come_when_they_are_committed_at_once_or_when_the_broker_asks(
    each_java: Java, rocketpy_address: str, home
):
    topic = fresh("java-transaction")
    results = each_java.drive(home, "transaction", rocketpy_address, topic, "8", "pay")
    assert [result["status"] for result in results] == ["SEND_OK"] * 8
    assert all(result["transaction_id"] == result["msg_id"] for result in results)
    by_python = read(rocketpy_address, topic, 4)
    assert sorted(one["keys"] for one in by_python) == ["pay-0", "pay-2", "pay-4", "pay-6"]
    assert {one["msg_id"] for one in by_python} == {results[number]["msg_id"] for number in (0, 2, 4, 6)}


def test_what_a_java_consumer_fails_at_comes_again_and_then_lies_with_the_dead_letters(
    each_java: Java, rocketpy_address: str, home
):
    topic, group = fresh("java-fails"), fresh("java-failing")
    send(rocketpy_address, messages(topic, 3, "hard", "TagA"))
    with Admin(rocketpy_address) as admin:
        # As after the group's first start, which makes the topic; the client looks for it again after 30 s.
        admin.create_topic(f"%RETRY%{group}", queues=1)
    lines = each_java.drive(home, "fail", rocketpy_address, topic, "3", group)
    assert sorted(one["keys"] for one in lines) == sorted(["hard-0", "hard-1", "hard-2"] * 2)
    dead = read(rocketpy_address, f"%DLQ%{group}", 3)
    assert sorted((one["keys"], one["tag"], one["origin"]) for one in dead) == [
        (f"hard-{number}", "TagA", "python") for number in range(3)
    ]


def test_java_and_python_ask_and_either_replies_to_either(each_java: Java, rocketpy_address: str, home):
    to_java, to_python = fresh("java-replies"), fresh("python-replies")
    with Admin(rocketpy_address) as admin:
        for topic in (to_java, to_python):
            admin.create_topic(topic, queues=1)
    answering = each_java.start_driver(
        home / "answering", "answer", rocketpy_address, to_java, "5", fresh("java-answers")
    )
    asking = each_java.start_driver(home / "asking", "ask", rocketpy_address, to_python, "2", "java")
    reply_to(rocketpy_address, to_python, 2)
    assert [one["body"] for one in finish(asking)] == ["re:java-0", "re:java-1"]
    with Producer(fresh("python-asks"), name_servers=[rocketpy_address]) as producer:
        for request in messages(to_java, 3, "python"):
            assert producer.request(request, timeout=60).body == b"re:" + request.body
    replies = each_java.drive(home / "asking", "ask", rocketpy_address, to_java, "2", "both")
    assert [one["body"] for one in replies] == ["re:both-0", "re:both-1"]
    assert [one["status"] for one in finish(answering)] == ["SEND_OK"] * 5


def test_every_member_of_a_broadcasting_group_gets_every_message(java: Java, rocketpy_address: str, home: Path):
    topic, group = fresh("java-broadcast"), fresh("java-hearing")
    with Admin(rocketpy_address) as admin:
        admin.create_topic(topic, queues=3)
    send(rocketpy_address, messages(topic, 6, "news"))
    members = [
        start(java.command("Driver", home / name, "broadcast", rocketpy_address, topic, "6", group))
        for name in ("one", "two")  # processes of their own: each keeps its offsets in its home
    ]
    for member in members:
        assert sorted(one["body"] for one in finish(member)) == [f"news-{number}" for number in range(6)]


@pytest.mark.parametrize("mode", ["push", "lite"])
def test_java_consumers_choose_by_sql(each_java: Java, rocketpy_address: str, home, mode: str):
    topic = fresh(f"sql-{mode}")
    for tag in ("TagA", "TagB"):
        send(rocketpy_address, messages(topic, 5, tag, tag))
    expression = "sql:origin = 'python' AND TAGS <> 'TagB' AND KEYS NOT IN ('TagA-3') AND missing IS NULL"
    lines = each_java.drive(home, mode, rocketpy_address, topic, "4", fresh("java-sql"), expression)
    assert sorted(one["keys"] for one in lines) == ["TagA-0", "TagA-1", "TagA-2", "TagA-4"]


def test_apache_evaluates_the_table_of_expressions_alike_but_for_the_marked_lines(java: Java):
    table = Path(__file__).parents[2] / "rust/filter/src/sql/table.txt"
    lines = [line.rsplit("=>", 1) for line in table.read_text().splitlines() if "=>" in line]
    ours = {expression: result.split() for expression, result in lines}
    apache = {one["expression"]: one["result"] for one in finish(java.begin("FilterTable", str(table)))}
    assert apache.keys() == ours.keys()
    alike = {expression for expression, result in apache.items() if result == ours[expression][0]}
    assert alike == {expression for expression, result in ours.items() if "!" not in result}


def test_a_group_continues_in_java_where_python_committed(java: Java, rocketpy_address: str, home):
    topic, group = fresh("handover"), fresh("handover-group")
    send(rocketpy_address, messages(topic, 10, "first"))
    assert len(read(rocketpy_address, topic, 10, group=group)) == 10
    send(rocketpy_address, messages(topic, 7, "second"))
    lines = java.drive(home, "push", rocketpy_address, topic, "7", group)
    assert sorted(one["body"] for one in lines) == [f"second-{i}" for i in range(7)]


def test_a_held_pull_wakes_the_java_consumer_for_a_new_message(java: Java, rocketpy_address: str, home):
    topic = fresh("held")
    send(rocketpy_address, messages(topic, 1, "route"))
    consumer = java.start_driver(home, "push", rocketpy_address, topic, "4", fresh("held-group"))
    assert next(lines(consumer))["body"] == "route-0"  # it has its queues and waits
    send(rocketpy_address, messages(topic, 3, "later"))
    assert sorted(one["body"] for one in finish(consumer)) == [f"later-{i}" for i in range(3)]


def test_apache_tools_find_messages_by_key_by_unique_key_and_by_id(java: Java, rocketpy_address: str, home):
    topic = fresh("found")
    sent = java.drive(home, "send", rocketpy_address, topic, "5", "found", "TagA")
    send(rocketpy_address, messages(topic, 5, "python"))
    assert len(read(rocketpy_address, topic, 10)) == 10  # so that all are dispatched, the index with them
    for prefix, origin in (("found", "java"), ("python", "python")):
        [found] = java.drive(home, "key", rocketpy_address, topic, f"{prefix}-3")
        assert (found["body"], found["origin"]) == (f"{prefix}-3", origin)
    one = sent[2]
    for command, asked in (("unique", one["msg_id"]), ("view", one["msg_id"]), ("view", one["offset_msg_id"])):
        [found] = java.drive(home, command, rocketpy_address, topic, asked)
        assert (found["queue_id"], found["queue_offset"]) == (one["queue_id"], one["queue_offset"]), command
        assert found["body"] == "found-2"


def test_a_running_java_consumer_goes_where_mqadmin_resets_its_group(java: Java, rocketpy_address: str, home: Path):
    """By the time of its queues' beginning. The member itself is not asked: its next pulls are answered from there."""
    topic, group = fresh("java-reset"), fresh("java-resetting")
    send(rocketpy_address, messages(topic, 10, "again"))
    running = java.start_driver(home / "reader", "push", rocketpy_address, topic, "20", group)
    with Admin(rocketpy_address) as admin:

        def has_read() -> bool:
            return sum(admin.committed_offset(group, queue) or 0 for queue in admin.queues(topic)) == 10

        wait_until(has_read, process=running)
    mqadmin(java, home, rocketpy_address, "resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
    assert sorted(one["body"] for one in finish(running)) == sorted(2 * [f"again-{number}" for number in range(10)])
