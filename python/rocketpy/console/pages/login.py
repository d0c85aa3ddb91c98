"""Login and logout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from rocketpy.console.names import shown
from rocketpy.console.sessions import LoginError

if TYPE_CHECKING:
    from starlette.responses import Response

    from rocketpy.console.view import View


def goal_of(text: str | None) -> str:
    """Address after the login: a path of this console, never another host.

    Examples:
        >>> goal_of("/c/topics?q=a"), goal_of("//evil.example"), goal_of("https://evil.example"), goal_of(None)
        ('/c/topics?q=a', '/', '/', '/')
    """
    if text and text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable():
        return text
    return "/"


async def login(view: View) -> Response:
    """Shows the form; checks name and password by a request that they sign."""
    goal = goal_of(view.query.get("goal"))
    if not view.console.settings.has_login:
        return RedirectResponse("/", 303)
    if not view.is_post:
        return view.whole("login.html", goal=goal, error=None)
    form = await view.form()
    goal = goal_of(form.get("goal"))
    address = view.request.client.host if view.request.client else ""
    name = form.get("name", "")
    try:
        _session, token = await view.console.sessions.login(name, form.get("password", ""), address)
    except LoginError as error:
        note(view, "log in", name, "failed", str(error))
        return view.whole("login.html", 401, goal=goal, error=str(error))
    if view.session.key:
        view.console.sessions.close(view.session)
    note(view, "log in", name, "done", "")
    response = RedirectResponse(goal, 303)
    view.console.set_cookie(response, token)
    return response


def note(view: View, action: str, name: str, result: str, text: str) -> None:
    """Writes a line about a login or a logout into the audit log."""
    who = view.who
    head = {"user": shown(name), "address": who.address, "session": who.session, "request": who.request}
    view.audit.write({**head, "cluster": view.cluster, "action": action, "object": "", "result": result, "text": text})


async def logout(view: View) -> Response:
    """Ends the session."""
    if view.session.user:
        note(view, "log out", view.session.user, "done", "")
    view.console.sessions.close(view.session)
    response = RedirectResponse("/login" if view.console.settings.has_login else "/", 303)
    response.delete_cookie(view.console.cookie_name, path="/")
    return response
