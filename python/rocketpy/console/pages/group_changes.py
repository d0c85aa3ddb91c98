"""Changes of groups: create, settings, copy of offsets, delete. Each has a preview, and reads its result back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from rocketpy.admin.changes import GROUP_KEYS, GROUP_LIMITS
from rocketpy.base.names import RETRY_PREFIX
from rocketpy.console.commands import command_line
from rocketpy.console.names import shown
from rocketpy.console.pages.groups import frame, known
from rocketpy.console.view import FormError
from rocketpy.errors import GroupConflictError, GroupNotFoundError, InvalidArgumentError, RocketPyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.responses import Response

    from rocketpy import SettingChange
    from rocketpy.admin.cluster import GroupBroker
    from rocketpy.console.view import View

__all__ = ["clone", "config", "create", "delete"]

LABELS = {
    "enabled": ("May read", "off suspends the group; its offsets stay"),
    "broadcast": ("May broadcast", "each member reads all messages"),
    "retries": ("Retries", "before a message becomes a dead letter; -1: as the client says"),
    "retry_queues": ("Retry queues", "of a new retry topic; 0 drops failed messages"),
    "notify_members": ("Notify members", "at once when one joins or leaves"),
    "ordered": ("Reads in order", "a label; brokers of RocketPy only store it"),
    "timeout_minutes": ("Minutes for one message", "brokers of RocketPy only store it"),
}
"""Label and explanation of each setting."""
FLAGS = {
    "enabled": ("enable", "suspend"),
    "broadcast": ("broadcast", "no-broadcast"),
    "notify_members": ("notify", "no-notify"),
}
"""Options of the command line for a setting that is true or false."""
MAX_NAME = 255


def command_of(view: View, words: list[str], names: list[str], **options: str | bool) -> str:
    """The equivalent command line."""
    given = {name.replace("_", "-"): value for name, value in options.items()}
    return command_line(words, names, given, view.console.settings.name_servers)


async def create(view: View) -> Response:
    """Shows form and preview (GET), or creates a group (POST)."""
    fields = await view.form() if view.is_post else view.query
    name = fields.get("name", "").strip()[:MAX_NAME]
    if view.is_post:
        if not name:
            raise FormError("name of the group is not given")
        async with view.act("create group", name) as done:
            await view.admin.create_group(name)
            places = [one.broker_name for one in await view.admin.group_settings(name, partial=True)]
            done.result(f"at {', '.join(places)}", places)
        return view.back(view.url("groups", name), f"Group {shown(name, 80)} exists at {', '.join(places)}.")
    there, problem = await places_of(view, name) if name else ([], "")
    brokers = sorted({*(row.name for row in view.snapshot.masters), *there})
    rows = [] if problem else [(broker, broker in there) for broker in brokers]
    command = command_of(view, ["group", "create"], [name])
    if view.as_json:
        data = [{"broker": broker, "exists": exists} for broker, exists in rows]
        return view.json({"group": name, "brokers": data, "error": problem}, 400 if problem else 200)
    status = 400 if problem else 200
    return view.whole("group_new.html", status, name=name, rows=rows, command=command, problem=problem)


async def places_of(view: View, name: str) -> tuple[list[str], str]:
    """Names of the brokers that have a group, and the error of an invalid name."""
    try:
        return [one.broker_name for one in await view.admin.group_settings(name, partial=True)], ""
    except GroupNotFoundError:
        return [], ""
    except InvalidArgumentError as error:
        return [], str(error)


def wanted_of(fields: Mapping[str, str], current: Iterable[GroupBroker]) -> dict[str, int | bool]:
    """Settings of a form that differ from the stored ones at some broker.

    Raises:
        FormError: A number is invalid.
    """
    stored = list(current)
    found: dict[str, int | bool] = {}
    for name in GROUP_KEYS:
        text = fields.get(name, "").strip()
        if not text:
            continue
        value = number_of(name, text) if name in GROUP_LIMITS else text == "on"
        if any(getattr(one, name) != value for one in stored):
            found[name] = value
    return found


def number_of(name: str, text: str) -> int:
    """Reads a number of a form."""
    low, high = GROUP_LIMITS[name]
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10) or not low <= int(text) <= high:
        raise FormError(f"{LABELS[name][0]} must be a number from {low} to {high:,}: {shown(text, 40)}")
    return int(text)


def update_command(view: View, group: str, wanted: Mapping[str, int | bool]) -> str:
    """Command line for changed settings; empty if it lacks an option for one of them."""
    options: dict[str, str | bool] = {}
    for name, value in wanted.items():
        if name in FLAGS:
            options[FLAGS[name][0 if value else 1]] = True
        elif name in {"retries", "retry_queues"}:
            options[name] = str(value)
        else:
            return ""
    return command_of(view, ["group", "update"], [group], **options)


async def config(view: View) -> Response:
    """Shows the settings and the preview of a change (GET), or changes them (POST)."""
    group = view.path["group"]
    fields = await view.form() if view.is_post else view.query
    current = await view.admin.group_settings(group, partial=True)
    wanted = wanted_of(fields, current) if view.may("manage") else {}
    if view.is_post:
        return await changed(view, group, wanted)
    changes = await view.admin.update_group(group, dry_run=True, **wanted) if wanted else []  # type: ignore[arg-type]
    lags, _ = await known(view.admin.group_lag(group, partial=True), None)
    topics = sorted({one.queue.topic for one in lags or ()} - {RETRY_PREFIX + group})
    data = {"settings": current, "changes": changes}
    return view.answer(
        "group_config.html", data, settings=current, changes=changes, wanted=wanted, fields=fields, labels=LABELS,
        numbers=GROUP_LIMITS, command=update_command(view, group, wanted) if wanted else "", missing=current.missing,
        topics=topics, delete_command=command_of(view, ["group", "delete"], [group], yes=True),
        **frame(view, group, "config"),
    )  # fmt: skip


async def changed(view: View, group: str, wanted: dict[str, Any]) -> Response:
    """Changes settings, and reads them back."""
    url = view.url("groups", group, "config")
    if not wanted:
        return view.back(url, "No setting differs from the stored one. Nothing was changed.")
    async with view.act("change group", group, parameters=wanted) as done:
        changes: list[SettingChange] = await view.admin.update_group(group, **wanted)
        refused = [f"{one.setting} at {one.broker_name}: {one.error}" for one in changes if one.error is not None]
        stored = await view.admin.group_settings(group, partial=True)
        after = {one.broker_name: {name: getattr(one, name) for name in wanted} for one in stored}
        if refused:
            raise RocketPyError(f"cannot change group {group}: {'; '.join(refused)}", may_have_been_applied=True)
        done.result(", ".join(f"{name} is {value}" for name, value in wanted.items()), after)
    text = ", ".join(f"{LABELS[name][0].lower()} is {word(value)}" for name, value in wanted.items())
    return view.back(url, f"Settings of {shown(group, 80)} as read back from {len(after)} brokers: {text}.")


def word(value: object) -> str:
    """Value of a setting in words."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else f"{value:,}"


