"""Messages for tests of Spark jobs: the first 2,000 flights of 2013, in a topic of the shared server."""

import json
from pathlib import Path
from typing import Any

import pandas

import rocketpy
from rocketpy.demo.flights import Flights, folder
from waiting import wait_for_files

FLIGHTS = 2_000


def flights(count: int = FLIGHTS) -> Flights:
    """Reads the first flights of 2013."""
    frame = pandas.read_csv(folder() / "flights.csv.zip", nrows=count)
    return Flights(frame=frame, airlines={}, airports=pandas.DataFrame())


def send_flights(server: rocketpy.Server, topic: str, count: int = FLIGHTS, queues: int = 4) -> list[rocketpy.Receipt]:
    """Sends flights to a new topic, in order for each aircraft, and waits until the store's files contain them."""
    with server.admin() as admin, server.producer("flights") as producer:
        admin.create_topic(topic, queues=queues)
        receipts = [one for messages in flights(count).messages(topic, count) for one in producer.send_many(messages)]
    wait_for_receipts(server, receipts)
    return receipts


def wait_for_receipts(server: rocketpy.Server, receipts: list[rocketpy.Receipt]) -> None:
    """Waits until the consume queue files of a store contain the acknowledged messages."""
    ends: dict[rocketpy.MessageQueue, int] = {}
    for receipt in receipts:
        ends[receipt.queue] = max(ends.get(receipt.queue, 0), receipt.queue_offset + 1)
    for queue, end in ends.items():
        wait_for_files(server.path, queue, end)


def run(main: Any, capsys: Any, *arguments: object) -> tuple[int, Any]:
    """Runs the command line of a job with `--json`; returns the exit code and the JSON, or the error text."""
    capsys.readouterr()
    code = main([*map(str, arguments), "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out) if printed.out else printed.err


def journal(receipts: list[rocketpy.Receipt], path: Path) -> Path:
    """Writes receipts as the JSON lines of a producer's journal."""
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
