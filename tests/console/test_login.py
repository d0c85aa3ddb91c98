"""Login by users of the cluster: sessions, roles, failures."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from closed_server import ADMIN
from console_app import CLUSTER, PATIENT, SAME_ORIGIN, opened
from rocketpy.console import Settings, sessions, web
from rocketpy.console.routes import ROUTES
from rocketpy.console.sessions import WRONG, LoginError, Sessions

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


@pytest.mark.parametrize("path", [one.path for one in ROUTES if one.permission == "none" and "GET" in one.methods])
def test_open_routes_show_no_frame_without_a_login(browser: Browser, path: str):
    templates = browser.console.templates
    blocks = {name for file in templates.list_templates(["html"]) for name in templates.get_template(file).blocks}
    parts = {name.removeprefix("part_") for name in blocks if name.startswith("part_")}
    assert {"frame", "rows"} <= parts
    for part in parts:
        answer = browser.get(path, params={"part": part}, follow_redirects=False)
        assert "Pages" not in answer.text
        assert CLUSTER not in answer.text


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


def test_alerts_of_a_console_with_a_login_belong_to_administrators(browser: Browser, closed_server: ClosedServer):
    silence = {"rule": "", "subject": "*", "for": "1 h", "reason": ""}
    writes = [
        ("rules/~new", {"step": "apply"}), ("rules/lag", {"step": "apply"}), ("rules/lag/delete", {"step": "apply"}),
        ("silences/~new", silence), ("silences/x/end", {}), ("brokers/broker-a/forget", {}),
    ]  # fmt: skip
    assert log_in(browser, closed_server.new_user()) == 303
    rules, silences = (browser.get(f"{CLUSTER}/alerts/{page}").text for page in ("rules", "silences"))
    assert "New rule" not in rules
    assert "New silence" not in silences
    for path, form in writes:
        for prefix in ("", "/api/v1"):
            assert browser.write(f"{prefix}{CLUSTER}/alerts/{path}", **form).status_code == 403
    browser.cookies.clear()
    assert log_in(browser, ADMIN) == 303
    assert "New rule" in browser.get(f"{CLUSTER}/alerts/rules").text
    assert browser.write(f"{CLUSTER}/alerts/silences/~new", **silence).status_code == 303


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


def test_parallel_guesses_have_the_limit_of_guesses_in_a_row(monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    async def refused(_make: object, _name: str, password: str) -> None:
        asked.append(password)
        await asyncio.sleep(0)
        raise LoginError(WRONG)

    async def guess(known: Sessions, password: str) -> str:
        with pytest.raises(LoginError) as error:
            await known.login("admin", password, "127.0.0.1")
        return str(error.value)

    async def guesses() -> list[str]:
        known = Sessions(Settings("127.0.0.1:1", credentials=ADMIN), None)  # type: ignore[arg-type]
        return await asyncio.gather(*(guess(known, str(at)) for at in range(50)))

    monkeypatch.setattr(sessions, "proved", refused)
    texts = asyncio.run(guesses())
    assert len(asked) == sessions.FREE_FAILURES + 1
    assert texts.count(WRONG) == len(asked)
    assert all("too many failures" in text for text in texts if text != WRONG)


def test_outage_of_the_cluster_counts_no_failure(monkeypatch: pytest.MonkeyPatch):
    async def unreachable(_make: object, _name: str, _password: str) -> None:
        raise LoginError("cannot log in: cannot connect")

    async def attempts() -> Sessions:
        known = Sessions(Settings("127.0.0.1:1", credentials=ADMIN), None)  # type: ignore[arg-type]
        for _ in range(sessions.FREE_FAILURES + 5):
            with pytest.raises(LoginError, match="cannot connect"):
                await known.login("admin", "x", "127.0.0.1")
        return known

    monkeypatch.setattr(sessions, "proved", unreachable)
    assert asyncio.run(attempts())._failures == {}


def test_logins_have_small_bodies_and_names(browser: Browser):
    large = "x" * (web.MAX_LOGIN + 1)
    answer = browser.post("/login", content=f"name={large}&password=x", headers=SAME_ORIGIN)
    assert answer.status_code == 413
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    answer = browser.write("/login", name="x" * (sessions.MAX_NAME + 1), password="x")
    assert (answer.status_code, WRONG in answer.text) == (401, True)
    assert not browser.console.sessions._failures
    browser.write("/login", name="x" * sessions.MAX_NAME, password="x")
    assert max(map(len, browser.console.sessions._failures)) == sessions.MAX_NAME + 2


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


@pytest.mark.parametrize("path", ["/topics?part=rows", "/?part=frame", "/series?of=in"])
def test_polls_of_an_open_page_do_not_renew_a_session(browser: Browser, monkeypatch: pytest.MonkeyPatch, path: str):
    clock = [100.0]
    monkeypatch.setattr(sessions, "monotonic", lambda: clock[0])
    assert log_in(browser, ADMIN) == 303
    clock[0] += sessions.IDLE_SECONDS - 1
    assert browser.get(f"{CLUSTER}{path}").status_code == 200
    clock[0] += 2
    assert browser.get(f"{CLUSTER}{path}").status_code == 401


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


def test_metrics_beyond_loopback_need_a_login(browser: Browser, closed_server: ClosedServer):
    assert browser.get("/metrics").status_code == 200, "a local scraper has no login"
    settings = Settings(closed_server.name_server, host="0.0.0.0", credentials=ADMIN, **PATIENT)
    with opened(settings) as remote:
        for path in ("/metrics", "/metrics?part=frame"):
            answer = remote.get(path)
            assert answer.status_code == 401
            assert "rocketpy_console" not in answer.text
        assert remote.get("/health/live").status_code == 200
        assert log_in(remote, ADMIN) == 303
        assert "rocketpy_console_topics " in remote.get("/metrics").text


def test_logins_of_other_origins_are_refused(browser: Browser):
    form = {"name": ADMIN.access_key, "password": ADMIN.secret_key}
    assert browser.post("/login", data=form, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert browser.post("/login", data=form, headers=SAME_ORIGIN, follow_redirects=False).status_code == 303


def test_a_password_proves_nothing_where_the_cluster_checks_none(rocketpy_server: PatientServer):
    with opened(Settings(rocketpy_server.name_server, credentials=ADMIN, **PATIENT)) as browser:
        answer = browser.write("/login", name="anybody", password="anything")
        assert answer.status_code == 401
        assert "no access control" in answer.text
