"""Clients of asyncio for tests, whose calls wait out a busy machine."""

import asyncio

import rocketpy
from rocketpy import AsyncConsumer, AsyncProducer, AsyncPushConsumer
from rocketpy.testing import fresh_name
from waiting import wait_until

PATIENCE = {"api_timeout": 60.0}


def producer(server: rocketpy.Server, **options) -> AsyncProducer:
    return AsyncProducer(fresh_name(), name_servers=server.name_server, send_timeout=60, **PATIENCE, **options)


def consumer(server: rocketpy.Server, topic: str, **options) -> AsyncConsumer:
    group = options.pop("group", None) or fresh_name()
    return AsyncConsumer(group, topic, name_servers=server.name_server, **PATIENCE, **options)


def pusher(server: rocketpy.Server, group: str, **options) -> AsyncPushConsumer:
    return AsyncPushConsumer(group, name_servers=server.name_servers, **PATIENCE, **options)


async def until(holds, what="what the test waits for") -> None:
    """Waits in a thread, so that the loop serves its tasks."""
    await asyncio.to_thread(wait_until, holds, what)


def bodies(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def take(member: AsyncConsumer, count: int) -> list[bytes]:
    """Bodies of that many messages."""
    came: list[bytes] = []
    while len(came) < count:
        came += [message.body for message in await member.poll(count - len(came), 60)]
    return came
