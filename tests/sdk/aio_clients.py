"""Clients of asyncio for tests, whose calls wait out a busy machine."""

import rocketpy
from rocketpy import AsyncConsumer, AsyncProducer
from rocketpy.testing import fresh_name

PATIENCE = {"api_timeout": 60.0}


def producer(server: rocketpy.Server, **options) -> AsyncProducer:
    return AsyncProducer(fresh_name(), name_servers=server.name_server, send_timeout=60, **PATIENCE, **options)


def consumer(server: rocketpy.Server, topic: str, **options) -> AsyncConsumer:
    group = options.pop("group", None) or fresh_name()
    return AsyncConsumer(group, topic, name_servers=server.name_server, **PATIENCE, **options)


def bodies(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def take(member: AsyncConsumer, count: int) -> list[bytes]:
    """Bodies of that many messages."""
    came: list[bytes] = []
    while len(came) < count:
        came += [message.body for message in await member.poll(count - len(came), 60)]
    return came
