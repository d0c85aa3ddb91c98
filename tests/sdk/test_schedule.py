"""Schedules at a real broker, whose clock the tests advance."""

import asyncio
import threading

import pytest

import rocketpy
from rocketpy import schedule
from rocketpy.schedule.journal import TOPIC
from rocketpy.testing import PATIENCE_SECONDS, drain
from waiting import wait_until

HOUR = 3600
PATIENT = {"api_timeout": PATIENCE_SECONDS}


@pytest.fixture
def server(rocketpy_server_factory):
    """A server of its own: all schedulers of a cluster share one topic."""
    server = rocketpy_server_factory()
    with server.admin() as admin:
        admin.create_topic("reports", queues=1)
    return server


@pytest.fixture
def add(server):
    def add(name="report", **given):
        return schedule.add(name, **{"topic": "reports", **given}, name_servers=server.name_server, **PATIENT)

    return add


def scheduler(server):
    return schedule.Scheduler(server.name_server, **PATIENT)


def the_schedule(server, name="report"):
    return {one.name: one for one in schedule.schedules(name_servers=server.name_server, **PATIENT)}[name]


def remove(server, name="report"):
    schedule.remove(name, name_servers=server.name_server, **PATIENT)


def last_fired(server, name="report"):
    last = the_schedule(server, name).last_at
    return None if last is None else last.timestamp()


def advance_to(server, at, by=HOUR):
    """Advances the clock, and waits until the schedule has fired for a time."""
    server.advance(by)
    wait_until(lambda: last_fired(server) == at, f"it fires for {at}")


def keys(server, group="auditor"):
    with server.consumer(group, "reports") as consumer:
        return [message.keys[0] for message in drain(consumer)]


def iso(at):
    return f"report@{at.strftime('%Y-%m-%dT%H:%M:%SZ')}"


def test_each_time_is_one_message_with_name_and_time_as_its_key(server, add):
    first = add(every=HOUR, body=b"daily", tag="PDF").next_at
    with scheduler(server), server.consumer("readers", "reports") as consumer:
        for n in range(3):
            advance_to(server, first.timestamp() + n * HOUR)
        messages = drain(consumer)
    assert [one.keys for one in messages] == [(iso(first + n * schedule.timedelta(hours=1)),) for n in range(3)]
