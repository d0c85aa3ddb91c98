"""The stubs agree with the extension module, and what a user writes is checked against them."""

import importlib.resources
import inspect
import re
import subprocess
import sys

import pytest

import rocketpy
from rocketpy.aio.loop import AsyncClosing
from rocketpy.base.lifetime import Closing
from rocketpy.config import ConsumerOptions, ProducerOptions, PushOptions


@pytest.mark.soak  # the lint does it too
def test_the_stubs_agree_with_the_extension(tmp_path):
    command = [sys.executable, "-m", "mypy.stubtest", "rocketpy._rocketpy"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


CLIENTS = [one for name in rocketpy.__all__ if inspect.isclass(one := getattr(rocketpy, name))]
CLIENTS = [one for one in CLIENTS if issubclass(one, Closing | AsyncClosing)]
OPTIONS = {name for options in (ConsumerOptions, ProducerOptions, PushOptions) for name in options.__annotations__}


def unnamed(documented: object) -> list[str]:
    """Arguments without an entry in the docstring. Options may have one together; the site lists them."""
    entries = set(re.findall(r"^    \\*?(\w+): ", inspect.getdoc(documented) or "", re.MULTILINE))
    names = [name for name in inspect.signature(documented).parameters if name not in ("self", "cls")]
    names = [name for name in names if not name.startswith("_")]  # they only refuse arguments
    return [name for name in names if name not in entries and not (name in OPTIONS and "options" in entries)]


@pytest.mark.parametrize("client", CLIENTS)
def test_docstrings_of_clients_and_servers_name_each_argument(client):
    methods = [getattr(client, name) for name in dir(client) if not name.startswith("_")]
    checked = [client, *(one for one in methods if inspect.isroutine(one))]
    assert {one.__qualname__: names for one in checked if (names := unnamed(one))} == {}
    assert all(inspect.getdoc(one) for one in checked)


def test_the_package_says_that_it_is_typed():
    assert importlib.resources.files("rocketpy").joinpath("py.typed").is_file()


def test_what_a_user_writes_is_typed(tmp_path):
    (tmp_path / "use.py").write_text(USE)
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "use.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    errors = [line.split(": ", 1)[0] for line in ended.stdout.splitlines() if ": error:" in line]
    wrong = [f"use.py:{number}" for number, line in enumerate(USE.splitlines(), 1) if "# wrong" in line]
    assert errors == wrong, ended.stdout


USE = """\
from datetime import timedelta
from concurrent.futures import Future
import rocketpy
from dataclasses import dataclass
from rocketpy.codec import JsonCodec, PydanticCodec, decoded
from rocketpy.dedup import Dedup

@dataclass
class Order:
    amount: int

orders = JsonCodec(Order)
with rocketpy.Consumer("report", "orders") as typed:
    for order, received in decoded(typed, orders):
        amount: int = order.amount
        amount = received.amount  # wrong
    for order, _ in decoded(typed.poll(), PydanticCodec(Order)):
        amount = order.amount
        order.size  # wrong
orders.encode("text")  # wrong
with rocketpy.Consumer("report", "orders", codec=orders) as of_orders:
    named: rocketpy.Consumer[Order] = of_orders
    plain: rocketpy.Consumer = of_orders
    for received_order in of_orders:
        amount = received_order.value.amount
        amount = received_order.value  # wrong
        length: int = len(received_order.body)
    for with_value in rocketpy.Consumer.assign("audit", [], codec=orders).poll():
        amount = with_value.value.amount
    for without in typed:
        amount = without.value  # wrong

async def read_orders() -> None:
    async with rocketpy.AsyncConsumer("report", "orders", codec=orders) as of_orders:
        async for received_order in of_orders:
            amount: int = received_order.value.amount

once = Dedup("billing", "done.db")

@once
def charge(message: rocketpy.ReceivedMessage) -> int:
    return len(message.body)

@once
async def charge_async(message: rocketpy.ReceivedMessage) -> int:
    return len(message.body)

async def handle(message: rocketpy.ReceivedMessage) -> None:
    charged: int | None = charge(message)
    charged = await charge_async(message)
    charge_async(message) + 1  # wrong
    charge(b"x")  # wrong

with rocketpy.Server("data", settings={"flushDiskType": "SYNC_FLUSH"}) as server:
    with server.producer("ingest", send_timeout=timedelta(seconds=1), retries=1) as producer:
        receipt: rocketpy.Receipt = producer.send(rocketpy.Message("flights", b"x", tag="UA", keys=["a"]))
        receipts: rocketpy.Receipts = producer.send_many(rocketpy.Message("flights", b"x") for _ in range(3))
        first: rocketpy.Receipt = receipts[0]
        future: Future[rocketpy.Receipt] = producer.submit(rocketpy.Message("flights", b"x"))
        number: int = receipt.queue_offset + future.result().queue.queue_id
        producer.send(b"x")  # wrong
        server.producer("ingest", send_timeouts=1)  # wrong
        rocketpy.Message("flights", "text")  # wrong
    with server.consumer("report", "flights", start=rocketpy.Start.EARLIEST) as consumer:
        for batch in consumer.batches(max_messages=10, idle_timeout=1.0):
            bodies: list[bytes] = [message.body for message in batch]
        for message in consumer:
            tag: str = message.tag  # wrong
            view: memoryview = message.body_view
        rows: int = consumer.fetch_arrow().num_rows
        consumer.seek(rocketpy.MessageQueue("flights", "broker-a", 0), rocketpy.Start.at(0))
    server.admin().create_topic("flights", queues="8")  # wrong
reader = rocketpy.StoreReader("data")
lengths: list[int] = [batch.num_rows for part in reader.ranges("flights") for batch in reader.scan(part)]
try:
    pass
except rocketpy.RocketPyError as error:
    hint: str | None = error.hint
"""
