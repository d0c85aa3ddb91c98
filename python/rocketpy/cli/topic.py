"""`rocketpy topic`: list, create, delete, describe."""

from typing import Annotated

import typer

from rocketpy import Admin
from rocketpy.cli import output
from rocketpy.cli.options import LOCAL, Json, NameServer

Name = Annotated[str, typer.Argument(metavar="TOPIC")]
SYSTEM_PREFIXES = ("%RETRY%", "%DLQ%", "rmq_sys_", "RMQ_SYS_")
SYSTEM_NAMES = {"TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest"}


def is_system(topic: str) -> bool:
    """Whether a topic belongs to the machinery rather than to an application."""
    return topic in SYSTEM_NAMES or topic.startswith(SYSTEM_PREFIXES)


def list_topics(
    everything: Annotated[bool, typer.Option("--all", help="System, retry and dead-letter topics too.")] = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """List the topics of a cluster."""
    with Admin(name_servers=name_server) as admin:
        own = {name for broker in admin.brokers() for name in (broker.broker_name, broker.cluster)}
        own |= {f"{name}_REPLY_TOPIC" for name in own}
        names = [name for name in admin.topics() if everything or not (is_system(name) or name in own)]
    output.show(
        [{"topic": name} for name in names], as_json=as_json, empty="no topics; --all shows those of the system"
    )


def create(
    topic: Name,
    queues: Annotated[int, typer.Option("--queues", min=1, help="Queues to read and to write, at each broker.")] = 8,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Create a topic, or change the number of its queues."""
    with Admin(name_servers=name_server) as admin:
        admin.create_topic(topic, queues=queues)
    output.show_one({"topic": topic, "queues": queues}, as_json=as_json)


def delete(topic: Name, name_server: NameServer = LOCAL) -> None:
    """Delete a topic. Its messages stay in the log, out of reach."""
    with Admin(name_servers=name_server) as admin:
        admin.delete_topic(topic)


def describe(topic: Name, name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """Show the queues of a topic: where they are and what they hold."""
    with Admin(name_servers=name_server) as admin:
        described = admin.describe_topic(topic)
    rows = [
        {
            "broker_name": one.queue.broker_name,
            "queue_id": one.queue.queue_id,
            "min_offset": one.min_offset,
            "max_offset": one.max_offset,
            "messages": one.max_offset - one.min_offset,
            "last_stored_at": one.last_stored_at,
        }
        for one in described.queues
    ]
    output.show(rows, as_json=as_json, title=topic)
