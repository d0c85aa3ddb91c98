"""`rocketpy topic`: list, create, delete, describe."""

import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from rocketpy import Admin, TopicStatus
from rocketpy.admin.cluster import TopicBroker, TopicInfo, message_count
from rocketpy.admin.topic_change import DEFAULT_QUEUES
from rocketpy.base.hints import set_hint
from rocketpy.base.names import application_topics, is_system_topic, name_server_list
from rocketpy.base.text import printable
from rocketpy.base.topic_names import TopicNames
from rocketpy.cli.change_output import show_changes
from rocketpy.cli.masters import masters
from rocketpy.cli.missing import check_missing, notice
from rocketpy.cli.narrow import narrowed
from rocketpy.cli.options import FIGURES, LOCAL, WAITING, Broker, DryRun, Json, NameServer, Yes, confirm
from rocketpy.cli.plans import topic_changes
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.errors import UNKNOWN, TopicNotFoundError
from rocketpy.schedule.journal import TOPIC as SCHEDULES

Name = Annotated[str, typer.Argument(metavar="TOPIC")]
ONE_ORDER = "write --queues 1: schedulers need one order of records; one process fires, the others stand by"
MAX_QUEUES = 16_384
"""Limit of the broker."""


def list_topics(
    everything: Annotated[bool, typer.Option("--all", help="Include system, retry and dead-letter topics.")] = False,
    names_only: Annotated[
        bool,
        typer.Option("--names", help="Only the names, which the name server knows; requests nothing from brokers."),
    ] = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """List the topics of a cluster: stored messages, messages per second over the last minute, and groups."""
    with Admin(name_servers=name_server, **WAITING) as admin:
        names = admin.topics() if everything else application_topics(admin.topics(), admin.brokers())
    rows = [{"topic": name} for name in names] if names_only else figures_of(names, name_server)
    if not as_json:
        rows = [{TABLE_NAMES.get(name, name): value for name, value in row.items()} for row in rows]
    kind = "topics" if everything else "topics of applications"
    hint = "" if everything else "; --all shows system topics"
    output.show(rows, as_json=as_json, empty=f"no {kind} at {name_server}{hint}")


TABLE_NAMES = {"messages_per_second": "in/s"}
"""Short names of columns."""


def figures_of(names: list[str], name_server: str) -> list[dict[str, Any]]:
    """Returns a row for each topic. Figures are None if a broker does not answer; a notice names it."""
    known: dict[str, TopicStatus | None] = dict.fromkeys(names)
    try:
        with Admin(name_servers=name_server, **FIGURES) as admin:
            found = admin.topic_status(names)
        known |= {one.name: one for one in found}
        notice(found.missing, "messages and groups")
    except UNKNOWN as error:
        print(printable(f"messages and groups are unknown: {error}"), file=sys.stderr)
    for problem, topics in unknown_figures(known.values()).items():
        count = output.counted(len(topics), "topic")
        print(printable(f"figures of {count} are unknown, such as {topics[0]}: {problem}"), file=sys.stderr)
    return [
        {
            "topic": name,
            "messages": found and found.messages,
            "messages_per_second": found and found.per_second,
            "groups": found and found.groups and list(found.groups),
        }
        for name, found in known.items()
    ]


def unknown_figures(topics: Iterable[TopicStatus | None]) -> dict[str, list[str]]:
    """Returns the names of topics with unknown figures, by the reason."""
    found: dict[str, list[str]] = {}
    for one in topics:
        if one is not None and one.error is not None:
            found.setdefault(one.error, []).append(one.name)
    return found


def create(
    topic: Name,
    queues: Annotated[
        int | None,
        typer.Option(
            "--queues",
            min=1,
            max=MAX_QUEUES,
            help=f"Number of read and write queues at each broker; {DEFAULT_QUEUES} in a new topic.",
        ),
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            "--attribute",
            metavar="NAME=VALUE",
            help="Set an attribute, such as retention.hours=24; NAME= removes it. May be repeated.",
        ),
    ] = None,
    broker: Broker = None,
    force: Annotated[bool, typer.Option("--force", help="Remove queues even if they hold messages.")] = False,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Create a topic, or change its queues or attributes. Other settings stay unchanged."""
    attributes = pairs(attribute or [])
    with Admin(name_servers=name_server, **WAITING) as admin:
        if broker is not None:
            [(broker, _)] = masters(admin, broker)
        known = None if is_system_topic(topic) else find(admin, topic)
        if topic == SCHEDULES and queues != 1 and (queues or known is None):
            raise CommandError(f"topic {SCHEDULES} must have one queue", ExitCode.USAGE, ONE_ORDER)
        if dry_run:
            changes = topic_changes(admin, topic, queues, known, broker=broker, attributes=attributes, force=force)
            show_changes(changes, f"topic {topic}", dry_run=True, as_json=as_json)
            return
        if known is not None and queues is None and broker is None and not attributes:
            print(f"{topic} exists already and is not changed; --queues changes its queues", file=sys.stderr)
        else:
            admin.create_topic(topic, queues, broker=broker, attributes=attributes, force=force)
        there = [one.read_queues for one in known.brokers if broker in (None, one.broker_name)] if known else []
        now = max(there, default=DEFAULT_QUEUES)
    output.show_one({"topic": topic, "queues": queues or now}, as_json=as_json)


def pairs(texts: list[str]) -> dict[str, str | None]:
    """Splits `NAME=VALUE`. Without a value, the attribute is removed."""
    split = [text.partition("=") for text in texts]
    for text, (name, equals, _) in zip(texts, split, strict=True):
        if not name or not equals:
            raise CommandError(
                f"expected NAME=VALUE: {text}", ExitCode.USAGE, "for example --attribute retention.hours=24"
            )
    return {name: value or None for name, _, value in split}


def find(admin: Admin, topic: str) -> TopicInfo | None:
    """Returns a topic, or None if it does not exist."""
    try:
        known = admin.describe_topic(topic)
    except TopicNotFoundError:
        return None
    return known if known.brokers else None


@contextmanager
def existing(
    topic: str, name_server: str, hint: str | None = "`rocketpy topic list` shows the topics"
) -> Generator[None, None, None]:
    """Adds a hint to the error for a missing topic: another name, if one is similar, then the given hint.

    Args:
        topic: The topic.
        name_server: Name servers of the cluster.
        hint: Hint; None for that of the error.
    """
    try:
        yield
    except TopicNotFoundError as error:
        set_hint(error, hint or error.hint or "")
        TopicNames(name_server_list(name_server), {}).explain(error, [topic])
        raise CommandError(str(error), ExitCode.NOT_FOUND, error.hint) from error


def delete(topic: Name, yes: Yes = False, dry_run: DryRun = False, name_server: NameServer = LOCAL) -> None:
    """Delete a topic. Its messages stay in the log, but cannot be consumed.

    Its delayed messages, timers and open transactions are dropped.
    """
    with Admin(name_servers=name_server, **WAITING) as admin, existing(topic, name_server):
        queues = admin.describe_topic(topic).queues
        messages = output.counted(message_count(queues), "message")
        if dry_run:
            print(f"would delete topic {topic} with {messages}")
            return
        waiting = "delayed messages, timers and open transactions"
        confirm(f"delete topic {topic} with {messages}? Its {waiting} will be dropped.", yes=yes)
        admin.delete_topic(topic)
    print(f"deleted topic {topic} with {messages}")


def narrow_queues(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns rows that fit 80 columns: both permissions in one column, no difference of the offsets."""
    perms = [{"perm": "r" * bool(row["readable"]) + "w" * bool(row["writable"]) or "-"} | row for row in rows]
    return narrowed(perms, "broker_name", "queue_id", "perm", "min_offset", "max_offset", "last_stored_at")


def describe(topic: Name, name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """Show a topic: its attributes, and the broker, permissions and offsets of each queue."""
    with Admin(name_servers=name_server, **WAITING) as admin, existing(topic, name_server):
        described = admin.describe_topic(topic, partial=True)
    attributes = {broker.broker_name: broker.attributes for broker in described.brokers}
    brokers: dict[str, TopicBroker | None] = {broker.broker_name: broker for broker in described.brokers}
    rows: list[dict[str, Any]] = [
        {
            "broker_name": one.queue.broker_name,
            "queue_id": one.queue.queue_id,
            # A broker may report a queue that its route lacks.
            "readable": (broker := brokers.get(one.queue.broker_name)) and broker.readable,
            "writable": broker and broker.writable,
            "min_offset": one.min_offset,
            "max_offset": one.max_offset,
            "messages": one.max_offset - one.min_offset,
            "last_stored_at": one.last_stored_at,
        }
        for one in described.queues
    ]
    if not rows:
        raise CommandError(
            f"topic has no queue at the brokers of its route: {topic}",
            ExitCode.NOT_FOUND,
            "`rocketpy cluster list` shows the brokers; a broker may have left, or its clients may lack permissions",
        )
    if as_json:
        for row in rows:
            row["attributes"] = attributes.get(row["broker_name"], {})
    else:
        for broker_name, named in attributes.items():
            for name, value in named.items():
                print(printable(f"{broker_name}: {name}={value}"))
    empty = f"topic {topic} has no queues at {name_server}"
    output.show(rows, as_json=as_json, title=topic, empty=empty, in_blocks=True, narrow={"": narrow_queues(rows)})
    check_missing(described.missing, f"queues of {topic}")
