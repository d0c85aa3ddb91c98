"""Configuration of one broker: values with default and origin, and changes of live keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketpy.commandline.secrets import masked
from rocketpy.console.audit import HIDDEN, is_secret
from rocketpy.console.names import shown
from rocketpy.console.pages.brokers import chosen_member, tabs_of
from rocketpy.console.steps import Preview, Row, command_line, is_preview, shown_preview
from rocketpy.console.tables import Rows, page_of
from rocketpy.console.view import FormError, PageNotFoundError
from rocketpy.errors import NotSupportedError

if TYPE_CHECKING:
    from starlette.responses import Response

    from rocketpy.admin.live_config import ConfigValue
    from rocketpy.console.view import View

SHOWN = ("all", "changed", "live", "editable")
"""Filters of the list."""


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key as pages show it; values of secrets are hidden."""

    key: str
    value: str
    default: str
    origin: str
    source: str | None
    is_live: bool
    """Whether the key has a live value."""
    is_editable: bool
    """Whether a live value takes effect at once."""
    needs_restart: bool
    is_used: bool
    is_changed: bool
    """Whether the value differs from the default."""


@dataclass(frozen=True, slots=True)
class ConfigPage:
    """Configuration of one member."""

    broker: str
    address: str
    keys: Rows[KeyRow]
    total: int
    """Number of all keys."""
    is_apache: bool
    """Whether the broker reports neither defaults nor origins."""


def text_of(key: str, value: Any) -> str:
    """Value as text; those of secrets are hidden, as are secrets within other values."""
    if value is None:
        return ""
    if is_secret(key) and value not in ("", ()):
        return HIDDEN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ", ".join(str(masked(str(one))) for one in value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return str(masked(str(value)))


def is_editable(one: ConfigValue) -> bool:
    """Whether the page offers a change of a key."""
    return one.can_set and not one.needs_restart and one.is_used and not is_secret(one.key)


def row_of(one: ConfigValue, *, is_apache: bool) -> KeyRow:
    """Row of a key."""
    return KeyRow(
        one.key,
        text_of(one.key, one.value),
        "" if is_apache else text_of(one.key, one.default),
        one.origin,
        one.source,
        one.is_live,
        is_editable(one),
        one.needs_restart,
        one.is_used,
        not is_apache and one.value != one.default,
    )


async def config(view: View) -> Response:
    """The list of keys, or the change of one."""
    if view.is_post:
        return await change(view)
    member = chosen_member(view)
    found = await view.admin.config(member.address)
    is_apache = all(one.origin == "" for one in found)
    query, only = view.query.get("q", "").strip(), view.query.get("only", "all")
    rows = [row_of(one, is_apache=is_apache) for one in found if query.lower() in one.key.lower()]
    kept = page_of([row for row in rows if is_shown(row, only)], view.query)
    data = ConfigPage(view.path["broker"], member.address, kept, len(found), is_apache)
    edited = next((row for row in rows if row.key == view.query.get("edit") and row.is_editable), None)
    return view.answer(
        "broker_config.html",
        data,
        tabs=tabs_of(view, "config"),
        query=query,
        only=only,
        filters=SHOWN,
        edited=edited if view.may("manage") else None,
    )


def is_shown(row: KeyRow, only: str) -> bool:
    """Whether a filter keeps a row."""
    return {"changed": row.is_changed, "live": row.is_live, "editable": row.is_editable}.get(only, True)


async def change(view: View) -> Response:
    """Sets or removes a live value: preview first, refused if the value has changed since."""
    member, form = chosen_member(view), await view.form()
    key, removes = form.get("key", ""), form.get("remove") == "yes"
    values = {one.key: one for one in await view.admin.config(member.address)}
    now = values.get(key)
    if now is None:
        raise PageNotFoundError(f"no such key: {shown(key, 100)}")
    if not is_editable(now):
        raise FormError(f"key {key} cannot change while the broker runs")
    before, new = text_of(key, now.value), form.get("value", "").strip()
    if not removes and not new:
        raise FormError(f"give a value of {key}")
    if is_preview(form):
        return await preview(view, now, None if removes else new)
    if "was" in form and form["was"] != before:
        raise FormError(f"{key} was changed meanwhile: it is {before} now, not {form['was']}")
    action = "remove live value" if removes else "set configuration"
    target = f"{view.path['broker']} ({member.role}): {key}"
    async with view.act(action, target, before=before, parameters=None if removes else {"value": new}) as done:
        if removes:
            update = await view.admin.unset_config(member.address, key)
        else:
            update = await view.admin.set_config(member.address, {key: new})
        after = next((text_of(key, one.value) for one in update.values if one.key == key), before)
        note = f" {update.note}" if update.note else ""
        done.result(f"{key} is {after or 'empty'} now, it was {before or 'empty'}.{note}", after)
    return view.back(view.url("brokers", view.path["broker"], "config", id=view.query.get("id"), q=key), done.text)


async def preview(view: View, now: ConfigValue, new: str | None) -> Response:
    """Preview of a change, checked by the broker where it can."""
    member, key, name = chosen_member(view), now.key, view.path["broker"]
    before = text_of(key, now.value)
    notes = ["The value counts at once, and after restarts."]
    try:
        if new is None:
            update = await view.admin.unset_config(member.address, key, dry_run=True)
            notes = ["The value of the layer below counts at once."]
        else:
            update = await view.admin.set_config(member.address, {key: new}, dry_run=True)
        after = next((text_of(key, one.value) for one in update.values if one.key == key), new)
        if update.note:
            notes.append(update.note)
    except NotSupportedError:
        if new is None:
            raise
        after = new
        notes = ["An Apache broker writes the value into its file. It cannot check the value first."]
    if now.origin == "command line":
        notes.append("The command line of the broker sets the key, and wins over a live value.")
    server = name if member.id == 0 else member.address
    words = ["config", "unset", server, key] if new is None else ["config", "set", server, f"{key}={new}"]
    title = f"Remove the live value of {key}" if new is None else f"Set {key} to {new}"
    fields = {"key": key, "was": before} | ({"remove": "yes"} if new is None else {"value": new})
    return shown_preview(
        view,
        Preview(
            title,
            f"{title} on {name}",
            view.same(),
            view.url("brokers", name, "config", id=view.query.get("id")),
            (Row(key, before, None if new is None else after),),
            notes=tuple(notes),
            command=command_line(view, *words),
            fields=fields,
        ),
    )
