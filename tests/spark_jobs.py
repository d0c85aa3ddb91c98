"""What the jobs are tested on: the first of the real flights, in a topic of the shared server."""

import json
from pathlib import Path
from typing import Any

import pandas

import rocketpy
from rocketpy.demo.flights import Flights, folder
from waiting import wait_for_files

FLIGHTS = 2_000


def flights(count: int = FLIGHTS) -> Flights:
    """The first flights of 2013."""
    frame = pandas.read_csv(folder() / "flights.csv.zip", nrows=count)
    return Flights(frame=frame, airlines={}, airports=pandas.DataFrame())


def send_flights(server: rocketpy.Server, topic: str, count: int = FLIGHTS, queues: int = 4) -> list[rocketpy.Receipt]:
    """Sends them to a new topic, each aircraft's in order, and waits until the store's files have them."""
    with server.admin() as admin, server.producer("flights") as producer:
        admin.create_topic(topic, queues=queues)
        receipts = [one for messages in flights(count).messages(topic, count) for one in producer.send_many(messages)]
    wait_for_receipts(server, receipts)
    return receipts


def wait_for_receipts(server: rocketpy.Server, receipts: list[rocketpy.Receipt]) -> None:
    """Waits until the files of a store lead to acknowledged messages."""
    ends: dict[rocketpy.MessageQueue, int] = {}
    for receipt in receipts:
        ends[receipt.queue] = max(ends.get(receipt.queue, 0), receipt.queue_offset + 1)
    for queue, end in ends.items():
        wait_for_files(server.path, queue, end)


def run(main: Any, capsys: Any, *arguments: object) -> tuple[int, Any]:
    """Runs a job as its command line does; returns the exit code and what it printed as JSON."""
    capsys.readouterr()
    code = main([*map(str, arguments), "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out) if printed.out else printed.err


def journal(receipts: list[rocketpy.Receipt], path: Path) -> Path:
    """Writes what a producer would note of its receipts."""
    lines = [
        {
            "topic": one.queue.topic,
            "msg_id": one.msg_id,
            "queue_id": one.queue.queue_id,
            "queue_offset": one.queue_offset,
        }
        for one in receipts
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path