async def delete(view: View) -> Response:
    """Deletes a group whose name was typed in."""
    group = view.path["group"]
    form = await view.form()
    if form.get("confirm") != group:
        raise FormError(f"the typed name is not {shown(group, 80)}; nothing was deleted")
    lags, _ = await known(view.admin.group_lag(group, partial=True), None)
    topics = sorted({one.queue.topic for one in lags or ()})
    async with view.act("delete group", group, before={"topics": topics[:100]}) as done:
        await view.admin.delete_group(group)
        is_gone = True
        try:
            await view.admin.group_settings(group, partial=True)
            is_gone = False
        except GroupNotFoundError:
            pass
        done.result("deleted" if is_gone else "a broker still has the group")
    text = f"Group {shown(group, 80)} and its offsets in {len(topics)} topics were deleted."
    return view.back(view.url("groups"), text if is_gone else f"{text} A broker still has it: delete it again.")


async def clone(view: View) -> Response:
    """Shows form and preview (GET), or copies the offsets of another group to this one (POST)."""
    group = view.path["group"]
    fields = await view.form() if view.is_post else view.query
    source, topic = fields.get("source", "").strip()[:MAX_NAME], fields.get("topic", "").strip()[:MAX_NAME]
    force = bool(fields.get("force"))
    if view.is_post and not source:
        raise FormError("group whose offsets are copied is not given")
    rows: list[tuple[Any, int | None, int]] = []
    online: list[str] = []
    if source:
        theirs, ours, online = await asyncio.gather(
            view.admin.group_lag(source, topic or None),
            view.admin.group_lag(group, topic or None, partial=True),
            view.admin.group_members(group, partial=True),
        )
        before = {one.queue: one.committed_offset for one in ours}
        rows = [
            (one.queue, before.get(one.queue), one.committed_offset)
            for one in theirs
            if one.committed_offset is not None and one.queue.topic != RETRY_PREFIX + source
        ]
    refusal = ""
    if view.is_post:
        old = ", ".join(f"{queue} {offset}" for queue, offset, _ in rows[:100])
        parameters = {"source": source, "topic": topic, "force": force}
        try:
            async with view.act("copy offsets", group, before=old, parameters=parameters) as done:
                topics = await view.admin.clone_offsets(source, group, topic=topic or None, force=force)
                done.result(f"{len(topics)} topics", topics[:100])
            text = (
                f"Offsets of {shown(source, 80)} were copied in {len(topics)} topics: {shown(', '.join(topics), 500)}."
            )
            return view.back(view.url("groups", group), text)
        except GroupConflictError:
            refusal = "The group has members online. Nothing was changed: stop them first, or choose to copy anyway."
    command = command_of(view, ["group", "clone"], [source, group], topic=topic, force=bool(online))
    data = {"source": source, "queues": [{"queue": one, "before": old, "after": new} for one, old, new in rows]}
    if view.as_json:
        return view.json(data, 409 if refusal else 200)
    return view.whole(
        "group_clone.html", 409 if refusal else 200, source=source, topic=topic, rows=rows, online=online,
        refusal=refusal, command=command, **frame(view, group, "config"),
    )  # fmt: skip
