"""Comings and goings of an endurance run: members, topics, groups, producers, schedules; and questions.

All comings are at the begin of a minute, and all goings within 20 s: most samples see the same clients.
"""

import itertools
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import rocketpy
from endurance_ledger import Reader, parsed
from endurance_traffic import (
    DELAYED,
    PATIENCE,
    RATES,
    SENDS,
    STEADY,
    TICKS,
    Run,
    message,
    poll,
    push_member,
)
from rocketpy import Message, RocketPyError, schedule
from rocketpy.admin.dead_letters import DeadLetter

CHURN_MESSAGES = 100
STAY_SECONDS = 20.0
PATIENCE_SECONDS = 120.0
QUERY_AGE_SECONDS = (5.0, 45.0)
"""Age of messages that are looked up by key: dispatched for certain, and not removed by retention."""


def visit(run: Run) -> None:
    """Producers of groups of their own that connect, send four messages and disconnect."""
    stream, each = run.ledger.streams["visitors"], 4
    for visitor in itertools.count():
        if not run.is_sending(each / RATES["visitors"]):
            return
        try:
            with rocketpy.Producer(f"visitors-{visitor}", name_servers=run.name_server, **SENDS) as producer:
                for number in [stream.next() for _ in range(each)]:
                    producer.send(message(STEADY, stream, number))
                    stream.acknowledge(number)
        except RocketPyError as error:
            run.ledger.happened(f"visitors: {type(error).__name__}")


def change_topics(run: Run) -> None:
    """Creates a topic and a group, uses them, and deletes them."""
    for turn in itertools.count():
        if not run.is_minute_over():
            return
        topic, group = f"season-{turn}", f"season-readers-{turn}"
        try:
            with rocketpy.Admin(name_servers=run.name_server, **PATIENCE) as admin:
                admin.create_topic(topic, queues=4)
                use_topic(run, topic, group)
                admin.delete_group(group)
                admin.delete_topic(topic)
            run.ledger.happened("topics and groups created and deleted")
        except RocketPyError as error:
            run.ledger.happened(f"topics: {type(error).__name__}")


def use_topic(run: Run, topic: str, group: str) -> None:
    """Each message fails once at its first handler, and so passes the retry topic of the group."""
    seen: set[bytes] = set()
    done = threading.Event()
    consumer = rocketpy.PushConsumer(group, name_servers=run.name_server, **PATIENCE)

    @consumer.on(topic)
    def handle(received: rocketpy.ReceivedMessage) -> None:
        if received.reconsume_times == 0 and received.tag == "first":
            raise ValueError("first attempt")
        seen.add(received.body)
        if len(seen) == CHURN_MESSAGES:
            done.set()

    with consumer, rocketpy.Producer("season", name_servers=run.name_server, **SENDS) as producer:
        messages = [
            Message(topic, f"{number}".encode(), tag="first" if number < 5 else "other")
            for number in range(CHURN_MESSAGES)
        ]
        producer.send_many(messages)
        if not done.wait(PATIENCE_SECONDS):
            run.ledger.fail(f"{group} received {len(seen)} of {CHURN_MESSAGES} messages of {topic}")


def change_members(run: Run, push: Reader, pull: Reader) -> None:
    """A member of each group joins and leaves."""
    while run.is_minute_over():
        try:
            with push_member(run, "push", push, STEADY):
                poll(run, "pull", pull, STEADY, seconds=STAY_SECONDS)
            run.ledger.happened("members that joined and left")
        except RocketPyError as error:
            run.ledger.happened(f"members: {type(error).__name__}")


