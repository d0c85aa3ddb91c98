"""Apache's C++ client (PyPI ``rocketmq`` 0.4.4): numbers in headers, enum ordinals, batches under code 310."""

import pytest

from peers import Cpp, Java
from sdk import fresh, in_order, messages, read, send

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
