"""Login by users of the cluster: sessions, roles, failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from closed_server import ADMIN
from console_app import CLUSTER, PATIENT, SAME_ORIGIN, opened
from rocketpy.console import Settings, sessions
from rocketpy.console.sessions import WRONG

if TYPE_CHECKING:
    from collections.abc import Iterator

    import rocketpy
    from closed_server import ClosedServer
    from console_app import Browser
    from rocketpy.testing import PatientServer


@pytest.fixture(scope="module")
def login_console(closed_server: ClosedServer) -> Iterator[Browser]:
    settings = Settings(closed_server.name_server, credentials=ADMIN, role="admin", **PATIENT)
    with opened(settings) as browser:
        yield browser


@pytest.fixture
def browser(login_console: Browser) -> Browser:
    login_console.cookies.clear()
    login_console.console.sessions._failures.clear()
    return login_console


def log_in(browser: Browser, user: rocketpy.Credentials, goal: str = "/") -> int:
    return browser.write("/login", name=user.access_key, password=user.secret_key, goal=goal).status_code


def test_pages_ask_for_a_login_at_the_same_address(browser: Browser):
    page = browser.get(f"{CLUSTER}/topics?q=orders")
    assert page.status_code == 401
    assert f'name="goal" value="{CLUSTER}/topics?q=orders"' in page.text
    assert "Topics" not in page.text
    poll = browser.get(f"{CLUSTER}/topics?part=rows")
    assert (poll.status_code, poll.content, poll.headers["hx-refresh"]) == (401, b"", "true")
    assert browser.get(f"/api/v1{CLUSTER}/topics").status_code == 401
    assert browser.write(f"{CLUSTER}/topics/~new", name="x").status_code == 401
    assert browser.get("/health/live").status_code == 200


def test_a_super_user_is_an_administrator_until_the_logout(browser: Browser):
    answer = browser.write("/login", name=ADMIN.access_key, password=ADMIN.secret_key, goal=f"{CLUSTER}/topics")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{CLUSTER}/topics")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert ADMIN.secret_key not in cookie
    page = browser.get(f"{CLUSTER}/topics")
    assert "admin · admin" in page.text
    assert ADMIN.secret_key not in page.text
    assert browser.write("/logout").headers["location"] == "/login"
    assert browser.get(f"{CLUSTER}/topics").status_code == 401
    lines = list(browser.console.audit.recent)[-2:]
    assert [(one["action"], one["user"], one["result"]) for one in lines] == [
        ("log in", ADMIN.access_key, "done"),
        ("log out", ADMIN.access_key, "done"),
    ]
    assert ADMIN.secret_key not in str(lines)


def test_other_users_are_operators_and_the_broker_decides(browser: Browser, closed_server: ClosedServer):
    user = closed_server.new_user(("Topic:orders", "Pub"))
    assert log_in(browser, user) == 303
    assert f"{user.access_key} · operator" in browser.get(f"{CLUSTER}/").text
    form = {"name": "denied-topic", "queues": "1", "step": "apply"}
    answer = browser.write(f"{CLUSTER}/topics/~new", **form)
    assert answer.status_code == 403
    assert "has no permission" in answer.text
    failed = [one for one in browser.console.audit.recent if one["object"] == "denied-topic"][-1]
    assert (failed["result"], failed["user"]) == ("failed", user.access_key)


@pytest.mark.parametrize(
    ("name", "password"),
    [("nobody", "x"), (ADMIN.access_key, "wrong"), ("", ""), (ADMIN.access_key, ""), ("a\nb", "x")],
)
def test_wrong_names_and_passwords_get_the_same_answer(browser: Browser, name: str, password: str):
    answer = browser.write("/login", name=name, password=password)
    assert answer.status_code == 401
    assert WRONG in answer.text
    assert browser.console.audit.recent[-1]["result"] == "failed"
    assert "set-cookie" not in answer.headers


def test_repeated_failures_wait(browser: Browser, monkeypatch: pytest.MonkeyPatch):
    clock = [100.0]
    monkeypatch.setattr(sessions, "monotonic", lambda: clock[0])
    for _ in range(6):
        assert WRONG in browser.write("/login", name="nobody", password="x").text
    assert "too many failures, try again in 1 s" in browser.write("/login", name="nobody", password="x").text
    assert "too many failures" in browser.write("/login", name=ADMIN.access_key, password=ADMIN.secret_key).text
    clock[0] += 1.5
    assert log_in(browser, ADMIN) == 303


def test_sessions_end_after_a_pause_and_after_a_day(browser: Browser, monkeypatch: pytest.MonkeyPatch):
    clock = [100.0]
    monkeypatch.setattr(sessions, "monotonic", lambda: clock[0])
    assert log_in(browser, ADMIN) == 303
    for _ in range(25):
        clock[0] += sessions.IDLE_SECONDS - 1
        status = browser.get(f"{CLUSTER}/").status_code
        if clock[0] - 100 > sessions.MAX_SECONDS:
            break
        assert status == 200
    assert status == 401
    assert log_in(browser, ADMIN) == 303
    clock[0] += sessions.IDLE_SECONDS + 1
    assert browser.get(f"{CLUSTER}/").status_code == 401


def test_sessions_of_one_user_are_limited(browser: Browser):
    for _ in range(sessions.MAX_PER_USER + 2):
        browser.cookies.clear()
        assert log_in(browser, ADMIN) == 303
    known = browser.console.sessions._known.values()
    assert sum(one.user == ADMIN.access_key for one in known) == sessions.MAX_PER_USER
    assert browser.get(f"{CLUSTER}/").status_code == 200


def test_the_goal_of_a_login_is_never_another_host(browser: Browser):
    for goal in ("https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)"):
        answer = browser.write("/login", name=ADMIN.access_key, password=ADMIN.secret_key, goal=goal)
        assert answer.headers["location"] == "/"


def test_logins_of_other_origins_are_refused(browser: Browser):
    form = {"name": ADMIN.access_key, "password": ADMIN.secret_key}
    assert browser.post("/login", data=form, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert browser.post("/login", data=form, headers=SAME_ORIGIN, follow_redirects=False).status_code == 303


def test_a_password_proves_nothing_where_the_cluster_checks_none(rocketpy_server: PatientServer):
    with opened(Settings(rocketpy_server.name_server, credentials=ADMIN, **PATIENT)) as browser:
        answer = browser.write("/login", name="anybody", password="anything")
        assert answer.status_code == 401
        assert "no access control" in answer.text
