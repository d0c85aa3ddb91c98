"""Sends and receives MESSAGES messages (default 10,000,000) in each of two ways, and fails unless memory stays flat.

The ways: threads (`Producer.send_many` and `submit`, `Consumer`, `PushConsumer`), and asyncio (`AsyncProducer`,
`AsyncConsumer`). Clients and server are processes of their own. Flat: the peak of the second half is at most 5 % above
that of the first. What counts is memory of the process's own (RssAnon), not the pages of mapped files.
"""

import asyncio
import gc
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import rocketpy
from rocketpy.servers.process import ServerProcess

ROUND = 50_000
"""Messages of a round: half of them are sent in one way, half in another. Memory is read after each."""
BODY = b"x" * 100
GROWTH = 0.05
TOPIC = "memory"
PATIENCE = 120.0
IN_FLIGHT = 1000
"""Sends of asyncio at the same time."""


def anonymous_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kib,) = (int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
    return kib << 10


def messages(count: int) -> list[rocketpy.Message]:
    return [rocketpy.Message(TOPIC, BODY, tag="t", keys=str(number)) for number in range(count)]


def said() -> None:
    """Tells the parent that a round is over, and waits until it has read the memory of both processes."""
    gc.collect()
    print("round", flush=True)
    sys.stdin.readline()


def by_threads(name_server: str, rounds: int) -> None:
    pushed = threading.Semaphore(0)
    push = rocketpy.PushConsumer("memory-push", name_servers=name_server)
    push.on(TOPIC, batch=512)(lambda batch: pushed.release(len(batch)))
    with (
        rocketpy.Producer("memory", name_servers=name_server) as producer,
        rocketpy.Consumer("memory-poll", TOPIC, name_servers=name_server, auto_commit=True) as consumer,
        push,
    ):
        for _ in range(rounds):
            producer.send_many(messages(ROUND // 2))
            for sent in [producer.submit(message) for message in messages(ROUND // 2)]:
                sent.result(timeout=PATIENCE)
            polled = 0
            while polled < ROUND:
                batch = consumer.poll(5000, timeout=PATIENCE)
                polled += sum(len(message.body) == len(BODY) for message in batch)
            for _ in range(ROUND):
                assert pushed.acquire(timeout=PATIENCE)
            said()


async def by_asyncio(name_server: str, rounds: int) -> None:
    async with (
        rocketpy.AsyncProducer("memory", name_servers=name_server) as producer,
        rocketpy.AsyncConsumer("memory-aio", TOPIC, name_servers=name_server, auto_commit=True) as consumer,
    ):
        for _ in range(rounds):
            await producer.send_many(messages(ROUND // 2))
            rest = iter(messages(ROUND // 2))

            async def send(rest=rest) -> None:
                for message in rest:
                    await producer.send(message)

            await asyncio.gather(*(send() for _ in range(IN_FLIGHT)))
            received = 0
            async for message in consumer:
                received += len(message.body) == len(BODY)
                if received == ROUND:
                    break
            said()


def client(way: str, name_server: str, rounds: int) -> None:
    if way == "threads":
        by_threads(name_server, rounds)
    else:
        asyncio.run(by_asyncio(name_server, rounds))


def is_flat(what: str, samples: list[int]) -> bool:
    half, step = len(samples) // 2, max(1, len(samples) // 8)
    growth = max(samples[half:]) / max(samples[:half]) - 1
    peaks = [max(samples[at : at + step]) / 2**20 for at in range(0, len(samples), step)]
    print(f"  {what}: {growth:+.1%}; MiB by time: {' '.join(f'{peak:.1f}' for peak in peaks)}", flush=True)
    return growth <= GROWTH


def measure(way: str, count: int) -> bool:
    rounds = max(4, count // ROUND)
    print(f"{way}: {rounds * ROUND:,} messages", flush=True)
    ours, theirs = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(Path(folder) / "store", "mappedFileSizeCommitLog=67108864") as server,
    ):
        with rocketpy.Admin(name_servers=server.name_server) as admin:
            admin.create_topic(TOPIC, queues=8)
        command = [sys.executable, __file__, way, server.name_server, str(rounds)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdin
            for _ in child.stdout or ():
                ours.append(anonymous_bytes(child.pid))
                theirs.append(anonymous_bytes(server.pid))
                child.stdin.write("\n")
                child.stdin.flush()
    if child.returncode != 0 or len(ours) != rounds:
        print(f"  the clients ended with {child.returncode} after {len(ours)} of {rounds} rounds")
        return False
    return is_flat("clients", ours) & is_flat("server", theirs)


def main() -> int:
    match sys.argv[1:]:
        case [way, name_server, rounds]:
            client(way, name_server, int(rounds))
            return 0
        case arguments:
            count = int(arguments[0]) if arguments else 10_000_000
            return 0 if all([measure(way, count) for way in ("threads", "asyncio")]) else 1  # noqa: C419  # both


if __name__ == "__main__":
    sys.exit(main())
