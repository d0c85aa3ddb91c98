"""Quotas of one broker: limits with their use, set and remove."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, cast, get_args

from rocketpy.admin.quotas import Quota, Scope
from rocketpy.console.names import count_text
from rocketpy.console.pages.brokers import chosen_member, tabs_of
from rocketpy.console.steps import Preview, Row, command_line, is_preview, shown_preview
from rocketpy.console.tables import Rows, page_of
from rocketpy.console.view import FormError, PageNotFoundError
from rocketpy.errors import InvalidArgumentError, NotSupportedError, RefusedError

if TYPE_CHECKING:
    from starlette.responses import Response

    from rocketpy.admin.quotas import QuotaUse
    from rocketpy.console.view import View

LIMITS = {
    "send_messages": "Messages sent per second",
    "send_bytes": "Bytes sent per second",
    "pull_messages": "Messages received per second",
    "pull_bytes": "Bytes received per second",
    "connections": "Open connections of an address",
}
"""Labels of limits by their names."""


@dataclass(frozen=True, slots=True)
class QuotaPage:
    """Quotas of one member."""

    broker: str
    quotas: Rows[QuotaUse]
    why_none: str | None
    """Reason why quotas cannot be read; None if they can."""


def limit_texts(quota: Quota | None) -> dict[str, str]:
    """Limits of a quota as texts, by label."""
    return {} if quota is None else {LIMITS[name]: count_text(limit) for name, limit in quota.limits.items()}


async def quotas(view: View) -> Response:
    """The list of quotas, or the change of one."""
    if view.is_post:
        return await change(view)
    member = chosen_member(view)
    try:
        found, why = await view.admin.quotas(member.address), None
    except (NotSupportedError, RefusedError) as error:
        found, why = [], str(error)
    data = QuotaPage(view.path["broker"], page_of(found, view.query), why)
    given = {name: view.query.get(name, "") for name in ("scope", "name", *LIMITS)}
    return view.answer(
        "broker_quotas.html",
        data,
        tabs=tabs_of(view, "quotas"),
        scopes=get_args(Scope),
        limits=LIMITS,
        given=given,
        is_master=member.id == 0,
    )


async def change(view: View) -> Response:
    """Sets or removes a quota."""
    member, form = chosen_member(view), await view.form()
    name, scope = form.get("name", "").strip(), form.get("scope", "")
    if scope not in get_args(Scope):
        raise FormError("choose topic, group, address or user")
    known = {(one.quota.scope, one.quota.name): one.quota for one in await view.admin.quotas(member.address)}
    before = known.get((cast("Scope", scope), name))
    if form.get("remove") == "yes":
        if before is None:
            raise PageNotFoundError(f"no quota of {scope} {name}")
        return await removed(view, form, before)
    try:
        quota = quota_of(scope, name, form)
    except InvalidArgumentError as error:
        raise FormError(str(error)) from None
    label = f"{scope} {name}"
    was, now = limit_texts(before), limit_texts(quota)
    if is_preview(form):
        rows = tuple(Row(one, was.get(one), now.get(one)) for one in LIMITS.values() if one in was or one in now)
        words = ["quota", "set", scope, name]
        for key, limit in quota.limits.items():
            words += [f"--{key.replace('_', '-')}", str(limit)]
        notes = ("The quota counts at once, for each name by itself. Limits that are empty are removed.",)
        return confirmed(view, f"Set quota of {label}", rows, notes, words, texts_of(quota))
    async with view.act("set quota", f"{view.path['broker']}: {label}", before=was, parameters=now) as done:
        await view.admin.set_quota(member.address, quota)
        found = [one.quota for one in await view.admin.quotas(member.address)]
        stored = next((one for one in found if (one.scope, one.name) == (scope, name)), None)
        done.result(f"Quota of {label} is set: {listed(limit_texts(stored))}.", limit_texts(stored))
    return view.back(here(view), done.text)


async def removed(view: View, form: dict[str, str], quota: Quota) -> Response:
    """Removes a quota."""
    member, label = chosen_member(view), f"{quota.scope} {quota.name}"
    if is_preview(form):
        rows = tuple(Row(name, text, None) for name, text in limit_texts(quota).items())
        words = ["quota", "remove", quota.scope, quota.name]
        fields = {"scope": quota.scope, "name": quota.name, "remove": "yes"}
        notes = ("Requests that wait for it continue at once.",)
        return confirmed(view, f"Remove quota of {label}", rows, notes, words, fields)
    async with view.act("remove quota", f"{view.path['broker']}: {label}", before=limit_texts(quota)) as done:
        await view.admin.remove_quota(member.address, quota.scope, quota.name)
        done.result(f"Quota of {label} is removed.")
    return view.back(here(view), done.text)


def confirmed(
    view: View, title: str, rows: tuple[Row, ...], notes: tuple[str, ...], words: list[str], fields: dict[str, str]
) -> Response:
    """Preview of a change of a quota."""
    command = command_line(view, *words, "--broker", view.path["broker"])
    label = f"{title} on {view.path['broker']}"
    return shown_preview(
        view, Preview(title, label, view.same(), here(view), rows, notes=notes, command=command, fields=fields)
    )


def here(view: View) -> str:
    """Address of the quotas of the broker."""
    return view.url("brokers", view.path["broker"], "quotas")


def quota_of(scope: str, name: str, form: dict[str, str]) -> Quota:
    """Quota of a form.

    Raises:
        FormError: A limit is not a number.
        InvalidArgumentError: Another value is wrong.
    """
    limits: dict[str, int] = {}
    for key, label in LIMITS.items():
        text = form.get(key, "").strip().replace(",", "")
        if not text:
            continue
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise FormError(f"{label.lower()} must be a whole number: {text[:40]}")
        limits[key] = int(text)
    return Quota(cast("Scope", scope), name, **limits)


def texts_of(quota: Quota) -> dict[str, str]:
    """Fields of the form of a quota."""
    values = asdict(quota)
    return {one.name: str(values[one.name]) for one in fields(quota) if values[one.name] is not None}


def listed(limits: dict[str, str]) -> str:
    """Limits as one text."""
    return ", ".join(f"{text} {name.lower()}" for name, text in limits.items()) or "no limit"