def change_guests(run: Run) -> None:
    """Member of the broadcasting group with an offset file of its own, which begins at the end and leaves."""
    for guest in itertools.count():
        if not run.is_minute_over():
            return
        seen = threading.Event()
        with tempfile.TemporaryDirectory(dir=run.folder) as offsets:
            member = rocketpy.PushConsumer(
                "broadcast",
                name_servers=run.name_server,
                broadcast=True,
                instance_name=f"guest-{guest}",
                offsets_folder=Path(offsets),
                start="latest",
                **PATIENCE,
            )
            member.on(STEADY)(lambda received, seen=seen: seen.set())
            try:
                with member:
                    run.is_sending(STAY_SECONDS)
                run.ledger.happened("broadcast guests" if seen.is_set() else "broadcast guests without a message")
            except RocketPyError as error:
                run.ledger.happened(f"guests: {type(error).__name__}")


def keep_schedules(run: Run) -> None:
    """A scheduler with one schedule that stays, and one that is replaced."""
    address = run.name_server
    schedule.add("tick", every=1, topic=TICKS, body=b"tick", name_servers=address)
    with schedule.Scheduler(address, **PATIENCE):
        for turn in itertools.count():
            name = f"season-tick-{turn}"
            try:
                schedule.add(name, every=5, topic=TICKS, body=b"tock", name_servers=address)
                run.is_minute_over()
                schedule.remove(name, name_servers=address)
            except RocketPyError as error:
                run.ledger.happened(f"schedules: {type(error).__name__}")
            if not run.is_sending(0):
                schedule.remove("tick", name_servers=address)
                return


def look_up(run: Run, per_second: float) -> None:
    """Looks up acknowledged messages by their keys."""
    with rocketpy.Admin(name_servers=run.name_server, **PATIENCE) as admin:
        while run.is_sending(1 / per_second):
            youngest, oldest = (time.time() - age for age in QUERY_AGE_SECONDS)
            while run.recent and run.recent[0][0] < oldest:
                run.recent.popleft()
            if not run.recent or run.recent[0][0] > youngest:
                continue
            at, number = run.recent.popleft()
            try:
                found = admin.query_messages(STEADY, f"single-{number}", begin=at - 60)
                if not any(bytes(one.body).startswith(f"single:{number}:".encode()) for one in found):
                    run.ledger.fail(f"no message has the key single-{number}, {time.time() - at:.0f} s after its send")
                run.ledger.happened("look-ups by key")
            except RocketPyError as error:
                run.ledger.happened(f"look-ups: {type(error).__name__}")


def ask(run: Run, every: float) -> None:
    """Asks for the state of the cluster, by an administration client that is replaced each minute."""
    while True:
        with rocketpy.Admin(name_servers=run.name_server, **PATIENCE) as admin:
            until = time.monotonic() + 60
            while time.monotonic() < until:
                if not run.is_sending(every):
                    return
                for question in questions(admin):
                    try:
                        question()
                    except RocketPyError as error:
                        run.ledger.happened(f"questions: {type(error).__name__}")
                run.ledger.happened("rounds of questions")


def questions(admin: rocketpy.Admin) -> list[Callable[[], object]]:
    return [
        admin.status,
        admin.topic_status,
        admin.group_status,
        lambda: admin.describe_group("push"),
        lambda: admin.group_lag("pull"),
        lambda: admin.producer_connections("singles"),
        lambda: [admin.ping(address) for broker in admin.brokers() for address in broker.addresses.values()],
        lambda: [admin.search_offset(queue, time.time() - 30) for queue in admin.queues(DELAYED)],
    ]


def read_dead_letters(run: Run, dead: Reader, every: float) -> None:
    """Reads the dead letters of the push group again and again: repeats are no deliveries."""
    poison = run.ledger.streams["poison"]
    with rocketpy.Admin(name_servers=run.name_server, **PATIENCE) as admin:
        while run.is_reading():
            time.sleep(every)
            try:
                for letter in admin.dead_letters("push"):
                    note_dead(dead, letter, poison.name)
            except RocketPyError as error:
                run.ledger.happened(f"dead letters: {type(error).__name__}")


def note_dead(dead: Reader, letter: DeadLetter, poison: str) -> None:
    stream, number = parsed(letter.message)
    if stream == poison:
        dead.counts[poison][number] = 1
    else:
        dead.strangers += 1
