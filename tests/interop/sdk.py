"""What the Python side of each test sends and reads, in the same shape as the drivers print it."""

import uuid
from collections.abc import Set

import rocketpy


def fresh(name: str) -> str:
    """A topic or group name that no other test uses."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


def messages(
    topic: str, count: int, prefix: str, tag: str | None = None, body_bytes: int = 0
) -> list[rocketpy.Message]:
    return [
        rocketpy.Message(
            topic,
            f"{prefix}-{i}".ljust(body_bytes, ".").encode(),
            tag=tag,
            keys=[f"{prefix}-{i}"],
            properties={"origin": "python"},
        )
        for i in range(count)
    ]


def send(address: str, todo: list[rocketpy.Message]) -> list[rocketpy.Receipt]:
    with rocketpy.Producer(fresh("interop-producer"), name_servers=[address], send_timeout=60) as producer:
        return [producer.send(message) for message in todo]


def read(address: str, topic: str, count: int, tags: str = "*", group: str | None = None) -> list[dict]:
    """Reads ``count`` messages from the beginning, then makes sure that no further one follows at once."""
    consumer = rocketpy.Consumer(
        group or fresh("interop-reader"),
        topic,
        name_servers=[address],
        tags=tags,
        start=rocketpy.Start.EARLIEST,
        api_timeout=60,
    )
    lines: list[dict] = []
    with consumer:
        while len(lines) < count:
            batch = consumer.poll(max_messages=500, timeout=60)
            assert batch, f"{topic}: {len(lines)} of {count} messages within 60 s"
            lines += [line(message) for message in batch]
        lines += [line(message) for message in consumer.poll(max_messages=500, timeout=0.2)]
        consumer.commit()
    return lines


def came(address: str, topic: str, group: str, wanted: Set[str]) -> list[rocketpy.ReceivedMessage]:
    """Every message of a topic, read from its beginning until all bodies that are wanted have come."""
    found: list[rocketpy.ReceivedMessage] = []
    with rocketpy.Consumer(group, topic, name_servers=[address], start=rocketpy.Start.EARLIEST) as consumer:
        while missing := wanted - {message.body.decode() for message in found}:
            batch = consumer.poll(timeout=60)
            assert batch, f"missing: {missing}"
            found += batch
        found += consumer.poll(timeout=0.2)
    return found


def reply_to(address: str, topic: str, count: int) -> None:
    """Replies to the first ``count`` requests of a topic with their text after "re:"."""
    names = {"name_servers": [address]}
    with (
        rocketpy.Producer(fresh("interop-replies"), send_timeout=60, **names) as replies,
        rocketpy.Consumer(fresh("interop-clerk"), topic, **names) as consumer,
    ):
        while count:
            for request in consumer.poll(timeout=60):
                replies.reply(request, b"re:" + request.body)
                count -= 1


def line(message) -> dict:
    return {
        "topic": message.topic,
        "queue_id": message.queue.queue_id,
        "queue_offset": message.queue_offset,
        "msg_id": message.msg_id,
        "tag": message.tag,
        "keys": " ".join(message.keys) or None,
        "body": message.body.decode(),
        "origin": message.properties.get("origin"),
    }


def in_order(lines: list[dict]) -> list[dict]:
    return sorted(lines, key=lambda one: (one["queue_id"], one["queue_offset"]))


def by_queue(lines: list[dict]) -> dict[int, list[str]]:
    """The bodies of each queue, in the order in which they came."""
    found: dict[int, list[str]] = {}
    for one in sorted(lines, key=lambda one: one["queue_id"]):
        found.setdefault(one["queue_id"], []).append(one["body"])
    return found
