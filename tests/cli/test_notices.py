"""What a command does not do as asked, it says."""

import json
import re
import uuid


def test_a_line_that_is_too_large_is_named_and_those_before_it_are_sent(rocketpy, topic: str):
    result = rocketpy("produce", topic, "--max-message-size", "10", stdin=f"good\n\n{'x' * 11}\nlate\n", code=2)
    assert "line 3: the message body is too large (11 bytes, at most 10)" in result.stderr
    assert "--max-message-size" in result.stderr.splitlines()[-1]
    assert rocketpy("consume", topic).stdout == "good\n"


def test_a_topic_that_a_send_creates_is_named(rocketpy, topic: str):
    assert "did not exist" not in rocketpy("produce", topic, stdin="one").stderr
    misspelt = f"{topic}-misspelt"
    result = rocketpy("produce", misspelt, "--json", stdin="one\ntwo\n")
    assert result.stderr.count(f"topic {misspelt} did not exist") == 1
    assert json.loads(result.stdout)["messages"] == 2


def test_a_start_that_does_not_count_is_told(rocketpy, topic: str):
    group = f"group-{uuid.uuid4().hex[:8]}"
    rocketpy("produce", topic, "--order-key", "k", stdin="1\n2\n3\n")
    earliest = ("consume", topic, "--group", group, "--from", "earliest")
    first = rocketpy(*earliest)
    assert (first.stdout, first.stderr) == ("1\n2\n3\n", "")
    again = rocketpy(*earliest)
    assert again.stdout == ""
    assert re.search(rf"--from earliest is ignored in \d of 4 queues: group {group} continues", again.stderr)
    assert "rocketpy group reset" in again.stderr


def test_a_query_that_the_broker_cuts_off_says_so(rocketpy, topic: str):
    rocketpy("produce", topic, "--key", "many", stdin="x\n" * 65)
    assert len(rocketpy("consume", topic).stdout.splitlines()) == 65  # all are dispatched, the index with them
    many = ("message", "query", topic, "--key", "many", "--json")
    assert rocketpy(*many).stderr == ""
    cut = rocketpy(*many, "--max", "100")
    assert len(json.loads(cut.stdout)) == 64
    assert "limit of 64 messages (maxMsgsNumBatch) reached for many" in cut.stderr
