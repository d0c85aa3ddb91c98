"""Live readers of a topic that is deleted and created again, of a lost store, and of a name server that lies.

Every reader gets all that was acknowledged after the change, or says what happened.
"""

import asyncio
import contextlib
import re
import shutil
import signal
import subprocess
import sys
import threading
from typing import ClassVar

import pytest

import rocketpy
from rocketpy.store import cut
from rocketpy.testing import PATIENCE_SECONDS, SMALL_FILES, PatientServer, fresh_name
from waiting import wait_for_files, wait_until

OLD = [b"old %d" % number for number in range(60)]


class Reader:
    """A live reader: the bodies that it read, and the errors that it reported."""

    def __init__(self, server, topic):
        self.server, self.topic = server, topic
        self.bodies, self.said = [], []
        self._ends = threading.Event()

    def has(self, bodies):
        return set(bodies) <= set(self.bodies)

    @contextlib.contextmanager
    def running(self):
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()

    def run(self):
        with self.consumer() as consumer:
            while not self._ends.is_set():
                try:
                    self.bodies += [message.body for message in consumer.poll(timeout=0.1)]
                    self.after_poll(consumer)
                except rocketpy.RocketPyError as error:
                    self.said.append(str(error))

    def after_poll(self, consumer):
        pass


class Member(Reader):
    def consumer(self):
        return self.server.consumer(fresh_name("member"), self.topic, start="earliest")


class CommittingMember(Member):
    def after_poll(self, consumer):
        consumer.commit()


class Assigned(Reader):
    def consumer(self):
        with self.server.admin() as admin:
            queues = admin.queues(self.topic)
        options = {"start": "earliest", "name_servers": self.server.name_server, "api_timeout": PATIENCE_SECONDS}
        return rocketpy.Consumer.assign(fresh_name("assigned"), queues, **options)


class AsyncMember(Reader):
    def run(self):
        asyncio.run(self.read())

    async def read(self):
        options = {"start": "earliest", "name_servers": self.server.name_server, "api_timeout": PATIENCE_SECONDS}
        async with rocketpy.AsyncConsumer(fresh_name("aio"), self.topic, **options) as consumer:
            while not self._ends.is_set():
                try:
                    self.bodies += [message.body for message in await consumer.poll(timeout=0.1)]
                except rocketpy.RocketPyError as error:
                    self.said.append(str(error))


class Push(Reader):
    options: ClassVar = {}

    @contextlib.contextmanager
    def running(self):
        consumer = self.server.push_consumer(fresh_name("push"), start="earliest", **self.options)
        consumer.on(self.topic)(lambda message: self.bodies.append(message.body))
        with consumer:
            yield


class OrderedPush(Push):
    options: ClassVar = {"ordered": True}


NOTICE = re.compile(
    r"\S+@broker-a#\d (was created again, or its store was replaced; reading continues at offset 0|"
    r"lost \d+ messages at its end; reading continues at offset \d+)|"
    r".+; (retrying until the servers are available|reading the offsets again)|available again"
)
"""Line of `consume --follow` about a change; the command continues."""


class Follow(Reader):
    """`rocketpy consume --follow`."""

    group: ClassVar = ()

    @contextlib.contextmanager
    def running(self):
        command = [sys.executable, "-P", "-m", "rocketpy", "--timeout", "60", "consume", self.topic, "--follow"]
        command += ["--name-server", self.server.name_server, *self.group]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            threads = [
                threading.Thread(target=self.note, args=(self.bodies, process.stdout, str.encode)),
                threading.Thread(target=self.note, args=(self.said, process.stderr, str)),
            ]
            for thread in threads:
                thread.start()
            try:
                yield
            finally:
                process.terminate()
                try:
                    code = process.wait(PATIENCE_SECONDS)
                finally:
                    process.kill()
                    for thread in threads:
                        thread.join(PATIENCE_SECONDS)
        self.check_end(code)

    def note(self, lines, stream, convert):
        lines.extend(convert(line.rstrip("\n")) for line in stream)

    def check_end(self, code):
        """Checks that the command ran until its signal, and that standard error has notices of changes only."""
        assert [said for said in self.said if not NOTICE.fullmatch(said)] == []
        assert code == -signal.SIGTERM


class FollowAsMember(Follow):
    group: ClassVar = ("--group", "followers")


READERS = {
    "pull": Member,
    "pull_commits": CommittingMember,
    "assign": Assigned,
    "asyncio": AsyncMember,
    "push": Push,
    "ordered_push": OrderedPush,
    "consume": Follow,
    "consume_group": FollowAsMember,
}
NOT_COVERED = {"created_again-longer": {"assign"}, "lost_store-longer": READERS.keys() - {"consume"}}
"""Readers whose offset the broker does not know continue there (docs/decisions/creation-numbers.md)."""


