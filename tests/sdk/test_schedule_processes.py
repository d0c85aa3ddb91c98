"""Schedulers in several processes, which are killed at each step of a firing."""

import signal
import subprocess
import sys
from datetime import timedelta

import pytest
from test_schedule import HOUR, add, fired, hourly, lag, scheduler, stored, wait_for_firing, with_topic

from rocketpy.testing import drain, fresh_name
from waiting import wait_until

SOON = {"transactionTimeOut": 200, "transactionCheckInterval": 300}
"""The broker soon asks for the half messages of a killed process."""
WORKER = """
import sys
from rocketpy.schedule import Scheduler, scheduler

def stop_at(name, when):
    # Blocks before or after a step of a firing, until the process is killed.
    step = getattr(scheduler.Owner, name)

    def stopped(owner, *arguments, **options):
        tag = getattr(arguments[0], "tag", None)
        if name != "_append" or tag == sys.argv[4]:
            if when == "after":
                step(owner, *arguments, **options)
            print("at step", flush=True)
            sys.stdin.read()
        return step(owner, *arguments, **options)

    setattr(scheduler.Owner, name, stopped)

if len(sys.argv) > 2:
    stop_at(sys.argv[2], sys.argv[3])
with Scheduler(sys.argv[1], api_timeout=60):
    print("runs", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def server(rocketpy_server_factory):
    return with_topic(rocketpy_server_factory(settings=SOON))


@pytest.fixture
def start(server):
    """Starts schedulers in processes of their own."""
    workers = []

    def start(*step):
        command = [sys.executable, "-W", "error", "-c", WORKER, server.name_server, *step]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        workers.append(worker)
        assert worker.stdout.readline() == "runs\n"
        return worker

    yield start
    for worker in workers:
        worker.kill()
        worker.communicate(timeout=300)


def kill(worker):
    worker.send_signal(signal.SIGKILL)
    worker.wait(timeout=300)


def open_halves(server):
    """Half messages minus those that are over, as the broker counts since its start."""
    with server.admin() as admin:
        (broker,) = admin.brokers()
        figures = admin.broker_figures(broker.addresses[0])
        (halves,) = admin.queues("RMQ_SYS_TRANS_HALF_TOPIC")
        over = int(figures["transactionsCommitted"]) + int(figures["transactionsRolledBack"])
        return admin.next_offset(halves) - over


@pytest.mark.parametrize(
    "step",
    [
        ("_prepare", "before", ""),
        ("_append", "before", "fire"),
        ("_append", "after", "fire"),
        ("_end", "before", ""),
        ("_end", "after", ""),
        ("_append", "after", "tick"),
    ],
    ids=["received", "half stored", "decision stored", "decision read", "committed", "next timer armed"],
)
def test_a_process_killed_within_a_firing_neither_loses_nor_repeats_it(server, start, step):
    first = add(server, every=HOUR).next_at
    if step[2] == "tick":
        with scheduler(server):  # arms the first timer, so that the worker stops at the second one
            wait_until(lambda: not lag(server), "the first timer is armed")
    worker = start(*step)
    server.advance(HOUR)
    assert worker.stdout.readline() == "at step\n"
    kill(worker)
    with scheduler(server):
        wait_for_firing(server, first)
        server.advance(HOUR)
        wait_for_firing(server, first + timedelta(hours=1))
        wait_until(lambda: open_halves(server) == 0, "no half message stays open")
    assert fired(server) == hourly(first, range(2))


def test_of_several_processes_one_fires_and_after_its_kill_another_one(server, start):
    first = add(server, every=HOUR).next_at
    workers = [start() for _ in range(3)]
    for n in range(3):
        server.advance(HOUR)
        wait_for_firing(server, first + timedelta(hours=n))
        (acted,) = [worker for worker in workers if worker.pid & 0xFFFF == last_process(server)]
        kill(acted)
        workers.remove(acted)
    with scheduler(server):
        server.advance(HOUR)
        wait_for_firing(server, first + timedelta(hours=3))
    assert fired(server) == hourly(first, range(4))


def last_process(server):
    """Lowest 16 bits of the id of the process that fired last, which the message id has."""
    with server.consumer(fresh_name("auditor"), "reports") as consumer:
        return int(drain(consumer)[-1].msg_id[8:12], 16)


def test_processes_that_add_the_same_schedule_at_the_same_time_store_it_once(server):
    source = "import sys\nfrom rocketpy import schedule\nsys.stdin.readline()\n" + (
        "print(schedule.add('report', every=3600, topic='reports', name_servers=sys.argv[1], api_timeout=60).name)"
    )
    command = [sys.executable, "-W", "error", "-c", source, server.name_server]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate(timeout=300)[0] for process in processes] == ["report\n"] * 3
    first = stored(server)["report"].next_at
    with scheduler(server):
        server.advance(HOUR)
        wait_for_firing(server, first)
    assert fired(server) == hourly(first, range(1))
