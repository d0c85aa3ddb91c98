"""What the tests of push consumers share. Their server is in conftest.py."""

from collections import Counter

import rocketpy
from waiting import wait_until


def send(server, topic, count, **message):
    with server.producer("push-senders") as producer:
        for number in range(count):
            producer.send(rocketpy.Message(topic, b"%d" % number, **message))


def committed(server, group, topic):
    """How many messages of a topic the group has committed."""
    with server.admin() as admin:
        return sum(row.committed_offset or 0 for row in admin.group_lag(group, topic))


class Seen:
    """What handlers got: bodies as numbers, with how many times each was sent back before."""

    def __init__(self):
        self.calls = []

    def note(self, message):
        self.calls.append((int(message.body), message.reconsume_times))

    def wait(self, count):
        wait_until(lambda: len(self.calls) >= count, f"{count} calls of handlers, {len(self.calls)} so far")

    def counts(self):
        return Counter(number for number, _ in self.calls)


def dead_letters(server, group):
    with server.admin() as admin:
        return sorted(letter.message.body for letter in admin.dead_letters(group))
