"""Quotas through `Admin` and `AsyncAdmin`, and the error of a producer over one."""

import asyncio

import pytest

from rocketpy import AsyncAdmin, BrokerBusyError, InvalidArgumentError, Message, Quota, RefusedError
from rocketpy.testing import fresh_name


@pytest.fixture
def admin(rocketpy_server):
    with rocketpy_server.admin() as admin:
        yield admin


def test_a_send_over_quota_fails_with_limit_and_wait(rocketpy_server, admin, rocketpy_topic):
    address, quota = rocketpy_server.broker, Quota("topic", rocketpy_topic, send_bytes=10)
    admin.set_quota(address, quota)
    with rocketpy_server.producer("quota-group", retries=0) as producer:
        producer.send(Message(rocketpy_topic, b"x" * 1000))
        with pytest.raises(BrokerBusyError, match=f"send quota of topic {rocketpy_topic} exceeded: limit 10 bytes/s"):
            producer.send(Message(rocketpy_topic, b"x"))
        (use,) = [use for use in admin.quotas(address) if use.quota == quota]
        assert use.throttled == use.rejected > 0
        assert (use.waiting, use.open_connections) == (0, 0)
        admin.remove_quota(address, "topic", rocketpy_topic)
        producer.send(Message(rocketpy_topic, b"x"))


def test_quotas_for_asyncio(rocketpy_server):
    async def main():
        address, name = rocketpy_server.broker, fresh_name()
        async with AsyncAdmin(rocketpy_server.name_server) as admin:
            quota = Quota("group", name, pull_messages=5)
            await admin.set_quota(address, quota)
            assert quota in [use.quota for use in await admin.quotas(address)]
            await admin.remove_quota(address, "group", name)
            with pytest.raises(RefusedError, match=f"no quota of group {name} is set"):
                await admin.remove_quota(address, "group", name)
            with pytest.raises(TypeError, match="quota must be a Quota, not dict"):
                await admin.set_quota(address, {"scope": "group"})

    asyncio.run(main())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"scope": "client", "name": "x", "send_bytes": 1}, "scope must be topic, group, address or user: client"),
        ({"scope": "topic", "name": "x"}, "quota of topic x has no limit"),
        ({"scope": "topic", "name": "x", "send_bytes": 0}, "send_bytes must be 1 to 1000000000000: 0"),
        ({"scope": "topic", "name": "x", "connections": 1}, "connections must be a limit of an address"),
    ],
)
def test_a_wrong_quota_is_refused_where_it_is_made(arguments, error):
    with pytest.raises(InvalidArgumentError, match=error):
        Quota(**arguments)
