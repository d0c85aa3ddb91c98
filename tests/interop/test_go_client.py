"""Apache's Go client 2.1.2 against RocketPy: what it sends, reads, fails at, asks and ends.

Shows that its requests and stored messages are understood on one broker; says nothing of durability, nor of a broker
that fails meanwhile.
"""

from peers import Go, finish, stop
from rocketpy import Admin, Producer
from sdk import by_queue, fresh, in_order, messages, read, reply_to, send
from waiting import wait_until


def test_go_and_python_read_by_tag_and_by_sql_what_either_sent(go: Go, rocketpy_address: str, home):
    """Both read the same messages at the same places. Cannot tell a filter of the broker from one of the client."""
    topic = fresh("go-tags")
    results = go.drive(home, "send", rocketpy_address, topic, "5", "g", "TagA")
    send(rocketpy_address, messages(topic, 5, "p", "TagA") + messages(topic, 5, "q", "TagB"))
    by_tag = go.drive(home, "push", rocketpy_address, topic, "10", fresh("go-group"), "TagA || TagC")
    by_python = read(rocketpy_address, topic, 10, tags="TagA || TagC")
    assert in_order(by_tag) == in_order(by_python)
    assert sorted(one["body"] for one in by_tag) == [f"{prefix}-{i}" for prefix in "gp" for i in range(5)]
    at = {one["msg_id"]: (one["queue_id"], one["queue_offset"]) for one in by_tag if one["origin"] == "go"}
    assert {one["msg_id"]: (one["queue_id"], one["queue_offset"]) for one in results} == at
    expression = "sql:origin = 'go' AND KEYS <> 'g-3' OR TAGS = 'TagB'"
    by_sql = go.drive(home, "push", rocketpy_address, topic, "9", fresh("go-sql"), expression)
    assert sorted(one["body"] for one in by_sql) == ["g-0", "g-1", "g-2", "g-4"] + [f"q-{i}" for i in range(5)]


def test_a_go_batch_creates_its_topic_each_time(go: Go, rocketpy_address: str, home):
    """Eight of 200 producers at a time, each a client with a route of its own."""
    topic = fresh("go-created")
    results = go.drive(home, "created", rocketpy_address, topic, "200", "b")
    assert [one["status"] for one in results] == ["SEND_OK"] * 200
    with Admin(rocketpy_address) as admin:
        created = {name for name in admin.topics() if name.startswith(topic)}
        assert created == {f"{topic}-{number}" for number in range(200)}
    assert [one["body"] for one in read(rocketpy_address, f"{topic}-0", 3)] == ["b-0", "b-1", "b-2"]


def test_what_a_go_consumer_fails_at_comes_again_and_then_lies_with_the_dead_letters(
    go: Go, rocketpy_address: str, home
):
    """Times and all attempts are looked at in test_message_model.py."""
    topic, group = fresh("go-fails"), fresh("go-failing")
    sent = {one["msg_id"] for one in go.drive(home, "send", rocketpy_address, topic, "3", "hard", "TagA")}
    with Admin(rocketpy_address) as admin:
        # As after the group's first start, which makes the topic; the client looks for it again after 30 s.
        admin.create_topic(f"%RETRY%{group}", queues=1)
        failing = go.start_driver(home / "failing", "fail", rocketpy_address, topic, "3", group)
        dead = f"%DLQ%{group}"
        wait_until(lambda: dead in admin.topics(), "the first dead letter", process=failing)
        lines = read(rocketpy_address, dead, 3)
        assert sorted((one["keys"], one["tag"], one["origin"]) for one in lines) == [
            (f"hard-{number}", "TagA", "go") for number in range(3)
        ]
        letters = list(admin.dead_letters(group))
    assert {(letter.topic, letter.message.msg_id) for letter in letters} == {(topic, msg_id) for msg_id in sent}
    tries = stop(failing)
    assert sorted(one["keys"] for one in tries) == sorted(["hard-0", "hard-1", "hard-2"] * 2)
    assert {one["topic"] for one in tries} == {topic}


def test_transactions_of_go_come_when_they_are_committed_at_once_or_when_the_broker_asks(
    go: Go, rocketpy_address: str, home
):
    """Of a transaction that is rolled back it shows only that it does not come as soon as the others."""
    topic = fresh("go-transaction")
    with Admin(rocketpy_address) as admin:
        admin.create_topic(topic)
    paying = go.start_driver(home, "transaction", rocketpy_address, topic, "8", "pay")
    by_python = read(rocketpy_address, topic, 4)
    assert sorted(one["keys"] for one in by_python) == ["pay-0", "pay-2", "pay-4", "pay-6"]
    lines = stop(paying)
    assert sorted(one["asked"] for one in lines if "asked" in one) == ["pay-2", "pay-3", "pay-6", "pay-7"]
    results = [one for one in lines if "status" in one]
    assert {one["msg_id"] for one in by_python} == {results[number]["msg_id"] for number in (0, 2, 4, 6)}


def test_a_go_consumer_keeps_the_order_of_each_queue_when_it_fails_at_a_message(go: Go, rocketpy_address: str, home):
    """One member reads all queues: that a lock keeps a second one away is shown in test_message_model.py."""
    topic = fresh("go-order")
    go.drive(home, "keyed", rocketpy_address, topic, "30", "o")
    lines = go.drive(home, "orderly", rocketpy_address, topic, "30", fresh("go-orderly"))
    expected = by_queue(in_order(read(rocketpy_address, topic, 30)))
    assert len(expected) > 1
    for bodies in expected.values():
        if "o-4" in bodies:
            bodies.insert(bodies.index("o-4"), "o-4")  # the driver fails at it once
    assert by_queue(lines) == expected


def test_go_and_python_ask_and_either_replies_to_either(go: Go, rocketpy_address: str, home):
    """Every reply finds its request. All are on one broker; a requester that has gone is not tried."""
    to_go, to_python, group = fresh("go-replies"), fresh("python-replies"), fresh("go-answers")
    asking = go.start_driver(home, "ask", rocketpy_address, to_python, "2", "go")
    with Admin(rocketpy_address) as admin:
        for topic in (to_go, f"%RETRY%{group}"):
            admin.create_topic(topic, queues=1)
        wait_until(lambda: to_python in admin.topics(), "the first request", process=asking)
    answering = go.start_driver(home, "answer", rocketpy_address, to_go, "5", group)
    reply_to(rocketpy_address, to_python, 2)
    assert [one["body"] for one in stop(asking)] == ["re:go-0", "re:go-1"]
    with Producer(fresh("python-asks"), name_servers=[rocketpy_address]) as producer:
        for request in messages(to_go, 3, "python"):
            assert producer.request(request, timeout=60).body == b"re:" + request.body
    asking = go.start_driver(home, "ask", rocketpy_address, to_go, "2", "both")
    bodies = {one["body"] for one in finish(answering)}  # some more than once: see the driver
    assert bodies == {*(f"python-{i}" for i in range(3)), "both-0", "both-1"}
    assert [one["body"] for one in stop(asking)] == ["re:both-0", "re:both-1"]
