"""`rocketpy group`: list, create, delete, describe, show, producers, lag, reset, clone, update."""

import shlex
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from rocketpy import Admin, ConsumerRunningInfo, GroupBroker, GroupMember, GroupNotFoundError, MessageQueue, QueueLag
from rocketpy.base.names import RETRY_PREFIX, is_system_topic
from rocketpy.base.text import printable
from rocketpy.cli.change_output import show_changes
from rocketpy.cli.missing import check_missing, together
from rocketpy.cli.narrow import by_topic, narrowed
from rocketpy.cli.options import FIGURES, LOCAL, WAITING, Broker, DryRun, Json, NameServer, Yes, confirm, start_of
from rocketpy.cli.plans import check_stopped, cloned_topics, group_places
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.errors import UNKNOWN

Name = Annotated[str, typer.Argument(metavar="GROUP")]
LIST = "`rocketpy group list` shows the groups"
HINT = "the first consumer or `rocketpy group create {}` creates the group; `rocketpy group list` shows the groups"


def list_groups(name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """List the consumer groups of a cluster."""
    with Admin(name_servers=name_server, **FIGURES) as admin:
        groups = admin.groups(partial=True)
    rows = [{"group": one.name, "members": list(one.members)} for one in groups]
    output.show(rows, as_json=as_json, empty=f"no groups at {name_server}")
    check_missing(groups.missing, "groups")


def create(group: Name, dry_run: DryRun = False, name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """Create a group, so that `group reset` can set its start. An existing group is not changed."""
    with Admin(name_servers=name_server, **WAITING) as admin:
        if dry_run:
            output.show(group_places(admin, group), as_json=as_json, empty="")
            return
        admin.create_group(group)
    output.show_one({"group": group}, as_json=as_json)


def delete(group: Name, yes: Yes = False, dry_run: DryRun = False, name_server: NameServer = LOCAL) -> None:
    """Delete a group with its stored offsets. Its members must be stopped."""
    with Admin(name_servers=name_server, **WAITING) as admin, existing(group, LIST):
        topics = {lag.queue.topic for lag in admin.group_lag(group)}
        offsets = f"its offsets in {output.counted(len(topics), 'topic')}"
        if dry_run:
            check_stopped(admin, group)
            print(f"would delete group {group} with {offsets}")
            return
        confirm(f"delete group {group} with {offsets}?", yes=yes)
        admin.delete_group(group)
    print(f"deleted group {group} with {offsets}")


def describe(
    group: Name,
    stacks: Annotated[bool, typer.Option("--stacks", help="Also print the stacks of the members' threads.")] = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Show the live members of a group with versions and subscriptions, which must be the same for all."""
    with Admin(name_servers=name_server, **FIGURES) as admin, existing(group):
        members, running, settings = together(
            lambda: admin.describe_group(group, partial=True),
            lambda: admin.running_members(group, jstack=stacks),
            lambda: [] if as_json else admin.group_settings(group, partial=True),
        )
    states: dict[str, ConsumerRunningInfo] = {one.client_id: one for one in running}
    rows = [member_row(member, states.get(member.client_id), as_json=as_json) for member in members]
    if as_json and stacks:
        rows = [row | {"jstack": (state := states.get(row["client_id"])) and state.jstack} for row in rows]
    output.show(
        rows,
        as_json=as_json,
        title=f"{group}: {output.counted(len(rows), 'member')}",
        empty=f"{group} has no members now at {name_server}",
        in_blocks=True,
    )
    if not as_json:
        for state in running:
            print_member(state, stacks=stacks)
        if any(member.differs for member in members):
            print("the members subscribe to different topics or tags: they share the queues, so each misses messages")
        for line in limits_of(settings):
            print(printable(line))
    check_missing(members.missing, f"members of {group}")


def show(group: Name, name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """Show the settings of a group at each broker, which `group update` changes."""
    with Admin(name_servers=name_server, **FIGURES) as admin, existing(group):
        found = admin.group_settings(group, partial=True)
    empty = f"settings of {group} are unknown at {name_server}"
    output.show(output.rows_of(found), as_json=as_json, title=group, empty=empty, in_blocks=True)
    check_missing(found.missing, f"settings of {group}")


def limits_of(settings: Iterable[GroupBroker]) -> list[str]:
    """Returns a line for each setting that keeps members of a group from reading, with the command that changes it."""
    wanted = {"enabled": ("is suspended", "--enable"), "broadcast": ("may not broadcast", "--broadcast")}
    found = {name: [one.broker_name for one in settings if not getattr(one, name)] for name in wanted}
    return [
        f"the group {text} at {', '.join(found[name])}: `rocketpy group update GROUP {flag}` changes this"
        for name, (text, flag) in wanted.items()
        if found[name]
    ]


def member_row(member: GroupMember, state: ConsumerRunningInfo | None, *, as_json: bool) -> dict[str, Any]:
    """Returns the row of a member. A table names the version of its client as the client does."""
    subscriptions = member.subscriptions
    if subscriptions is None and state is not None:  # Apache's brokers do not report them
        own = {topic: tags for topic, tags in state.subscriptions.items() if not topic.startswith(RETRY_PREFIX)}
        subscriptions = own or None
    client_version = state and state.client_version
    facts = {"client_id": member.client_id, "address": member.address, "language": member.language}
    if as_json:
        return {
            **facts,
            "subscriptions": subscriptions,
            "differs": member.differs,
            "version": member.version,
            "client_version": client_version,
        }
    wanted = subscriptions and "; ".join(f"{topic}: {tags}" for topic, tags in subscriptions.items())
    version = client_version or str(member.version)
    return {**facts, "version": version, "subscriptions": wanted, "differs": member.differs}


def print_member(state: ConsumerRunningInfo, *, stacks: bool) -> None:
    """Prints the error of a member that did not report its state, or its stacks."""
    if state.error is not None:
        print(printable(f"{state.client_id} does not report its version: {state.error}"))
    elif stacks:
        print(printable(f"\nstacks of {state.client_id}:"))
        for line in (state.jstack or "not reported by this client").splitlines():
            print(printable(line))


def producers(group: Name, name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """Show the live members of a producer group."""
    with Admin(name_servers=name_server, **FIGURES) as admin:
        found = admin.producer_connections(group, partial=True)
    rows = output.rows_of(found)
    title = f"{group}: {output.counted(len(rows), 'producer')}"
    output.show(
        rows, as_json=as_json, title=title, empty=f"no producer of group {group} is connected now at {name_server}"
    )
    check_missing(found.missing, f"producers of {group}")


def clone(
    source: Annotated[str, typer.Argument(metavar="FROM")],
    target: Annotated[str, typer.Argument(metavar="TO")],
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Copy even while TO has members, whose next commits replace the offsets.")
    ] = False,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Copy the stored offsets of group FROM to group TO. Both must exist. Stop the members of TO, or use --force."""
    with Admin(name_servers=name_server, **WAITING) as admin:
        if dry_run:
            topics = cloned_topics(admin, source, target, topic, force=force)
        else:
            topics = admin.clone_offsets(source, target, topic=topic, force=force)
    rows = [{"topic": name} for name in topics]
    output.show(
        rows,
        as_json=as_json,
        title=f"{target} {'would have' if dry_run else 'has'} the offsets of {source}",
        empty=f"{source} has no offsets at {name_server} yet",
    )


@contextmanager
def existing(group: str, hint: str | None = None) -> Generator[None, None, None]:
    """Adds a hint to the error for a missing group; by default, how to create the group."""
    try:
        yield
    except GroupNotFoundError as error:
        hint = hint or HINT.format(shlex.quote(group))
        raise CommandError(f"no such group: {group}", ExitCode.NOT_FOUND, hint) from error


def lag(
    group: Name,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
    queues: Annotated[bool, typer.Option("--queues", help="List queues instead of topics.")] = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Show the lag of a group by topic, and the messages that its members process or that wait for their retry."""
    with Admin(name_servers=name_server, **FIGURES) as admin, existing(group):
        members, rows, retries = together(
            lambda: len(admin.describe_group(group, partial=True)),
            lambda: admin.group_lag(group, topic, partial=True),
            lambda: "" if as_json or topic is not None else retry_text(admin, group),
        )
    behind, held = sum(row.lag for row in rows), sum(row.held for row in rows)
    title = f"{group}: {output.counted(behind, 'message')} not committed, {output.counted(members, 'live member')}"
    shown = [queue_row(row) for row in rows] if queues else topic_rows(rows)
    narrow = by_topic(shown, *NARROW_QUEUES) if queues else {"": narrow_topics(shown)}
    empty = f"{group} has no offsets at {name_server} yet"
    output.show(shown, as_json=as_json, title=title, empty=empty, in_blocks=True, narrow=narrow)
    if not as_json:
        if held:
            print(f"{output.counted(held, 'message')} of these: fetched by live members and not yet committed (held)")
        print(retries, end="")
        if behind and not members:
            print("the next member continues at the stored commits; a killed server may lose those of its last 5 s")
    check_missing(rows.missing, f"lag of {group}")


def retry_text(admin: Admin, group: str) -> str:
    """Returns the line about messages that wait for their retry, or an empty text."""
    try:
        retries = admin.waiting_retries(group)
    except UNKNOWN as error:
        return printable(f"messages that wait for their retry are unknown: {error}") + "\n"
    if not retries.messages:
        cause = "a broker does not answer" if retries.missing else "too many delayed messages"
        unknown = f"the number of failed messages that wait for their retry is unknown: {cause}\n"
        return "" if retries.is_complete else unknown
    least = "" if retries.is_complete else "at least "
    first = f", the first at {output.cell(retries.next_at)}" if retries.next_at and retries.is_complete else ""
    wait = "waits for its" if retries.messages == 1 else "wait for their"
    return f"{least}{output.counted(retries.messages, 'failed message')} {wait} retry{first}\n"


def queue_row(row: QueueLag) -> dict[str, Any]:
    """Returns the table row of a queue."""
    return {
        "topic": row.queue.topic,
        "broker_name": row.queue.broker_name,
        "queue_id": row.queue.queue_id,
        "committed_offset": row.committed_offset,
        "max_offset": row.max_offset,
        "lag": row.lag,
        "held": row.held,
        "last_consumed_at": row.last_consumed_at,
    }


NARROW_QUEUES = ("broker_name", "queue_id", "committed_offset", "lag", "held", "last_consumed_at")
"""Columns of queues at 80 columns: the maximum offset is the sum of the commit and the lag."""


def narrow_topics(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns rows that fit 80 columns: without times if some queues have no commit."""
    is_new = any(row["never_committed"] for row in rows)
    rest = ("never_committed", "lag", "held") if is_new else ("lag", "held", "last_consumed_at")
    return narrowed(rows, "topic", "queues", *rest)


def topic_rows(rows: list[QueueLag]) -> list[dict[str, Any]]:
    """Returns one row per topic, with the sums of its queues."""
    by_topic: dict[str, list[QueueLag]] = {}
    for row in rows:
        by_topic.setdefault(row.queue.topic, []).append(row)
    return [
        {
            "topic": topic,
            "queues": len(of_topic),
            "never_committed": sum(row.committed_offset is None for row in of_topic),
            "lag": sum(row.lag for row in of_topic),
            "held": sum(row.held for row in of_topic),
            "last_consumed_at": max((row.last_consumed_at for row in of_topic if row.last_consumed_at), default=None),
        }
        for topic, of_topic in by_topic.items()
    ]


def reset(
    group: Name,
    topic: Annotated[str, typer.Option("--topic", help="Topic whose offsets are set.")],
    to: Annotated[str, typer.Option("--to", metavar="WHERE", help="earliest, latest, a time, or -10m.")],
    force: Annotated[
        bool, typer.Option("--force", help="Reset even while the group has members; they move too.")
    ] = False,
    new_topic: Annotated[
        bool, typer.Option("--new-topic", help="Reset even if the group does not consume this topic yet.")
    ] = False,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Set the offsets of a group. Members must be stopped, unless forced."""
    target = start_of(to, "--to")
    with Admin(name_servers=name_server, **WAITING) as admin, existing(group):
        if not new_topic:
            check_consumes(admin, group, topic)
        if dry_run:
            rows = [
                place_of(one.queue) | {"before": one.before, "offset": one.after, "state": "would change"}
                for one in admin.plan_reset(group, topic, target, force=force)
            ]
        else:
            offsets = admin.reset_offsets(group, topic, target, force=force)
            rows = [place_of(queue) | {"offset": offset} for queue, offset in offsets.items()]
    empty = f"topic {topic} has no queues at {name_server}"
    output.show(rows, as_json=as_json, title=f"{group} on {topic}", empty=empty)


def place_of(queue: MessageQueue) -> dict[str, Any]:
    """Returns the first columns of a queue."""
    return {"broker_name": queue.broker_name, "queue_id": queue.queue_id}


def check_consumes(admin: Admin, group: str, topic: str) -> None:
    """Rejects a topic that the group does not consume: it may be mistyped. A new group may begin with any topic.

    Raises:
        CommandError: The group consumes other topics only.
    """
    consumed = {lag.queue.topic for lag in admin.group_lag(group)}
    consumed.update(*(member.subscriptions or {} for member in admin.describe_group(group)))
    own = sorted(one for one in consumed if not is_system_topic(one))
    if own and topic not in consumed:
        raise CommandError(
            f"{group} does not consume {topic}; it consumes: {', '.join(own)}",
            ExitCode.NOT_FOUND,
            "use one of these, or add --new-topic to set where the group begins in this topic",
        )


def update(
    group: Name,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--suspend", help="Whether the group may read; its offsets stay.")
    ] = None,
    broadcast: Annotated[
        bool | None, typer.Option("--broadcast/--no-broadcast", help="Whether members may broadcast.")
    ] = None,
    retries: Annotated[
        int | None, typer.Option("--retries", min=-1, help="Retries before a message becomes a dead letter.")
    ] = None,
    retry_queues: Annotated[
        int | None, typer.Option("--retry-queues", min=0, help="Queues of the retry topic; 0 drops failed messages.")
    ] = None,
    notify: Annotated[
        bool | None, typer.Option("--notify/--no-notify", help="Whether members learn at once that one joined or left.")
    ] = None,
    broker: Broker = None,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Change settings of a group at each of its brokers. Clients see them with their next request."""
    given = {
        "enabled": enabled,
        "broadcast": broadcast,
        "retries": retries,
        "retry_queues": retry_queues,
        "notify_members": notify,
    }
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not settings:
        raise CommandError("no setting is given", ExitCode.USAGE, "for example --retries 3; --help lists the settings")
    with Admin(name_servers=name_server, **WAITING) as admin, existing(group):
        changes = admin.update_group(group, broker=broker, dry_run=dry_run, **settings)
    show_changes(changes, f"group {group}", dry_run=dry_run, as_json=as_json)
