"""Push consumers that get all messages, with their offsets in a file."""

import json
import logging
import re
from collections import Counter

import pytest
from pushing import Seen, committed, send

import rocketpy
from waiting import wait_until


@pytest.fixture
def member(server, topic, group, tmp_path):
    """Makes members that note what they get."""

    def make(name, seen, **options):
        options = {"broadcast": True, "offsets_folder": tmp_path, "instance_name": name, **options}
        consumer = server.push_consumer(group, **options)
        consumer.on(topic)(seen.note)
        return consumer

    return make


def test_each_member_gets_all_messages_and_goes_on_where_it_was(server, topic, group, member, tmp_path):
    first, second = Seen(), Seen()
    with member("one", first) as one, member("two", second):
        send(server, topic, 20)
        first.wait(20)
        second.wait(20)
        assert {queue.topic for queue in one.state().assigned} == {topic}, "nothing comes again"
        client_id = one.client_id
    assert first.counts() == second.counts() == Counter(range(20))
    assert client_id.endswith("@one")
    text = (tmp_path / client_id / group / "offsets.json").read_text()
    offsets = json.loads(re.sub(r"\{(\"brokerName\"[^}]*\"queueId\":(\d+)[^}]*)\}:", r'"\2":', text))["offsetTable"]
    assert offsets.keys() == {"0", "1", "2", "3"}, "in the form of Apache's clients"
    assert sum(offsets.values()) == 20
    send(server, topic, 5)
    again = Seen()
    with member("one", again):
        again.wait(5)
    assert again.counts() == Counter(range(5))
    assert committed(server, group, topic) == 0, "brokers know nothing of it"


def test_what_fails_is_logged_and_passed_over(server, topic, member, caplog):
    seen = Seen()

    def note(message):
        seen.calls.append((int(message.body), message.reconsume_times))
        if message.body == b"1":
            raise ValueError("no such order")

    seen.note = note
    with caplog.at_level(logging.WARNING, "rocketpy.client"), member("one", seen) as consumer:
        send(server, topic, 4)
        seen.wait(4)
        wait_until(lambda: consumer.stats().failed == 1)
        assert consumer.stats().sent_back == consumer.stats().unfinished == 0
    assert seen.counts() == Counter(range(4))
    (attempt,) = [record for record in caplog.records if "no such order" in record.getMessage()]
    assert "Traceback" in attempt.exc_text, "nobody gets the message again"


def test_two_members_may_not_share_a_file(member):
    with member("one", Seen()):
        twin = member("one", Seen(), unit_name=None)
        with pytest.raises(rocketpy.GroupConflictError, match="offsets of a broadcast consumer") as refused:
            twin.start()
        assert "instance_name" in refused.value.hint


def test_a_member_without_a_name_has_the_name_of_apaches_clients(server, topic, group, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    consumer = server.push_consumer(group, broadcast=True, start=rocketpy.Start.LATEST)
    seen = Seen()
    consumer.on(topic)(seen.note)
    send(server, topic, 3)
    with consumer:
        assert consumer.client_id.endswith("@DEFAULT")
        send(server, topic, 2)
        seen.wait(2)
        assert consumer.client_id
    assert seen.counts() == Counter(range(2))
    assert (tmp_path / ".rocketmq_offsets" / consumer.client_id / group / "offsets.json").exists()


def test_broadcast_in_order(server, topic, member):
    calls, seen = [], Seen()

    def note(message):
        calls.append((message.queue, message.queue_offset, message.reconsume_times))
        if message.body == b"3" and message.reconsume_times == 0:
            raise rocketpy.Retry
        if message.body == b"4":
            raise rocketpy.Reject

    seen.note = note
    with member("one", seen, ordered=True, retry_pause=0.05) as consumer:
        send(server, topic, 20)
        wait_until(lambda: consumer.stats().consumed == 19)
    for queue in {queue for queue, _, _ in calls}:
        offsets = [(offset, times) for of, offset, times in calls if of == queue]
        assert offsets == sorted(offsets)
    assert sum(times for _, _, times in calls) == 1
