"""Who may do what: routes and roles, hosts, origins, headers, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console_app import CLUSTER, SAME_ORIGIN
from rocketpy.console import routes
from rocketpy.console.routes import ROUTES, Route, handler_of
from rocketpy.console.settings import ROLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from console_app import Browser
    from rocketpy.console.settings import Role

API = "/api/v1"


def path_of(route: Route, topic: str) -> str:
    if route.path.endswith("/stream"):
        topic = "no-such-topic"  # the stream of a topic that exists does not end
    path = route.path.replace("/C/", f"{CLUSTER}/", 1) if route.path.startswith("/C/") else route.path
    return path.replace("{topic}", topic).replace("{group}", "no-group").replace("{broker}", "broker-a")


CASES = [(route, method) for route in ROUTES for method in route.methods]
ADDRESSES = [(route, method, prefix) for route, method in CASES for prefix in (("", API) if route.api else ("",))]


@pytest.mark.parametrize(
    ("route", "method", "prefix"),
    ADDRESSES,
    ids=[f"{method} {prefix}{route.path}" for route, method, prefix in ADDRESSES],
)
def test_every_route_asks_for_its_permission(
    consoles: Callable[[Role], Browser], role: Role, shared_topic: str, route: Route, method: str, prefix: str
):
    if route.path.endswith("/stream") and route.needs(method) in ROLES[role]:
        return  # an answer without an end: the test client would read all of it
    browser = consoles(role)
    path = prefix + path_of(route, shared_topic)
    answer = browser.request(method, path, headers=SAME_ORIGIN, follow_redirects=False)
    if route.needs(method) in ROLES[role]:
        assert answer.status_code < 500 or route.path == "/health/ready"
        assert answer.status_code != 403
        assert "Traceback" not in answer.text
    else:
        assert answer.status_code == 403
        assert "may not" in (answer.json()["error"] if prefix else answer.text)


def test_routes_without_a_permission_or_a_handler_do_not_start():
    with pytest.raises(ValueError, match="unknown permission"):
        Route("/C/x", ("GET",), "anything", "x", "topics.index")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="incomplete"):
        Route("/C/x", ("GET",), "read", "", "topics.index")
    with pytest.raises(TypeError, match="coroutine function"):
        handler_of(Route("/C/x", ("GET",), "read", "x", "topics.filtered"))
    assert len({(route.path, method) for route, method in CASES}) == len(CASES)
    assert routes.ROUTES is ROUTES


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Origin": "http://127.0.0.1:8080"}, 200),
        ({"Origin": "http://127.0.0.1:9090"}, 403),
        ({"Origin": "https://127.0.0.1:8080"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[bad"}, 403),
        ({"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "cross-site"}, 403),
        ({}, 403),
    ],
)
@pytest.mark.parametrize("prefix", ["", API])
def test_writes_of_other_origins_are_refused(browser: Browser, headers: dict[str, str], status: int, prefix: str):
    form = {"name": "csrf-topic", "queues": "1", "step": "preview"}
    answer = browser.post(f"{prefix}{CLUSTER}/topics/~new", data=form, headers=headers)
    assert answer.status_code == status
    cookie = {"Cookie": "rp=x", "Authorization": "Bearer x"}
    assert browser.post(f"{prefix}{CLUSTER}/topics/~new", data=form, headers=cookie).status_code == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("localhost:8080", 200),
        ("[::1]:8080", 200),
        ("evil.example", 400),
        ("localhost.evil.example", 400),
        ("127.0.0.1.evil.example:8080", 400),
        ("", 400),
    ],
)
def test_hosts_that_are_not_listed_are_refused(browser: Browser, host: str, status: int):
    assert browser.get(f"{CLUSTER}/topics", headers={"Host": host}).status_code == status


def test_pages_have_a_strict_policy_and_are_not_stored(browser: Browser):
    first, second = browser.get(f"{CLUSTER}/"), browser.get(f"{CLUSTER}/")
    policies = [answer.headers["content-security-policy"] for answer in (first, second)]
    assert policies[0] != policies[1]
    nonce = policies[0].partition("'nonce-")[2].partition("'")[0]
    assert f'nonce="{nonce}"' in first.text
    for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "require-trusted-types-for"):
        assert part in policies[0]
    assert "unsafe" not in policies[0]
    assert first.headers["cache-control"] == "no-store"
    assert first.headers["x-content-type-options"] == "nosniff"
    assert first.headers["referrer-policy"] == "no-referrer"
    assert "server" not in first.headers
    assert "strict-transport-security" not in first.headers


def test_refusals_have_the_headers_too(browser: Browser):
    for answer in (
        browser.get("/nothing/at/all"),
        browser.get(f"{CLUSTER}/topics", headers={"Host": "evil.example"}),
        browser.post(f"{CLUSTER}/topics/~new"),
    ):
        assert answer.status_code in {400, 403, 404}
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"


def test_polled_parts_are_not_modified_while_nothing_changes(browser: Browser):
    path = f"{CLUSTER}/topics?part=rows"
    first = browser.get(path)
    assert first.headers["cache-control"] == "private, no-cache"
    assert "<html" not in first.text
    again = browser.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert again.content == b""
    assert "content-security-policy" not in again.headers, "it would give the kept body another nonce"
    assert browser.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


def test_polls_that_fail_do_not_swap_a_page_into_a_part(browser: Browser):
    answer = browser.get(f"{CLUSTER}/topics/no-such-topic?part=now")
    assert (answer.status_code, answer.content) == (404, b"")
    assert answer.headers["hx-refresh"] == "true"
    assert browser.get(f"{CLUSTER}/topics?part=unknown").status_code == 404
    assert browser.get(f"{CLUSTER}/topics/no-such-topic?part=frame").status_code == 200


def test_large_bodies_paths_and_broken_forms_are_refused(browser: Browser):
    path = f"{CLUSTER}/topics/~new"
    assert browser.post(path, content=b"x" * (6 << 20), headers=SAME_ORIGIN).status_code == 413
    assert browser.get(f"{CLUSTER}/topics?q={'x' * 9000}").status_code == 414
    assert browser.post(path, content=b"name=\xff", headers=SAME_ORIGIN).status_code == 400
    many = "&".join(f"a{at}=1" for at in range(3000))
    assert browser.post(path, content=many.encode(), headers=SAME_ORIGIN).status_code == 400


def test_other_methods_and_clusters_are_refused(browser: Browser):
    assert browser.delete(f"{CLUSTER}/topics", headers=SAME_ORIGIN).status_code == 404
    assert browser.get("/other-cluster/topics").status_code == 404
    assert browser.get("/static/../app.py").status_code == 404
    assert browser.get("/static/%2e%2e/app.py").status_code == 404


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\\\evil.example", "/////evil.example"])
def test_pages_never_link_to_another_host(browser: Browser, path: str):
    page = browser.get(f"http://127.0.0.1:8080{path}")
    assert page.status_code == 404
    assert 'href="//' not in page.text
    assert 'href="/\\' not in page.text


def test_times_are_in_the_zone_of_the_browser(browser: Browser):
    assert "Times in UTC ·" in browser.get(f"{CLUSTER}/").text
    page = browser.get(f"{CLUSTER}/", headers={"Cookie": "rp-zone=120; rp-theme=dark; rp-refresh=off"}).text
    assert "Times in UTC+02:00" in page
    assert 'data-theme="dark"' in page
    assert "paused" in page
    strange = browser.get(f"{CLUSTER}/", headers={"Cookie": 'rp-zone="><b>; rp-theme=<i>; rp-stars=<b>'}).text
    assert "Times in UTC ·" in strange
    assert "<b>" not in strange


def test_health_and_metrics_name_no_topic(browser: Browser, topic: str):
    browser.refresh()
    assert browser.get("/health/live").text == "ok"
    assert browser.get("/health/ready").text == "ok"
    metrics = browser.get("/metrics").text
    assert "rocketpy_console_topics " in metrics
    assert topic not in metrics
    assert browser.get("/favicon.ico").headers["content-type"].startswith("image/svg")


def test_static_files_are_kept_by_their_version(browser: Browser):
    vendored = browser.get("/static/vendor/htmx-4.0.1.min.js")
    assert "immutable" in vendored.headers["cache-control"]
    assert vendored.headers["content-type"].startswith("text/javascript")
    assert browser.get("/static/console.css").headers["cache-control"] == "no-cache"
