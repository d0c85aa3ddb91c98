"""Groups of Python's members and of Java's, by each strategy: they agree while members join, leave and are killed."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import rocketpy
from peers import Java, lines, running
from sdk import fresh
from waiting import wait_until

QUEUES = 8
Shares = Callable[[list[rocketpy.MessageQueue], list[str]], list[str]]
"""From queues and sorted client ids, the owner of each queue."""


def by_circle(queues: list[rocketpy.MessageQueue], members: list[str]) -> list[str]:
    return [members[number % len(members)] for number in range(len(queues))]


def by_hash(queues: list[rocketpy.MessageQueue], members: list[str]) -> list[str]:
    """The rule of docs/reference/client.md 8.4, written once more."""

    def hashed(text: str) -> int:
        return int.from_bytes(hashlib.md5(text.encode()).digest()[:4])

    points = sorted((hashed(f"{member}-{node}"), member) for member in members for node in range(10))
    keys = (f"MessageQueue [topic={it.topic}, brokerName={it.broker_name}, queueId={it.queue_id}]" for it in queues)
    return [next((member for point, member in points if point >= hashed(key)), points[0][1]) for key in keys]


class Member:
    """A member by Java, and what it has printed."""

    def __init__(self, java: Java, home: Path, *arguments: str) -> None:
        self._kept = ExitStack()
        self.process = self._kept.enter_context(running(java.command("Members", home, "balanced", *arguments)))
        self.share: list[int] = []
        self.read: list[int] = []
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        for line in lines(self.process):
            if "read" in line:
                self.read.append(line["read"])
            else:
                self.share = line["allocated"]

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.wait(timeout=120) == 0
        self.end()

    def end(self) -> None:
        """Kills the process if it still runs."""
        self._kept.close()
        self._thread.join()


@pytest.fixture(params=["rocketpy", "apache"])
def address(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(f"{request.param}_address")


@pytest.fixture
def start(java: Java, home: Path) -> Iterator[Callable[..., Member]]:
    members: list[Member] = []

    def start(name: str, *arguments: str) -> Member:
        members.append(Member(java, home / name, *arguments, name))
        return members[-1]

    yield start
    for member in members:
        member.end()


@pytest.mark.parametrize(
    ("balance", "strategy", "owners"), [("circle", "circle", by_circle), ("consistent_hash", "hash", by_hash)]
)
def test_members_of_java_and_python_agree_while_they_join_leave_and_are_killed(
    start: Callable[..., Member], address: str, balance: str, strategy: str, owners: Shares
):
    topic, group = fresh("balanced"), fresh("mixed")

    def python(name: str) -> rocketpy.Consumer:
        return rocketpy.Consumer(
            group, topic, name_servers=[address], balance=balance, instance_name=name, client_ip="host", api_timeout=60
        )

    def share(member: rocketpy.Consumer | Member) -> list[int]:
        if isinstance(member, Member):
            return member.share
        return [queue.queue_id for queue in member.assignment()]

    def agree(**members: rocketpy.Consumer | Member) -> dict[str, list[int]]:
        """Waits until each member has the share that the rule gives it."""
        by = owners(queues, sorted(f"host@{name}" for name in members))
        expected = {name: [number for number in range(QUEUES) if by[number] == f"host@{name}"] for name in members}
        wait_until(lambda: {name: share(member) for name, member in members.items()} == expected, f"shares {expected}")
        return expected

    with rocketpy.Admin(address, api_timeout=60) as admin:
        admin.create_topic(topic, queues=QUEUES)
        queues = admin.queues(topic)
    with python("b") as b:
        agree(b=b)
        a = start("a", address, topic, group, strategy)
        agree(a=a, b=b)
        c = start("c", address, topic, group, strategy)
        agree(a=a, b=b, c=c)
        with python("d") as d:
            shares = agree(a=a, b=b, c=c, d=d)
            with rocketpy.Producer(fresh("balanced"), name_servers=[address], send_timeout=60) as producer:
                for queue in queues:
                    producer.send(rocketpy.Message(topic, b"it"), queue=queue)
            for name, member in {"b": b, "d": d}.items():
                read: list[int] = []
                while sorted(read) != shares[name]:
                    read += [message.queue.queue_id for message in member.poll(timeout=60)]
                member.commit()
            wait_until(lambda: [sorted(a.read), sorted(c.read)] == [shares["a"], shares["c"]], "what Java reads")
        agree(a=a, b=b, c=c)
        a.leave()
        agree(b=b, c=c)
        c.process.kill()
        agree(b=b)
