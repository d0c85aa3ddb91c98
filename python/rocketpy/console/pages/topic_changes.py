"""Changes of topics: create, change, delete. Each has a form, a preview with the command, and a result read back."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketpy.admin.topic_change import DEFAULT_QUEUES
from rocketpy.base.names import is_system_topic
from rocketpy.console.commands import command_line
from rocketpy.console.pages.topics import actions, load, tabs
from rocketpy.console.view import FormError, PageNotFoundError
from rocketpy.errors import InvalidArgumentError, RocketPyError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from starlette.responses import Response

    from rocketpy.admin.changes import SettingChange
    from rocketpy.console.commands import Option
    from rocketpy.console.view import View

MAX_QUEUES = 16_384
"""Limit of the broker."""
MAX_NAME = 127
NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
KINDS = ("", "NORMAL", "FIFO", "DELAY", "TRANSACTION")
"""Types of topics (attribute `message.type`); empty leaves it unset."""
PERMISSIONS = {"rw": "read and send", "r": "read only", "w": "send only", "none": "closed"}
"""Permissions by the words of `rocketpy topic perm`."""


def number_of(form: Mapping[str, str], name: str, title: str) -> int | None:
    """Number of queues in a form; None for an empty field.

    Raises:
        FormError: The text is not a number within the limits.
    """
    text = form.get(name, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MAX_QUEUES:
        raise FormError(f"{title} must be 1 to {MAX_QUEUES:,}: {text[:20]}")
    return int(text)


def attributes_of(text: str) -> dict[str, str | None]:
    r"""Attributes of `name=value` lines; an empty value removes one.

    Raises:
        FormError: A line has no `=`.

    Examples:
        >>> attributes_of("retention.hours=24\n\nflush.type=")
        {'retention.hours': '24', 'flush.type': None}
    """
    found: dict[str, str | None] = {}
    for one in text.splitlines():
        if not one.strip():
            continue
        name, sign, value = one.partition("=")
        if not sign or not name.strip():
            raise FormError(f"attributes must be name=value lines: {one.strip()[:100]}")
        found[name.strip()] = value.strip() or None
    return found


@dataclass(frozen=True, slots=True)
class NewTopic:
    """Values of the form for a new topic."""

    name: str
    queues: int
    broker: str
    attributes: dict[str, str | None]

    def command(self, name_servers: str) -> str:
        """The same as a command line."""
        attributes = [f"{name}={value or ''}" for name, value in self.attributes.items()]
        options: dict[str, Option] = {"queues": str(self.queues), "broker": self.broker, "attribute": attributes}
        return command_line(["topic", "create"], [self.name], options, name_servers)


def new_topic(view: View, form: Mapping[str, str]) -> NewTopic:
    """Checks the form for a new topic.

    Raises:
        FormError: A field is invalid.
    """
    name = form.get("name", "").strip()
    if not NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise FormError(f"name must have 1 to {MAX_NAME} characters of a-z A-Z 0-9 _ - % |")
    if is_system_topic(name):
        raise FormError(f"name belongs to the system: {name}")
    if name in view.snapshot.topics:
        raise FormError(f"topic exists: {name}")
    broker = form.get("broker", "")
    if broker and broker not in {row.name for row in view.snapshot.masters}:
        raise FormError("broker is unknown")
    attributes = attributes_of(form.get("attributes", ""))
    if (kind := form.get("type", "")) in KINDS and kind:
        attributes["message.type"] = kind
    return NewTopic(name, number_of(form, "queues", "queues") or DEFAULT_QUEUES, broker, attributes)


async def create(view: View) -> Response:
    """Creates a topic: form, preview, result."""
    form = await view.form() if view.is_post else {"queues": str(DEFAULT_QUEUES), "name": view.query.get("name", "")}
    brokers = [row.name for row in view.snapshot.masters]
    values: dict[str, Any] = {"form": form, "kinds": KINDS, "brokers": brokers, "error": None, "planned": None}
    if not view.is_post or form.get("step") == "edit":
        return view.render("topic_new.html", **values)
    try:
        wanted = new_topic(view, form)
    except FormError as error:
        if view.as_json:
            raise
        return view.render("topic_new.html", 400, **{**values, "error": str(error)})
    if form.get("step") != "apply":
        places = [wanted.broker] if wanted.broker else brokers
        return view.answer("topic_new.html", wanted, **{**values, "planned": wanted, "places": places})
    try:
        text = await made(view, wanted)
    except InvalidArgumentError as error:
        return view.render("topic_new.html", 400, **{**values, "error": str(error)})
    return view.back(view.url("topics", wanted.name), text)


async def made(view: View, wanted: NewTopic) -> str:
    """Creates a topic and returns the result as read back."""
    parameters = {"queues": wanted.queues, "broker": wanted.broker, "attributes": wanted.attributes}
    async with view.act("create topic", wanted.name, parameters=parameters) as done:
        await view.admin.create_topic(
            wanted.name, wanted.queues, broker=wanted.broker or None, attributes=wanted.attributes
        )
        found = await view.admin.describe_topic(wanted.name, partial=True)
        places = ", ".join(one.broker_name for one in found.brokers)
        text = f"Topic {wanted.name} has {len(found.queues)} queues at {places}."
        done.result(text, {"queues": len(found.queues)})
    with suppress(RocketPyError):  # the next read of the collector shows it
        await view.console.collector.read_names()
    return text


@dataclass(frozen=True, slots=True)
class Changes:
    """Values of the form for a change."""

    queues: int | None
    write_queues: int | None
    permission: str
    attributes: dict[str, str | None]
    force: bool

    @property
    def options(self) -> dict[str, Any]:
        """Options of `update_topic`."""
        words = {"rw": (True, True), "r": (True, False), "w": (False, True), "none": (False, False)}
        readable, writable = words.get(self.permission, (None, None))
        return {
            "queues": self.queues,
            "write_queues": self.write_queues,
            "readable": readable,
            "writable": writable,
            "attributes": self.attributes,
            "force": self.force,
        }

    def commands(self, topic: str, name_servers: str) -> list[str]:
        """The same as command lines: one for queues and attributes, one for the permission."""
        attributes = [f"{name}={value or ''}" for name, value in self.attributes.items()]
        queues, write_queues = str(self.queues or ""), str(self.write_queues or "")
        options: dict[str, Option] = {"queues": queues, "write-queues": write_queues, "attribute": attributes}
        options["force"] = self.force
        found: list[str] = []
        if queues or write_queues or attributes:
            found.append(command_line(["topic", "update"], [topic], options, name_servers))
        if self.permission in PERMISSIONS:
            found.append(command_line(["topic", "perm"], [topic, self.permission], {}, name_servers))
        return found


def changes_of(form: Mapping[str, str]) -> Changes:
    """Checks the form of a change.

    Raises:
        FormError: A field is invalid.
    """
    permission = form.get("permission", "")
    if permission and permission not in PERMISSIONS:
        raise FormError("permission must be rw, r, w or none")
    return Changes(
        number_of(form, "queues", "queues"),
        number_of(form, "write_queues", "write queues"),
        permission,
        attributes_of(form.get("attributes", "")),
        form.get("force") == "1",
    )


async def config(view: View) -> Response:
    """Shows and changes the settings of a topic."""
    topic = view.path["topic"]
    data = await load(view)
    form = await view.form() if view.is_post else {}
    values: dict[str, Any] = {
        "page": data,
        "tabs": tabs(view, "Config"),
        "actions": actions(view),
        "form": form,
        "permissions": PERMISSIONS,
        "default_queues": DEFAULT_QUEUES,
        "error": None,
        "planned": None,
        "commands": (),
    }
    if not view.is_post or form.get("step") == "edit":
        if view.as_json:
            return view.json({"topic": topic, "brokers": data.info.brokers if data.info else ()})
        return view.render("topic_config.html", **values)
    try:
        wanted = changes_of(form)
        planned = await view.admin.update_topic(topic, **wanted.options, dry_run=True)
    except (FormError, InvalidArgumentError) as error:
        if view.as_json:
            raise
        return view.render("topic_config.html", 400, **{**values, "error": str(error)})
    if form.get("step") != "apply" or not planned:
        commands = wanted.commands(topic, view.console.settings.name_servers)
        return view.render("topic_config.html", 200, **{**values, "planned": planned, "commands": commands})
    return view.back(view.url("topics", topic, "config"), await changed(view, topic, wanted, planned))


async def changed(view: View, topic: str, wanted: Changes, planned: list[SettingChange]) -> str:
    """Changes a topic and returns the result as read back."""
    before = {f"{one.broker_name} {one.setting}": one.before for one in planned}
    async with view.act("change topic", topic, before=before, parameters=wanted.options) as done:
        found = await view.admin.update_topic(topic, **wanted.options)
        left = await view.admin.update_topic(topic, **wanted.options, dry_run=True)
        failures = [f"{one.broker_name}: {one.error}" for one in found if one.error]
        count = len(found) - len(failures)
        text = f"{count} {'setting' if count == 1 else 'settings'} of {topic} changed."
        if failures:
            text += f" {len(failures)} failed: {'; '.join(dict.fromkeys(failures))}."
        elif left:
            text += f" {len(left)} still differ: {', '.join(one.setting for one in left)}."
        done.result(text, {f"{one.broker_name} {one.setting}": one.after for one in found if not one.error})
    return text


async def delete(view: View) -> Response:
    """Deletes a topic, whose name is typed in."""
    topic = view.path["topic"]
    if is_system_topic(topic) or (topic in view.snapshot.topics and view.snapshot.topics[topic].is_system):
        raise PageNotFoundError(f"a system topic cannot be deleted: {topic}")
    form = await view.form() if view.is_post else {}
    if view.is_post and form.get("name") == topic:
        return view.back(view.url("topics"), await deleted(view, topic))
    error = f"name must be {topic}" if view.is_post else None
    if error and view.as_json:
        raise FormError(error)
    data = await load(view)
    command = command_line(["topic", "delete"], [topic], {"yes": True}, view.console.settings.name_servers)
    return view.render("topic_delete.html", 400 if error else 200, page=data, command=command, error=error)


async def deleted(view: View, topic: str) -> str:
    """Deletes a topic and returns the result as read back."""
    row = view.snapshot.topics.get(topic)
    before = {"messages": row.messages, "queues": row.queues, "groups": row.groups} if row else None
    async with view.act("delete topic", topic, before=before) as done:
        await view.admin.delete_topic(topic)
        try:
            left = topic in await view.admin.topics()
        except RocketPyError:
            left = False
        text = f"Topic {topic} is deleted{' at the brokers; a name server still lists it' if left else ''}."
        done.result(text)
    with suppress(RocketPyError):  # the next read of the collector shows it
        await view.console.collector.read_names()
    return text
