"""Role of one broker: promotion of a slave with its checks, drain and the end of a drain."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketpy.base.clock import monotonic
from rocketpy.console.names import byte_text, shown
from rocketpy.console.pages.brokers import chosen_member, members_of, tabs_of
from rocketpy.console.steps import Check, Preview, Row, check_typed, command_line, is_preview, shown_preview
from rocketpy.console.view import FormError
from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from starlette.responses import Response

    from rocketpy.admin.replication import HaStatus
    from rocketpy.console.pages.brokers import Member
    from rocketpy.console.view import View

READ, WRITE = 4, 2
"""Bits of `brokerPermission`."""
ROLE_SECONDS = 15.0
"""Maximum wait for the new role, in seconds."""
PACE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Standing:
    """One member of a broker name and its log."""

    member: Member
    is_master: bool | None
    """None if it did not answer."""
    end: int | None
    """End of its log: a physical offset, in bytes."""
    error: str | None
    not_followed: str | None


@dataclass(frozen=True, slots=True)
class RolePage:
    """Members of a broker name, and whether the master accepts messages."""

    broker: str
    standings: tuple[Standing, ...]
    permission: int | None
    """`brokerPermission` of the master; None if it did not answer."""
    is_drained: bool


async def standing(view: View, member: Member) -> Standing:
    """Role and log of a member, as it says itself."""
    try:
        found: HaStatus = await view.admin.ha_status(member.address)
    except RocketPyError as error:
        return Standing(member, None, None, str(error), None)
    return Standing(member, found.is_master, found.end, None, found.not_followed)


async def standings_of(view: View) -> list[Standing]:
    """All members of the broker of the path."""
    return list(await asyncio.gather(*(standing(view, one) for one in members_of(view))))


async def permission_of(view: View, address: str) -> int | None:
    """`brokerPermission` of a broker; None if it does not answer."""
    try:
        text = (await view.admin.broker_config(address)).get("brokerPermission", "6")
    except RocketPyError:
        return None
    return int(text) if text.isascii() and text.isdigit() else None


async def role(view: View) -> Response:
    """Roles of the members, with the actions that fit them."""
    found = await standings_of(view)
    master = next((one.member for one in found if one.member.id == 0), None)
    permission = None if master is None else await permission_of(view, master.address)
    is_drained = permission is not None and not permission & WRITE
    data = RolePage(view.path["broker"], tuple(found), permission, is_drained)
    return view.answer("broker_role.html", data, tabs=tabs_of(view, "role"))


def checks_of(found: list[Standing], slave: Member) -> list[Check]:
    """Checks of a promotion. The broker repeats them."""
    own = next(one for one in found if one.member.address == slave.address)
    others = [one for one in found if one is not own]
    masters = [one for one in others if one.is_master]
    ahead = [one for one in others if one.end is not None and own.end is not None and one.end > own.end]
    silent = [one for one in others if one.is_master is None and one.member.id != 0]
    checks = [
        Check(own.is_master is not None, answer_text(own)),
        Check(own.is_master is not True, "It is a slave." if own.is_master is False else "It is not a master already."),
        Check(
            not masters,
            f"The master at {masters[0].member.address} answers." if masters else "No master of its name answers.",
        ),
        Check(
            not ahead,
            f"{ahead[0].member.role} has {byte_text((ahead[0].end or 0) - (own.end or 0))} more of the log."
            if ahead
            else "No other member that answers has more of the log.",
        ),
    ]
    if silent:
        checks.append(Check(False, f"{silent[0].member.role} does not answer: it may have more of the log."))
    return checks


def answer_text(own: Standing) -> str:
    """Whether a slave answers."""
    name = f"{own.member.role} at {own.member.address}"
    return f"{name} answers." if own.error is None else f"{name} does not answer: {shown(own.error, 300)}"


async def promote(view: View) -> Response:
    """Promotes a slave: checks first, then the name typed."""
    name, form = view.path["broker"], await view.form()
    slave = next((one for one in members_of(view) if str(one.id) == form.get("member") and one.id != 0), None)
    if slave is None:
        raise FormError("choose a slave")
    sync, force = form.get("sync") == "yes", form.get("force") == "yes"
    if is_preview(form):
        return await promotion(view, slave, sync=sync, force=force)
    check_typed(form, name)
    token = form.get("token") or None
    parameters = {"member": slave.id, "address": slave.address, "sync": sync, "force": force}
    async with view.act("promote broker", name, before=slave.role, parameters=parameters) as done:
        await view.admin.promote(slave.address, sync=sync, force=force, token=token)
        is_done = await reached(view, slave, is_master=True)
        text = f"{slave.address} is the master of {name} now." if is_done else PENDING.format(slave.address, name)
        done.result(text, "master" if is_done else "restarting")
    return view.back(view.url("brokers", name, "role"), done.text)


PENDING = "The promotion of {} has begun: it restarts as the master of {}. This page shows its end."


async def promotion(view: View, slave: Member, *, sync: bool, force: bool) -> Response:
    """Preview of a promotion."""
    name, checks = view.path["broker"], checks_of(await standings_of(view), slave)
    words = ["ha", "promote", slave.address, *(["--sync"] if sync else []), *(["--force"] if force else [])]
    notes = ["The broker stops in order and starts again as the master. Its clients reconnect."]
    if force:
        notes.append("Forced: the broker skips the checks. Two masters write diverging logs.")
    elif not all(one.is_met for one in checks):
        notes.append("The broker refuses the promotion while a check fails, unless it is forced.")
    return shown_preview(
        view,
        Preview(
            f"Promote {slave.role} of {name}",
            f"Promote {slave.role} of {name}",
            view.url("brokers", name, "promote"),
            view.url("brokers", name, "role"),
            (Row(slave.address, slave.role, "master"),),
            tuple(checks),
            tuple(notes),
            command_line(view, *words),
            {"member": str(slave.id)} | ({"sync": "yes"} if sync else {}) | ({"force": "yes"} if force else {}),
            typed=name,
            secret="Token of its haTokenFile, if the console runs on another machine",
            is_danger=True,
        ),
    )


async def reached(view: View, member: Member, *, is_master: bool) -> bool:
    """Waits until a member has its new role. The broker restarts meanwhile."""
    deadline = monotonic() + ROLE_SECONDS
    while monotonic() < deadline:
        if (await standing(view, member)).is_master is is_master:
            return True
        await asyncio.sleep(PACE_SECONDS)
    return False


async def drain(view: View) -> Response:
    """Makes a broker read only: new messages go to other brokers."""
    name, form, member = view.path["broker"], await view.form(), chosen_member(view)
    force = form.get("force") == "yes"
    before = await permission_of(view, member.address)
    if is_preview(form):
        notes = ("New messages go to other brokers; reading continues.",)
        words = ["broker", "drain", name, *(["--force"] if force else [])]
        rows = (Row("brokerPermission", permission_text(before), permission_text((before or READ) & ~WRITE)),)
        fields = {"force": "yes"} if force else {}
        title = f"Drain {name}"
        back = view.url("brokers", name, "role")
        command = command_line(view, *words)
        return shown_preview(
            view,
            Preview(title, title, view.same(), back, rows, notes=notes, command=command, fields=fields, is_danger=True),
        )
    async with view.act("drain broker", name, before=before, parameters={"force": force}) as done:
        async for _ in view.admin.drain_broker(name, force=force):
            break  # the permission is lowered; the page shows the rest
        after = await permission_of(view, member.address)
        done.result(f"Broker {name} is {permission_text(after)} now: new messages go to other brokers.", after)
    return view.back(view.url("brokers", name, "role"), done.text)


async def undrain(view: View) -> Response:
    """Restores the permission that a broker had before its drain."""
    name, form, member = view.path["broker"], await view.form(), chosen_member(view)
    before = await permission_of(view, member.address)
    if is_preview(form):
        after = await view.admin.undrain_broker(name, dry_run=True)
        title, back = f"Undrain {name}", view.url("brokers", name, "role")
        rows = (Row("brokerPermission", permission_text(before), permission_text(after)),)
        command = command_line(view, "broker", "undrain", name)
        return shown_preview(view, Preview(title, title, view.same(), back, rows, command=command))
    async with view.act("undrain broker", name, before=before) as done:
        after = await view.admin.undrain_broker(name)
        done.result(f"Broker {name} is {permission_text(after)} again.", after)
    return view.back(view.url("brokers", name, "role"), done.text)


def permission_text(permission: int | None) -> str:
    """Permission in words.

    Examples:
        >>> permission_text(6), permission_text(4), permission_text(None)
        ('read and write (6)', 'read only (4)', 'unknown')
    """
    if permission is None:
        return "unknown"
    words = {READ | WRITE: "read and write", READ: "read only", WRITE: "write only", 0: "closed"}
    return f"{words.get(permission & (READ | WRITE), 'unknown')} ({permission})"
