"""Apache's C++ client (PyPI ``rocketmq`` 0.4.4): numbers in headers, enum ordinals, batches under code 310."""

import pytest

from peers import Cpp, Java, allow_retries, port_of_broker, stop
from rocketpy import Admin
from sdk import by_queue, fresh, in_order, messages, read, send
from waiting import wait_until

COUNT = 20


@pytest.mark.parametrize("mode", ["send", "oneway", "batch"])
def test_python_reads_what_the_cpp_producer_sends(cpp: Cpp, rocketpy_address: str, home, mode: str):
    topic = fresh(f"cpp-{mode}")
    results = cpp.drive(home, mode, rocketpy_address, topic, str(COUNT), mode, "TagA")
    assert all(result["status"] == "OK" for result in results)
    lines = read(rocketpy_address, topic, COUNT)
    assert sorted(one["body"] for one in lines) == sorted(f"{mode}-{i}" for i in range(COUNT))
    assert all(one["keys"] == one["body"] and one["tag"] == "TagA" and one["origin"] == "cpp" for one in lines)


def test_a_body_that_the_cpp_client_compressed_is_read_whole(cpp: Cpp, rocketpy_address: str, home):
    topic = fresh("cpp-compressed")
    cpp.drive(home, "send", rocketpy_address, topic, "2", "big", "TagA", "50000")
    assert {one["body"] for one in read(rocketpy_address, topic, 2)} == {
        f"big-{i}".ljust(50_000, ".") for i in range(2)
    }


def test_the_cpp_consumer_reads_what_python_and_java_sent_by_tag(cpp: Cpp, java: Java, rocketpy_address: str, home):
    topic = fresh("cpp-tags")
    send(rocketpy_address, messages(topic, 5, "p", "TagA") + messages(topic, 5, "q", "TagB"))
    java.drive(home, "send", rocketpy_address, topic, "5", "j", "TagC")
    lines = cpp.drive(home, "push", rocketpy_address, topic, "10", fresh("cpp-group"), "TagA || TagC")
    assert sorted(one["body"] for one in lines) == sorted([f"p-{i}" for i in range(5)] + [f"j-{i}" for i in range(5)])
    assert in_order(lines) == in_order(read(rocketpy_address, topic, 10, tags="TagA || TagC"))


def test_java_reads_what_the_cpp_producer_sends(cpp: Cpp, java: Java, rocketpy_address: str, home):
    topic = fresh("cpp-to-java")
    cpp.drive(home, "send", rocketpy_address, topic, "10", "c", "TagA")
    lines = java.drive(home, "push", rocketpy_address, topic, "10", fresh("java-group"))
    assert sorted(one["body"] for one in lines) == sorted(f"c-{i}" for i in range(10))
    assert {one["origin"] for one in lines} == {"cpp"}


def test_the_cpp_client_keeps_order_and_gives_up_what_it_fails_at(cpp: Cpp, rocketpy_address: str, home):
    """It fails at one message only: of several that come in one pull the client gives all back after the first failure.

    One member reads all queues: that a lock keeps a second one away is shown in test_message_model.py. Transactions and
    requests are not shown: this version of the client does not have them.
    """
    topic, order, group = fresh("cpp-fails"), fresh("cpp-order"), fresh("cpp-failing")
    [sent] = cpp.drive(home, "send", rocketpy_address, topic, "1", "hard", "TagA")
    with Admin(rocketpy_address) as admin:
        assert allow_retries(port_of_broker(admin), group, 1)  # the client itself sets no limit
        admin.create_topic(f"%RETRY%{group}", queues=1)  # as in test_java_client.py
        failing = cpp.start_driver(home, "fail", rocketpy_address, topic, "1", group)

        cpp.drive(home, "keyed", rocketpy_address, order, "30", "o")
        came = cpp.drive(home, "orderly", rocketpy_address, order, "30", fresh("cpp-orderly"))
        expected = by_queue(in_order(read(rocketpy_address, order, 30)))
        assert [bodies[:2] for bodies in expected.values()] == [["o-0", "o-3"], ["o-1", "o-4"], ["o-2", "o-5"]]
        expected[1].insert(1, "o-4")  # the driver fails at it once
        assert by_queue(came) == expected

        dead = f"%DLQ%{group}"
        wait_until(lambda: dead in admin.topics(), "the first dead letter", process=failing)
        [line] = read(rocketpy_address, dead, 1)
        [letter] = admin.dead_letters(group)
    assert (line["keys"], line["tag"], line["origin"]) == ("hard-0", "TagA", "cpp")
    assert (letter.topic, letter.message.msg_id) == (topic, sent["msg_id"])
    assert [one["keys"] for one in stop(failing)] == ["hard-0", "hard-0"]
