"""A disk that fills up under the broker while clients of all kinds work, and has room again later."""

import asyncio
import os
import subprocess
import threading
from collections import Counter

import pytest

import rocketpy
from rocketpy import AsyncProducer, Message
from rocketpy.testing import PatientServer
from waiting import wait_until

SETTINGS = {
    "mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20 * 4000, "messageDelayLevel": "1s 1s 1s 1s 1s",
}  # fmt: skip
NO_ROOM = 14
"""The broker's code while it stores nothing."""


@pytest.fixture
def disk(tmp_path):
    """A file system of 16 MiB in memory; its servers must end before it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"root is needed to mount: {error}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


class Senders:
    """Threads that send numbered messages of 8 KB until they are stopped."""

    def __init__(self, server):
        self.server = server
        self.acknowledged, self.refused, self.others = {}, Counter(), []
        self.stopped = threading.Event()
        kinds = (self.futures, self.asyncio, self.transactions)
        self.threads = [threading.Thread(target=kind, name=kind.__name__) for kind in kinds]
        self.last, self.lock = 0, threading.Lock()

    def message(self):
        with self.lock:
            self.last += 1
        return self.last, Message("orders", b"%d:" % self.last + os.urandom(8000))

    def ended(self, number, error=None):
        kind = threading.current_thread().name
        if error is None:
            self.acknowledged[number] = kind
        elif getattr(error, "code", None) == NO_ROOM:
            self.refused[kind] += 1
        else:
            self.others.append(error)

    def counts(self):
        return Counter(self.acknowledged.copy().values())

    def futures(self):
        with self.server.producer("futures") as producer:
            while not self.stopped.wait(0.02):
                submitted = []
                for _ in range(10):
                    number, message = self.message()
                    submitted.append((number, producer.submit(message)))
                for number, future in submitted:
                    self.ended(number, future.exception(60))

    def asyncio(self):
        async def send(producer):
            while not self.stopped.is_set():
                number, message = self.message()
                (ended,) = await asyncio.gather(asyncio.wait_for(producer.send(message), 60), return_exceptions=True)
                self.ended(number, ended if isinstance(ended, BaseException) else None)
                await asyncio.sleep(0.02)

        async def main():
            async with AsyncProducer("asyncio", name_servers=self.server.name_server, send_timeout=60) as producer:
                await asyncio.gather(*(send(producer) for _ in range(5)))

        asyncio.run(main())

    def transactions(self):
        with rocketpy.TransactionProducer(
            "transactions", check=lambda message: "commit", name_servers=self.server.name_server, send_timeout=60
        ) as producer:
            while not self.stopped.wait(0.02):
                number, message = self.message()
                try:
                    with producer.transaction(message):
                        pass
                    self.ended(number)
                except rocketpy.RocketPyError as error:
                    self.ended(number, error)


def test_what_was_acknowledged_comes_and_all_go_on_when_there_is_room(disk):
    seen = Counter()
    with PatientServer(disk / "store", settings=SETTINGS) as server:
        with server.admin() as admin:
            admin.create_topic("orders", queues=4)
        consumer, senders = server.push_consumer("readers", start="earliest"), Senders(server)

        @consumer.on("orders")
        def handle(message):
            number = int(message.body.split(b":")[0])
            if number % 10 == 0 and message.reconsume_times == 0:
                raise rocketpy.Retry(after=1)
            seen[number] += 1

        with consumer:
            for thread in senders.threads:
                thread.start()
            try:
                wait_until(lambda: len(senders.refused) == 3, "each kind of sender is refused")
                before = senders.counts()
                subprocess.run(["mount", "-o", "remount,size=400m", str(disk)], check=True)
                wait_until(lambda: all(senders.counts()[one.name] > before[one.name] + 10 for one in senders.threads))
            finally:
                senders.stopped.set()
                for thread in senders.threads:
                    thread.join()
            wait_until(lambda: set(senders.acknowledged) <= set(seen), "what was acknowledged came to handlers")
    assert not senders.others
