"""Python sending and reading 128 B messages: rates by the clock and by processor time of client and broker."""

import time
from collections.abc import Callable, Iterator

import rocketpy
from process import BINARY, Running, cpu_seconds, server

COUNT = 2_000_000
CHUNK = 20_000
BODY_BYTES = 128
QUEUES = 16
TOPIC = "bench"

Figure = dict[str, float | str]


def measured(running: Running, work: Callable[[], int]) -> dict[str, float]:
    """Runs ``work``, which returns its number of messages; rates by wall clock and by processor time."""
    client, broker, clock = cpu_seconds(), cpu_seconds(running.pid), time.perf_counter()
    count = work()
    seconds = time.perf_counter() - clock
    client, broker = cpu_seconds() - client, cpu_seconds(running.pid) - broker
    return {
        "messages_per_s": count / seconds,
        "client_cpu_s_per_million": client / count * 1e6,
        "broker_cpu_s_per_million": broker / count * 1e6,
    }


def chunks() -> Iterator[list[rocketpy.Message]]:
    """The load, made again for each chunk as an application would."""
    body = b"x" * BODY_BYTES
    for _ in range(COUNT // CHUNK):
        yield [rocketpy.Message(TOPIC, body, tag="a") for _ in range(CHUNK)]


def send_many(running: Running) -> int:
    with rocketpy.Producer("bench", name_servers=[running.name_server]) as producer:
        return sum(len(producer.send_many(chunk)) for chunk in chunks())


def submit(running: Running) -> int:
    """The asynchronous way: a future for each message, within the producer's window."""
    body = b"x" * BODY_BYTES
    count = COUNT // 10
    with rocketpy.Producer("bench", name_servers=[running.name_server]) as producer:
        for _ in range(count):
            producer.submit(rocketpy.Message(TOPIC, body, tag="a"))
        producer.flush(timeout=60)
    return count


def poll(running: Running) -> int:
    """Batches of message objects, with every body read."""
    read, length = 0, 0
    with rocketpy.Consumer(
        "bench-objects", TOPIC, name_servers=[running.name_server], start=rocketpy.Start.EARLIEST
    ) as consumer:
        while read < COUNT:
            batch = consumer.poll(max_messages=4096, timeout=10)
            if not batch:
                raise RuntimeError(f"only {read} of {COUNT} messages came")
            read += len(batch)
            length += sum(len(message.body) for message in batch)
    if length != read * BODY_BYTES:
        raise RuntimeError(f"{length} bytes in {read} messages")
    return read


def fetch_arrow(running: Running) -> int:
    """Arrow record batches, no Python object per message."""
    read = 0
    with rocketpy.Consumer(
        "bench-arrow", TOPIC, name_servers=[running.name_server], start=rocketpy.Start.EARLIEST
    ) as consumer:
        while read < COUNT:
            rows = consumer.fetch_arrow(max_rows=100_000, timeout=10).num_rows
            if not rows:
                raise RuntimeError(f"only {read} of {COUNT} messages came")
            read += rows
    return read


def figures() -> dict[str, Figure]:
    """Every figure of this page, by name."""
    targets = {send_many: 1e6, poll: 1e6, fetch_arrow: 3e6, submit: None}
    result: dict[str, Figure] = {}
    with server(BINARY) as running:
        with rocketpy.Admin(name_servers=[running.name_server]) as admin:
            admin.create_topic(TOPIC, queues=QUEUES)
        for work, target in targets.items():
            one = measured(running, lambda work=work: work(running))
            result[f"Python {work.__name__}, {BODY_BYTES} B"] = {
                "value": 1e6 / one["client_cpu_s_per_million"],
                "unit": "messages per client processor second",
                "target": f">= {target:.0e}" if target else "",
                **one,
            }
    return result


if __name__ == "__main__":
    for name, figure in figures().items():
        print(name, {key: round(value, 3) if isinstance(value, float) else value for key, value in figure.items()})
