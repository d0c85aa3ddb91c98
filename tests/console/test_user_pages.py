"""Pages and API of users and policies against a server with users, and against one without."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import rocketpy
from closed_server import ADMIN, ClosedServer
from console_visitor import WRITE, Visitor, console
from rocketpy.testing import fresh_name

if TYPE_CHECKING:
    from collections.abc import Iterator


def log_in(visitor: Visitor, user: rocketpy.Credentials) -> None:
    form = {"name": user.access_key, "password": user.secret_key}
    found = visitor.client.post("/login", data=form, headers=WRITE, follow_redirects=False)
    assert found.status_code == 303, found.text


@pytest.fixture
def admin(closed_server: ClosedServer) -> Iterator[Visitor]:
    with console(closed_server, "admin", credentials=ADMIN) as client:
        visitor = Visitor(client)
        log_in(visitor, ADMIN)
        yield visitor


def password_in(page: str) -> str:
    found = re.search(r"<code>([\w-]{32})</code>", page)
    assert found is not None, page
    return found[1]


def may_read(server: ClosedServer, name: str, password: str) -> bool:
    """Whether the cluster accepts a user for a request that its policy allows."""
    try:
        with rocketpy.Admin(server.name_servers, credentials=rocketpy.Credentials(name, password)) as admin:
            admin.broker_figures("broker-a")
    except rocketpy.AccessDeniedError:
        return False
    return True


def audit_text(visitor: Visitor) -> str:
    return str(list(visitor.client.app.state.console.audit.recent))  # type: ignore[attr-defined]


def test_user_is_created_granted_rotated_disabled_and_deleted(admin: Visitor, closed_server: ClosedServer) -> None:
    name = fresh_name("page-user")
    path = f"/users/{name}"
    preview = admin.post("/users/~new", step="preview", name=name)
    assert f"rocketpy user add {name} --generate -" in preview
    assert "Without policies the user may do nothing." in preview
    with closed_server.admin() as cluster:
        assert cluster.user(name) is None
        page = admin.post("/users/~new", step="apply", name=name)
        first = password_in(page)
        assert "The password is shown only now." in page
        assert cluster.user(name) is not None
        assert not may_read(closed_server, name, first)

        grant = {"resource": "cluster:*", "action": "Get", "sources": "", "decision": "allow"}
        preview = admin.post(f"{path}/grant", step="preview", **grant)
        assert f"rocketpy acl grant {name} &#39;Cluster:*&#39; Get" in preview
        assert "allow Get" in preview
        admin.post(f"{path}/grant", step="apply", **grant)
        assert [(one.resource, one.actions) for one in cluster.policies(name)] == [("Cluster:*", ("Get",))]
        assert may_read(closed_server, name, first)

        assert "Both passwords are valid" in admin.post(f"{path}/rotate", step="preview")
        second = password_in(admin.post(f"{path}/rotate", step="apply"))
        assert may_read(closed_server, name, first)
        assert may_read(closed_server, name, second)
        assert "End the former password" in admin.page(path)
        admin.post(f"{path}/finish", step="preview")
        admin.post(f"{path}/finish", step="apply")
        assert (may_read(closed_server, name, first), may_read(closed_server, name, second)) == (False, True)

        assert "Requests of the user fail from now on." in admin.post(f"{path}/state", step="preview", to="disable")
        admin.post(f"{path}/state", step="apply", to="disable")
        assert not may_read(closed_server, name, second)
        admin.post(f"{path}/state", step="apply", to="enable")

        assert "Revoke Cluster:* of" in admin.post(f"{path}/revoke", step="preview", resource="Cluster:*")
        admin.post(f"{path}/revoke", step="apply", resource="Cluster:*")
        assert cluster.policies(name) == []
        assert "type the name to confirm" in admin.post(f"{path}/delete", 400, step="apply", typed="x")
        admin.post(f"{path}/delete", step="apply", typed=name)
        assert cluster.user(name) is None
    admin.page(path, 404)
    text = audit_text(admin)
    assert first not in text
    assert second not in text
    assert text.count(f"'object': '{name}'") >= 10


def test_password_is_on_no_later_page(admin: Visitor) -> None:
    name = fresh_name("once")
    password = password_in(admin.post("/users/~new", step="apply", name=name))
    pages = [admin.page("/users"), admin.page(f"/users/{name}"), str(admin.json(f"/users/{name}"))]
    assert all(password not in page for page in pages)
    admin.post(f"/users/{name}/delete", step="apply", typed=name)


def test_api_creates_a_user_and_returns_its_password_once(admin: Visitor, closed_server: ClosedServer) -> None:
    name = fresh_name("api-user")
    url = "/api/v1/cluster/users/~new"
    found = admin.client.post(url, data={"name": name, "super": "yes", "step": "apply"}, headers=WRITE).json()
    assert may_read(closed_server, name, found["password"])
    rows = admin.json(f"/users?q={name}")["users"]["rows"]
    assert [(row["user"]["name"], row["user"]["is_super"]) for row in rows] == [(name, True)]
    admin.post(f"/users/{name}/delete", step="apply", typed=name)


HOSTILE = "\"'><script>alert(1)</script>\x1b[31m\u202e{{7*7}}/.."


def test_hostile_names_of_an_apache_server_are_shown_as_text(admin: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    user = rocketpy.User(HOSTILE, False, True, True, (HOSTILE,), (HOSTILE,))
    policy = rocketpy.Policy(HOSTILE, f"Topic:{HOSTILE}", ("Pub",), True, (HOSTILE,), False, (HOSTILE,), (HOSTILE,))

    async def users(_admin: object) -> list[rocketpy.User]:
        return [user]

    async def one(_admin: object, name: str) -> rocketpy.User | None:
        return user if name == HOSTILE else None

    async def policies(_admin: object, _user: str | None = None) -> list[rocketpy.Policy]:
        return [policy]

    for name, call in (("users", users), ("user", one), ("policies", policies)):
        monkeypatch.setattr(rocketpy.AsyncAdmin, name, call)
    page = admin.page("/users")
    found = re.search(r'href="(/[^"]+/users/[^"]*script[^"]*)"', page)
    assert found is not None
    own = admin.client.get(found[1])
    assert own.status_code == 200
    for text in (page, own.text):
        assert "<script>alert(1)" not in text
        assert "&lt;script&gt;alert(1)" in text
        visible = re.sub(r'(value|data-confirm)="[^"]*"', "", text)  # a form sends the name as it is
        assert "\x1b" not in visible
        assert "\u202e" not in visible
        assert "{{7*7}}" in text


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ({"resource": "Queue:x", "action": "Pub"}, "not a resource: Queue:x"),
        ({"resource": "Topic:x", "action": "Fly"}, "not an action: Fly"),
        ({"resource": "Topic:x"}, "no action is given"),
    ],
)
def test_grant_with_a_wrong_value_is_refused(admin: Visitor, form: dict[str, str], text: str) -> None:
    assert text in admin.post(f"/users/{ADMIN.access_key}/grant", 400, step="preview", **form)


def test_own_user_is_warned_before_it_loses_its_access(admin: Visitor) -> None:
    text = admin.post(f"/users/{ADMIN.access_key}/state", step="preview", to="disable")
    assert "This is your own user: you may lose your access." in text


def test_normal_user_may_not_see_users(closed_server: ClosedServer) -> None:
    user = closed_server.new_user(("Cluster:*", "Get"))
    with console(closed_server, "admin", credentials=ADMIN) as client:
        visitor = Visitor(client)
        log_in(visitor, user)
        visitor.page("/users", 403)
        visitor.post("/users/~new", 403, step="apply", name="x")
        visitor.post(f"/users/{ADMIN.access_key}/delete", 403, step="apply", typed=ADMIN.access_key)


def test_cluster_without_users_says_so(rocketpy_server: rocketpy.Server) -> None:
    with console(rocketpy_server, "admin") as client:
        visitor = Visitor(client)
        text = visitor.page("/users")
        assert "Users are off in this cluster, or its servers have none." in text
        assert "authenticationEnabled=true" in text
        assert "New user" not in text
        assert visitor.json("/users")["why_none"]
        visitor.page("/users/x", 404)
        assert "users are off" in visitor.post("/users/~new", 502, step="apply", name="x")
