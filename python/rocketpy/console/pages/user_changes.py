"""Changes of users and policies: create, new password, state, delete, grant, revoke. A new password is shown once."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketpy.admin.accounts import actions_of, decision_text, resource_of
from rocketpy.console.names import shown
from rocketpy.console.pages.users import user_of
from rocketpy.console.steps import Preview, Row, check_typed, command_line, is_preview, shown_preview
from rocketpy.console.view import FormError
from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.responses import Response

    from rocketpy.admin.changes import SettingChange
    from rocketpy.console.view import View

PASSWORD_BYTES = 24
"""Random bytes of a new password."""


@dataclass(frozen=True, slots=True)
class NewPassword:
    """Result of a change with a new password, which is shown once."""

    user: str
    password: str
    result: str
    changes: tuple[Row, ...]


def rows_of(changes: Sequence[SettingChange]) -> tuple[Row, ...]:
    """Lines of changes, one for each server."""
    return tuple(Row(one.broker_name, text_of(one.before), text_of(one.after), one.error) for one in changes)


def text_of(value: str | float | None) -> str | None:
    """Value of a change as text."""
    return None if value is None else str(value)


def result_of(text: str, changes: Sequence[SettingChange]) -> str:
    """Result of a change in words, with the servers that failed."""
    failed = [f"{one.broker_name}: {one.error}" for one in changes if one.error is not None]
    if failed:
        return f"{text[:-1]}, but not at {len(failed)} of {len(changes)} servers. {'; '.join(failed)}"
    return text if changes else f"Nothing changed: {text[0].lower()}{text[1:]}"


async def create(view: View) -> Response:
    """Creates a user with a generated password."""
    if not view.is_post:
        data = {"name": "", "super": "", "error": ""}
        return view.json(data) if view.as_json else view.render("user_new.html", data=data)
    form = await view.form()
    name, is_super = form.get("name", "").strip(), form.get("super") == "yes"
    try:
        if is_preview(form):
            changes = await view.admin.create_user(name, new_password(), is_super=is_super, dry_run=True)
            words = ["user", "add", name, *(["--super"] if is_super else []), "--generate", "-"]
            fields = {"name": name} | ({"super": "yes"} if is_super else {})
            notes = ["The password is generated, and shown once on the next page."]
            if not is_super:
                notes.append("Without policies the user may do nothing.")
            return confirmed(view, f"Create user {name}", changes, words, view.url("users"), fields, notes)
        password = new_password()
        async with view.act("create user", name, parameters={"super": is_super}) as done:
            changes = await view.admin.create_user(name, password, is_super=is_super)
            done.result(result_of(f"User {shown(name)} is created.", changes))
    except InvalidArgumentError as error:
        if view.as_json:
            raise
        data = {"name": name, "super": form.get("super", ""), "error": str(error)}
        return view.render("user_new.html", 400, data=data)
    return shown_password(view, name, password, done.text, changes)


async def rotate(view: View) -> Response:
    """Gives a user a second, generated password; the former one is valid until the rotation is finished."""
    user, form = (await user_of(view))[0], await view.form()
    if is_preview(form):
        changes = await view.admin.rotate_user(user.name, new_password(), dry_run=True)
        notes = ["Both passwords are valid until the rotation is finished. The new one is shown once on the next page."]
        if user.is_rotating:
            notes.append("The user has two passwords already: the newer one is replaced.")
        words = ["user", "rotate", user.name, "--generate", "-"]
        return confirmed(view, f"New password of {user.name}", changes, words, here(view), {}, notes)
    password = new_password()
    async with view.act("rotate user", user.name) as done:
        changes = await view.admin.rotate_user(user.name, password)
        done.result(result_of(f"User {shown(user.name)} has a new password; the former one is valid too.", changes))
    return shown_password(view, user.name, password, done.text, changes)


async def finish(view: View) -> Response:
    """Ends the former password of a user."""
    user, form = (await user_of(view))[0], await view.form()
    if is_preview(form):
        changes = await view.admin.finish_rotation(user.name, dry_run=True)
        words = ["user", "finish-rotation", user.name]
        notes = ["Requests with the former password fail from now on.", *own_notes(view, user.name)]
        title = f"End the former password of {user.name}"
        return confirmed(view, title, changes, words, here(view), {}, notes, is_danger=True)
    async with view.act("finish rotation", user.name) as done:
        changes = await view.admin.finish_rotation(user.name)
        done.result(result_of(f"User {shown(user.name)} has its new password only.", changes))
    return view.back(here(view), done.text)


async def state(view: View) -> Response:
    """Enables or disables a user, or changes its type."""
    user, form = (await user_of(view))[0], await view.form()
    wanted = form.get("to", "")
    given: dict[str, tuple[bool | None, bool | None, str]] = {
        "enable": (None, True, "--enable"),
        "disable": (None, False, "--disable"),
        "super": (True, None, "--super"),
        "normal": (False, None, "--normal"),
    }
    if wanted not in given:
        raise FormError("choose enable, disable, super or normal")
    is_super, is_enabled, flag = given[wanted]
    words = {"enable": "Enable", "disable": "Disable", "super": "Make super:", "normal": "Make normal:"}
    title = f"{words[wanted]} {user.name}"
    if is_preview(form):
        changes = await view.admin.update_user(user.name, is_super=is_super, is_enabled=is_enabled, dry_run=True)
        notes = {
            "disable": ["Requests of the user fail from now on."],
            "super": ["A super user may do everything, without policies."],
        }.get(wanted, [])
        notes = [*notes, *(own_notes(view, user.name) if wanted in {"disable", "normal"} else [])]
        command = ["user", "update", user.name, flag]
        is_danger = wanted in {"disable", "super"}
        return confirmed(view, title, changes, command, here(view), {"to": wanted}, notes, is_danger=is_danger)
    async with view.act(f"{wanted} user", user.name) as done:
        changes = await view.admin.update_user(user.name, is_super=is_super, is_enabled=is_enabled)
        done.result(result_of(f"User {shown(user.name)} is {STATES[wanted]} now.", changes))
    return view.back(here(view), done.text)


STATES = {"enable": "enabled", "disable": "disabled", "super": "a super user", "normal": "a normal user"}


async def delete(view: View) -> Response:
    """Deletes a user with its policies."""
    user, form = (await user_of(view))[0], await view.form()
    if is_preview(form):
        changes = await view.admin.delete_user(user.name, dry_run=True)
        notes = ["Its policies are deleted too. Its requests fail from now on.", *own_notes(view, user.name)]
        words = ["user", "delete", user.name, "--yes"]
        title = f"Delete user {user.name}"
        return confirmed(view, title, changes, words, here(view), {}, notes, typed=user.name)
    check_typed(form, user.name)
    async with view.act("delete user", user.name) as done:
        changes = await view.admin.delete_user(user.name)
        done.result(result_of(f"User {shown(user.name)} is deleted.", changes))
    return view.back(view.url("users"), done.text)


async def grant(view: View) -> Response:
    """Sets what a user may do with a resource."""
    user, _ = await user_of(view)
    fields = await view.form_list()
    form = {name: value.strip() for name, value in reversed(fields)}
    names = [value for name, value in fields if name == "action"]
    try:
        resource = resource_of(form.get("resource", ""))
        actions = actions_of(names if len(names) != 1 else names[0])
    except InvalidArgumentError as error:
        raise FormError(f"{error}{f'; {error.hint}' if error.hint else ''}") from None
    is_allowed, is_default = form.get("decision", "allow") != "deny", form.get("default") == "yes"
    sources = [part.strip() for part in form.get("sources", "").split(",") if part.strip()]
    decision = decision_text(actions, is_allowed, sources)
    if is_preview(form):
        changes = await view.admin.grant(
            user.name, resource, actions, is_allowed=is_allowed, sources=sources, is_default=is_default, dry_run=True
        )
        words = ["acl", "grant", user.name, resource, ",".join(actions), *([] if is_allowed else ["--deny"])]
        for source in sources:
            words += ["--from", source]
        words += ["--default"] if is_default else []
        sent = {"resource": resource, "action": ",".join(actions), "sources": ",".join(sources)}
        sent |= {"decision": "allow" if is_allowed else "deny"} | ({"default": "yes"} if is_default else {})
        title = f"Grant {user.name} on {resource}"
        notes = ["The policy replaces that of the user for the same resource."]
        return confirmed(view, title, changes, words, here(view), sent, notes)
    async with view.act("grant", f"{user.name} on {resource}", parameters={"policy": decision}) as done:
        changes = await view.admin.grant(
            user.name, resource, actions, is_allowed=is_allowed, sources=sources, is_default=is_default
        )
        done.result(result_of(f"Policy of {shown(user.name)} on {shown(resource)}: {decision}.", changes), decision)
    return view.back(here(view), done.text)


async def revoke(view: View) -> Response:
    """Removes a policy of a user."""
    (user, policies), form = await user_of(view), await view.form()
    name, resource, is_default = user.name, form.get("resource", ""), form.get("default") == "yes"
    found = [one for one in policies if (one.resource, one.is_default) == (resource, is_default)]
    if not found:
        raise FormError(f"no such policy of {name}: {shown(resource)}")
    before = decision_text(found[0].actions, found[0].is_allowed, found[0].sources)
    if is_preview(form):
        changes = await view.admin.revoke(name, resource, is_default=is_default, dry_run=True)
        words = ["acl", "revoke", name, resource, *(["--default"] if is_default else [])]
        sent = {"resource": resource} | ({"default": "yes"} if is_default else {})
        title = f"Revoke {resource} of {name}"
        return confirmed(view, title, changes, words, here(view), sent, [], is_danger=True)
    async with view.act("revoke", f"{name} on {resource}", before=before) as done:
        changes = await view.admin.revoke(name, resource, is_default=is_default)
        done.result(result_of(f"Policy of {shown(name)} on {shown(resource)} is removed.", changes))
    return view.back(here(view), done.text)


def new_password() -> str:
    """A random password."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


def here(view: View) -> str:
    """Address of the user of the path."""
    return view.url("users", view.path["user"])


def own_notes(view: View, name: str) -> list[str]:
    """Note of a change that may end the visitor's own access."""
    return ["This is your own user: you may lose your access."] if view.session.user == name else []


def confirmed(
    view: View,
    title: str,
    changes: Sequence[SettingChange],
    words: list[str],
    back: str,
    fields: dict[str, str],
    notes: list[str],
    *,
    typed: str = "",
    is_danger: bool = False,
) -> Response:
    """Preview of a change, one line for each server."""
    if not changes:
        notes = ["Nothing changes: every server has it so.", *notes]
    return shown_preview(
        view,
        Preview(
            title,
            title,
            view.same(),
            back,
            rows_of(changes),
            notes=tuple(notes),
            command=command_line(view, *words),
            fields=fields,
            typed=typed,
            is_danger=is_danger,
        ),
    )


def shown_password(view: View, name: str, password: str, result: str, changes: Sequence[SettingChange]) -> Response:
    """Page with a new password. The page is not kept: a reload asks the browser to send the form again."""
    view.has_secret = True
    return view.answer("user_password.html", NewPassword(name, password, result, rows_of(changes)))
