"""`rocketpy.health.check` of clients and servers that run, are closed, or lost their broker."""

import asyncio
import json
import os
from pathlib import Path

import pytest

import rocketpy
from rocketpy.health import Health, check
from waiting import wait_until

HEALTHY = Health(ok=True, problems=())


def test_clients_and_servers_are_healthy_while_they_run(rocketpy_server, rocketpy_topic):
    async def main():
        servers = {"name_servers": rocketpy_server.name_servers}
        producer = rocketpy.AsyncProducer("web", **servers)
        assert check(producer).problems == ("AsyncProducer of group web is not running",)
        async with producer, rocketpy.AsyncConsumer("web", rocketpy_topic, **servers) as consumer:
            admin = rocketpy_server.admin()
            found = await asyncio.to_thread(check, producer, consumer, rocketpy_server, admin)  # as a plain endpoint
            assert check(producer, consumer) == found == HEALTHY
        return check(producer, consumer, rocketpy_server)

    ended = asyncio.run(main())
    assert HEALTHY.status_code == 200
    assert (ended.status_code, len(ended.problems)) == (503, 2)
    assert ended.problems[1] == "AsyncConsumer of group web is not running"


def test_consumers_and_producers_without_a_broker_are_unhealthy_until_it_is_back(rocketpy_server_factory):
    server = rocketpy_server_factory()
    producer = server.producer("shop", send_timeout=0.5, retries=0)
    consumer = rocketpy.Consumer("report", "orders", name_servers=server.name_servers, allow_missing_topic=True)
    mailer = rocketpy.PushConsumer("mailer", name_servers=server.name_servers, allow_missing_topic=True)
    mailer.on("orders")(lambda message: None)
    with producer, consumer, mailer:
        producer.send(rocketpy.Message("orders", b"A-17"))
        wait_until(lambda: consumer.state().assigned and mailer.state().assigned)
        assert check(server, producer, consumer, mailer) == HEALTHY
        server.stop()
        assert check(server).problems == ("PatientServer is not running",)
        assert check(producer) == HEALTHY, "no send failed"
        with pytest.raises(rocketpy.RocketPyError):
            producer.send(rocketpy.Message("orders", b"A-18"))
        wait_until(lambda: len(check(producer, consumer, mailer).problems) == 3)
        problems = check(producer, consumer, mailer).problems
        assert problems[0].startswith("Producer of group shop: all sends fail since 20")
        assert problems[1].startswith("Consumer of group report reaches no broker: ")
        assert problems[2].startswith("PushConsumer of group mailer reaches no broker: ")
        server.start()
        producer.send(rocketpy.Message("orders", b"A-19"), timeout=60)
        wait_until(lambda: check(server, producer, consumer, mailer) == HEALTHY)


def test_a_client_of_the_parent_process_is_unhealthy_in_a_child(child, rocketpy_server):
    ended = child(
        f"""
        import json, os, rocketpy
        with rocketpy.Producer("forked", name_servers={rocketpy_server.name_server!r}) as producer:
            read, write = os.pipe()
            if not os.fork():
                os.write(write, json.dumps(rocketpy.health.check(producer).problems).encode())
                os._exit(0)
            os.wait()
            print(os.read(read, 10_000).decode())
        """
    )
    (problem,) = json.loads(ended.stdout)
    assert problem.startswith("Producer of group forked: ")
    assert "process" in problem


def test_other_objects_are_refused(producer):
    with pytest.raises(TypeError, match="str is not a client or a server"):
        check(producer, "orders")
    with Path(os.devnull).open() as file, pytest.raises(TypeError, match="TextIOWrapper is not a client or a server"):
        check(producer, file)
    with pytest.raises(TypeError, match="Producer is a class"):
        check(rocketpy.Producer)