def create_and_fill(server, topic, bodies):
    with server.admin() as admin, server.producer(fresh_name("fill")) as producer:
        admin.create_topic(topic, queues=2)
        for number, queue in enumerate(admin.queues(topic)):
            producer.send_many([rocketpy.Message(topic, body) for body in bodies[number::2]], queue=queue)


def created_again(server, topic):
    with server.admin() as admin:
        admin.delete_topic(topic)


def lost_store(server, _topic):
    server.stop()
    shutil.rmtree(server.path)
    server.start()


@pytest.mark.parametrize("change", [created_again, lost_store])
@pytest.mark.parametrize("count", [20, len(OLD), 150], ids=["shorter", "equal", "longer"])
def test_live_readers_get_everything_of_the_later_queues_or_report_the_change(tmp_path, change, count):
    topic, new = fresh_name("changed"), [b"new %d" % number for number in range(count)]
    left_out = NOT_COVERED.get(f"{change.__name__}-{'longer' if count >= len(OLD) else 'shorter'}", ())
    with (
        PatientServer(tmp_path / "store", settings=SMALL_FILES) as server,
        contextlib.ExitStack() as running,
    ):
        create_and_fill(server, topic, OLD)
        readers = {name: reader(server, topic) for name, reader in READERS.items() if name not in left_out}
        for reader in readers.values():
            running.enter_context(reader.running())
        wait_until(lambda: all(reader.has(OLD) for reader in readers.values()), "all have read the earlier topic")
        change(server, topic)
        create_and_fill(server, topic, new)

        def missing():
            return {
                name: (sorted(set(new) - set(reader.bodies)), reader.said)
                for name, reader in readers.items()
                if not reader.has(new)
            }

        with contextlib.suppress(AssertionError):
            wait_until(lambda: not missing(), seconds=PATIENCE_SECONDS)
        assert missing() == {}


@pytest.mark.parametrize("kind", [Follow, FollowAsMember])
def test_consume_continues_after_a_topic_that_was_missing_for_a_while(rocketpy_server, kind):
    topic = fresh_name("missing")
    create_and_fill(rocketpy_server, topic, OLD)
    reader = kind(rocketpy_server, topic)
    with reader.running():
        wait_until(lambda: reader.has(OLD), "all are printed")
        created_again(rocketpy_server, topic)
        wait_until(lambda: reader.said, "the absence is noticed")
        create_and_fill(rocketpy_server, topic, [b"later"])
        wait_until(lambda: reader.has([b"later"]), "the message of the later topic is printed")
        wait_until(lambda: "available again" in reader.said, "the end of the absence is noticed")
    absences = [said for said in reader.said if said.endswith("; retrying until the servers are available")]
    assert len(absences) == 1
    assert topic in absences[0]


def test_consume_reads_the_queues_that_a_topic_gets(rocketpy_server):
    topic = fresh_name("grown")
    with rocketpy_server.admin() as admin, rocketpy_server.producer(fresh_name("fill")) as producer:
        admin.create_topic(topic, queues=1)
        producer.send(rocketpy.Message(topic, b"first"))
        reader = Follow(rocketpy_server, topic)
        with reader.running():
            wait_until(lambda: reader.has([b"first"]), "the first message is printed")
            admin.create_topic(topic, queues=4)
            with rocketpy_server.producer(fresh_name("fill")) as later:
                queues = {later.send(rocketpy.Message(topic, body)).queue for body in OLD}
            assert len(queues) == 4
            wait_until(lambda: reader.has(OLD), "all are printed")
    assert (sorted(reader.bodies), reader.said) == (sorted([b"first", *OLD]), [])


def test_consume_continues_at_the_end_of_a_queue_that_lost_its_last_messages(tmp_path):
    topic, later = fresh_name("cut"), [b"later %d" % number for number in range(5)]
    with PatientServer(tmp_path / "store", settings=SMALL_FILES) as server:

        def send(bodies):
            with server.producer(fresh_name("fill")) as producer:
                return producer.send_many([rocketpy.Message(topic, body) for body in bodies], queue=queue)

        with server.admin() as admin:
            admin.create_topic(topic, queues=1)
            (queue,) = admin.queues(topic)
        sent = send(OLD)
        reader = Follow(server, topic)
        with reader.running():
            wait_until(lambda: reader.has(OLD), "all are printed")
            wait_for_files(server.path, queue, len(OLD))
            server.stop()
            cut(server.path, int(sent[40].offset_msg_id[16:], 16), apply=True)
            server.start()
            wait_until(
                lambda: any("lost 20 messages at its end" in said for said in reader.said), "the loss is noticed"
            )
            send(later)
            wait_until(lambda: reader.has(later), "the later messages are printed")
    assert reader.bodies == OLD + later
