"""Client process of an endurance run: all traffic and all comings and goings, until its standard input ends.

    python benches/macro/endurance_clients.py NAME_SERVER FOLDER SECONDS

Writes its counts as a line of JSON every 10 s, and a last one once every acknowledged message has arrived.
"""

import json
import logging
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import endurance_churn as churn
import endurance_traffic as traffic
import rocketpy
from endurance_ledger import Ledger
from rocketpy import RocketPyError

REPORT_SECONDS = 10.0
MINUTE_SECONDS = 60.0
SPARE_SECONDS = 600.0
"""Numbers of this time more than the run lasts: an array has an end."""
STALLED_SECONDS = 120.0
"""Time without any arrival after which missing messages are lost."""
KEPT = ("single", "submitted", "batched", "asyncio", "visitors")
"""Streams of the steady topic whose handlers end well."""


class ClientRun:
    """State that all workers share. Attributes as `traffic.Run`."""

    def __init__(self, name_server: str, folder: Path, seconds: float) -> None:
        self.name_server, self.folder = name_server, folder
        self.ledger = Ledger()
        self.recent: deque[tuple[float, int]] = deque(maxlen=10_000)
        for name, rate in traffic.RATES.items():
            self.ledger.stream(name, int(rate * (seconds + SPARE_SECONDS)))
        self._began = time.monotonic()
        self._ends_sending, self._ends_reading = threading.Event(), threading.Event()

    def is_sending(self, pause: float) -> bool:
        return not self._ends_sending.wait(max(0.0, pause))

    def is_minute_over(self) -> bool:
        passed = (time.monotonic() - self._began) % MINUTE_SECONDS
        return self.is_sending(MINUTE_SECONDS - passed)

    def is_reading(self) -> bool:
        return not self._ends_reading.is_set()

    def end_sending(self) -> None:
        self._ends_sending.set()

    def end_reading(self) -> None:
        self._ends_sending.set()
        self._ends_reading.set()


class Workers:
    """Threads, whose unexpected errors fail the run."""

    def __init__(self, run: ClientRun) -> None:
        self._run = run
        self._threads: list[threading.Thread] = []

    def begin(self, work: Callable[..., None], *arguments: object) -> None:
        def guarded() -> None:
            try:
                work(self._run, *arguments)
            except Exception:
                self._run.ledger.fail(f"{work.__name__}: {traceback.format_exc()[-400:]}")

        thread = threading.Thread(target=guarded, name=work.__name__[:15])
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def begin_reading(run: ClientRun, readers: Workers, members: ExitStack) -> None:
    streams = run.ledger.streams
    kept = [streams[name] for name in KEPT]
    steady = [*kept, streams["poison"]]
    push, pull = run.ledger.reader("push", *kept), run.ledger.reader("pull", *steady)
    for _ in range(2):
        members.enter_context(traffic.push_member(run, "push", push, traffic.STEADY))
        readers.begin(traffic.poll, "pull", pull, traffic.STEADY)
    for name in ("broadcast-1", "broadcast-2"):
        reader = run.ledger.reader(name, *steady)
        members.enter_context(traffic.broadcast_member(run, name, reader))
    ordered = run.ledger.reader("ordered", streams["ordered"])
    members.enter_context(traffic.push_member(run, "ordered-push", ordered, traffic.ORDERED, ordered=True))
    for name in ("delayed", "transactions"):
        readers.begin(traffic.poll, name, run.ledger.reader(name, streams[name]), name)
    readers.begin(traffic.poll_ticks)
    readers.begin(traffic.use_asyncio, run.ledger.reader("asyncio", *steady))
    readers.begin(churn.read_dead_letters, run.ledger.reader("dead letters", streams["poison"]), 5.0)


def begin_sending(run: ClientRun, senders: Workers) -> None:
    for send in (traffic.send_single, traffic.send_ordered, traffic.send_submitted, traffic.send_batches):
        senders.begin(send)
    for send in (traffic.send_poison, traffic.send_delayed, traffic.send_transactions, churn.visit):
        senders.begin(send)
    push, pull = (next(one for one in run.ledger.readers if one.name == name) for name in ("push", "pull"))
    senders.begin(churn.change_topics)
    senders.begin(churn.change_members, push, pull)
    senders.begin(churn.change_guests)
    senders.begin(churn.keep_schedules)
    senders.begin(churn.look_up, 2.0)
    senders.begin(churn.ask, 10.0)


def write_report(run: ClientRun, admin: rocketpy.Admin, *, is_last: bool) -> None:
    """One line for the parent process."""
    report: dict[str, object] = {
        "sent": sum(stream.sent for stream in run.ledger.streams.values()),
        "missing": run.ledger.missing(),
        "events": dict(sorted(run.ledger.events.items())),
        "failures": len(run.ledger.failures),
        "blocks": sys.getallocatedblocks(),
    }
    try:
        report |= {"topics": len(admin.topics()), "groups": len(admin.groups())}
    except RocketPyError as error:
        run.ledger.happened(f"report: {type(error).__name__}")
    if is_last:
        report |= {
            "is_last": True,
            "counts": [asdict(count) for count in run.ledger.counts()],
            "findings": run.ledger.findings(),
        }
    print(json.dumps(report), flush=True)


def wait_for_arrivals(run: ClientRun) -> None:
    """Waits until every acknowledged message has arrived, or nothing arrives any more."""
    missing, changed = run.ledger.missing(), time.monotonic()
    while missing and time.monotonic() - changed < STALLED_SECONDS:
        time.sleep(1)
        now = run.ledger.missing()
        if now != missing:
            missing, changed = now, time.monotonic()


def main() -> None:
    name_server, folder, seconds = sys.argv[1:]
    logging.basicConfig(level=logging.ERROR)  # handlers fail on purpose
    logging.getLogger("rocketpy").setLevel(logging.CRITICAL)
    run = ClientRun(name_server, Path(folder), float(seconds))
    stopped = threading.Event()

    def wait_for_parent() -> None:
        sys.stdin.read()  # also when the parent was killed
        stopped.set()

    threading.Thread(target=wait_for_parent, daemon=True).start()
    senders, readers = Workers(run), Workers(run)
    with rocketpy.Admin(name_servers=name_server, **traffic.PATIENCE) as admin, ExitStack() as members:
        for topic in traffic.TOPICS:
            admin.create_topic(topic, queues=8)
        try:
            begin_reading(run, readers, members)
            begin_sending(run, senders)
            while not stopped.wait(REPORT_SECONDS):
                write_report(run, admin, is_last=False)
            run.end_sending()
            senders.join()
            wait_for_arrivals(run)
            write_report(run, admin, is_last=True)
        finally:
            run.end_reading()
            readers.join()


if __name__ == "__main__":
    main()
