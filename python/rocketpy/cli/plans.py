"""Dry runs of commands whose calls have none: what would change, with the same refusals."""

from collections.abc import Mapping
from typing import Any

from rocketpy import Admin, GroupNotFoundError, Message, RocketPyError, SettingChange
from rocketpy.admin.calls import ACTIVE_HINT, CLONE_HINT
from rocketpy.admin.cluster import MASTER_ID, TopicBroker, TopicInfo
from rocketpy.admin.topic_change import TopicChange
from rocketpy.base.names import RETRY_PREFIX, is_system_topic
from rocketpy.cli.masters import masters
from rocketpy.commandline.exits import CommandError, ExitCode

SYSTEM_HINT = "choose another name: topics of the system belong to the brokers"
ROLE_HINT = "`rocketpy ha status` shows the roles"


def topic_changes(
    admin: Admin,
    topic: str,
    queues: int | None,
    known: TopicInfo | None,
    *,
    broker: str | None,
    attributes: Mapping[str, str | None],
    force: bool,
) -> list[SettingChange]:
    """Returns what `topic create` would change, by broker. A broker checks the values of attributes when it gets them.

    Args:
        admin: Client.
        topic: Name of the topic.
        queues: Number of queues; None for that of the topic, or the default.
        known: The topic as it is; None for a new one.
        broker: Name of the only broker to change; None for all.
        attributes: Attributes to set; the value None removes one.
        force: Whether queues with messages may be removed.

    Raises:
        InvalidArgumentError: The name is invalid, or the removed queues hold messages.
        CommandError: The topic belongs to the system.
    """
    Message(topic, b" ")  # checks the name
    if is_system_topic(topic):
        text = f"a system topic cannot be created, changed or deleted: {topic}"
        raise CommandError(text, ExitCode.USAGE, SYSTEM_HINT)
    change = TopicChange(topic, queues, broker=broker, attributes=attributes, force=force)
    held = sum(admin.next_offset(one.queue) - one.min_offset for one in change.dropped(known))
    now = {one.broker_name: one for one in (known.brokers if known else ())}
    found: list[SettingChange] = []
    for _, read, write, _, _, place, _ in change.calls(known, held):
        for name, _ in masters(admin, place):
            found += broker_changes(name, now.get(name), {"read_queues": read, "write_queues": write}, attributes)
    return found


def broker_changes(
    name: str, now: TopicBroker | None, numbers: Mapping[str, int], attributes: Mapping[str, str | None]
) -> list[SettingChange]:
    """Returns the settings of a topic that would differ at one broker."""
    known = now.attributes if now else {}
    rows = [SettingChange(name, key, getattr(now, key, None), value) for key, value in numbers.items()]
    rows += [SettingChange(name, key, known.get(key), value) for key, value in attributes.items()]
    return [row for row in rows if row.before != row.after]


def group_places(admin: Admin, group: str) -> list[dict[str, Any]]:
    """Returns a row for each master: whether `group create` would create the group there."""
    try:
        there = {one.broker_name for one in admin.group_settings(group)}
    except GroupNotFoundError:
        there = set[str]()
    return [
        {"broker_name": name, "group": group, "state": "exists already" if name in there else "would create"}
        for name, _ in masters(admin)
    ]


def check_stopped(admin: Admin, group: str, hint: str = ACTIVE_HINT) -> None:
    """Refuses a group with live members, as brokers do.

    Raises:
        CommandError: The group has live members.
    """
    if members := len(admin.group_members(group)):
        raise CommandError(f"the group has {members} live members: {group}", ExitCode.CONFLICT, hint)


def cloned_topics(admin: Admin, source: str, target: str, topic: str | None, *, force: bool) -> list[str]:
    """Returns the topics whose offsets `group clone` would copy.

    Raises:
        GroupNotFoundError: A group does not exist.
        CommandError: The target has live members.
    """
    rows = admin.group_lag(source, topic)
    admin.describe_group(target)  # raises the error for an unknown group
    if not force:
        check_stopped(admin, target, CLONE_HINT)
    found = {row.queue.topic for row in rows if row.committed_offset is not None}
    return sorted(found - {RETRY_PREFIX + source})


def role_change(admin: Admin, address: str, *, to_master: bool, force: bool) -> dict[str, Any]:
    """Returns what `ha promote` or `ha demote` would change. The broker checks more when its role changes.

    Raises:
        CommandError: The broker has the role already, or another master answers.
    """
    now = admin.ha_status(address)
    role = {True: "master", False: "slave"}
    if now.is_master is to_master:
        raise CommandError(f"{address} is a {role[to_master]} already", ExitCode.REFUSED, ROLE_HINT)
    if to_master and not force and (master := answering_master(admin, address)):
        hint = f"{ROLE_HINT}; demote or stop a master before another one is promoted. --force skips this check"
        raise CommandError(f"the master at {master} answers", ExitCode.REFUSED, hint)
    return {"broker": address, "before": role[now.is_master], "after": role[to_master], "state": "would change"}


def answering_master(admin: Admin, address: str) -> str | None:
    """Returns the address of the master of a slave's broker name, if it answers as a master."""
    known = [one.addresses for one in admin.brokers() if address in one.addresses.values()]
    master = known[0].get(MASTER_ID) if known else None
    if master is None or master == address:
        return None
    try:
        return master if admin.ha_status(master).is_master else None
    except RocketPyError:
        return None
