"""The console in Chromium: every page in both themes, refresh, keys, changes, a phone, a smuggled element."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import rocketpy
from console_app import CLUSTER
from console_browser import chromium, opened_page, served
from rocketpy.console import Settings
from rocketpy.testing import fresh_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page, Route

    from rocketpy.testing import PatientServer

PERIOD = 0.5
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21aa"]}}
TOPIC = "browser-orders"
PAGES = (
    "/", "/topics", "/topics?q=nothing-has-this-name", "/topics?system=1&order=-messages", "/topics/~new",
    f"/topics/{TOPIC}", f"/topics/{TOPIC}/queues", f"/topics/{TOPIC}/groups", f"/topics/{TOPIC}/config",
    f"/topics/{TOPIC}/delete", "/series?as=table", "/find?q=o", "/topics/no-such-topic",
    "/alerts", "/alerts/rules", "/alerts/rules/lag", "/alerts/rules/~new", "/alerts/silences", "/alerts/silences/~new",
    "/alerts/channels", "/brokers", "/brokers/broker-a", "/brokers/broker-a/config?edit=fileReservedTime",
    "/brokers/broker-a/quotas", "/brokers/broker-a/role",
)  # fmt: skip
NOT_FOUND = ("404 (Not Found)", "400 (Bad Request)")


@pytest.fixture(scope="module")
def url(rocketpy_server: PatientServer) -> Iterator[str]:
    """A console with traffic: a topic with messages, and a group that is behind."""
    stop = threading.Event()
    with rocketpy_server.admin() as admin, rocketpy_server.producer("browser") as producer:
        admin.create_topic(TOPIC, queues=2)
        producer.send_many([rocketpy.Message(TOPIC, b'{"order": 1}') for _ in range(50)])
        with rocketpy_server.consumer("browser-readers", TOPIC) as consumer:
            while not consumer.poll(timeout=1):
                pass
            consumer.commit()

        def send() -> None:
            while not stop.wait(0.1):
                producer.send(rocketpy.Message(TOPIC, b"{}"))

        sender = threading.Thread(target=send)
        sender.start()
        try:
            with served(Settings(rocketpy_server.name_server, period=PERIOD, request_timeout=60.0)) as console:
                yield console.url
        finally:
            stop.set()
            sender.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    with opened_page(browser, url) as found:
        yield found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_are_accessible_and_quiet(browser: Browser, url: str, theme: str):
    with opened_page(browser, url, allowed=NOT_FOUND, color_scheme=theme) as page:
        for path in PAGES:
            page.goto(f"{CLUSTER}{path}")
            expect(page.get_by_role("heading", level=1)).to_have_count(1)
            found = Axe().run(page, options=RULES)
            assert found.violations_count == 0, f"{path}\n{found.generate_report()}"


def test_pages_fit_a_phone(browser: Browser, url: str):
    with opened_page(browser, url, allowed=NOT_FOUND, viewport={"width": 390, "height": 844}) as page:
        for path in PAGES:
            page.goto(f"{CLUSTER}{path}")
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_a_new_topic_appears_and_figures_change_without_a_reload(page: Page, rocketpy_server: PatientServer):
    page.goto(f"{CLUSTER}/topics?q=browser")
    row = page.get_by_role("row", name=TOPIC)
    messages = row.get_by_role("cell").nth(2)
    expect(messages).to_have_text(re.compile("[1-9]"))
    before = messages.inner_text()
    name = fresh_name("browser")
    with rocketpy_server.admin() as admin:
        admin.create_topic(name, queues=1)
    expect(page.get_by_role("row", name=name)).to_be_visible()
    expect(messages).not_to_have_text(before)


def test_a_topic_is_created_changed_and_deleted(browser: Browser, url: str):
    name = fresh_name("clicked")
    with opened_page(browser, url, allowed=("400 (Bad Request)",)) as page:
        page.goto(f"{CLUSTER}/topics")
        page.get_by_role("link", name="New topic").click()
        page.get_by_label("Name", exact=True).fill("not a name")
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("alert")).to_contain_text("name must have")
        page.get_by_label("Name", exact=True).fill(name)
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_text(f"rocketpy topic create {name} --queues=8")).to_be_visible()
        page.get_by_role("button", name=f"Create topic {name}").click()
        expect(page.get_by_role("status")).to_contain_text(f"Topic {name} has 8 queues")

        page.get_by_role("link", name="Config").click()
        page.get_by_label("Consumers and producers may").select_option("r")
        page.get_by_role("button", name="Preview").click()
        page.get_by_role("button", name=f"Change topic {name}").click()
        expect(page.get_by_role("status")).to_contain_text(f"1 setting of {name} changed.")

        page.get_by_role("link", name=f"Delete topic {name}").click()
        button = page.get_by_role("button", name=f"Delete topic {name}")
        expect(button).to_be_disabled()
        page.get_by_label("Type the name of the topic").fill(name)
        button.click()
        expect(page.get_by_role("status")).to_contain_text(f"Topic {name} is deleted.")


def test_keys_go_to_pages_and_are_off_in_fields(page: Page):
    page.goto(f"{CLUSTER}/")
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page).to_have_url(re.compile("/topics$"))
    page.keyboard.press("/")
    expect(page.get_by_placeholder("Search or paste an id")).to_be_focused()
    page.keyboard.type("gt?jx")
    expect(page.get_by_placeholder("Search or paste an id")).to_have_value("gt?jx")
    page.keyboard.press("Escape")
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("j")
    expect(page.locator("tr.at")).to_have_count(1)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_theme_zone_pause_and_favourites_are_kept(page: Page):
    page.goto(f"{CLUSTER}/topics?q={TOPIC}")
    page.get_by_role("button", name="Theme").click()
    page.get_by_role("button", name="5 s").click()
    star = page.get_by_role("button", name=f"Favourite {TOPIC}")
    star.click()
    expect(star).to_have_attribute("aria-pressed", "true")
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    expect(page.get_by_role("button", name="paused")).to_be_visible()
    expect(page.get_by_role("button", name=f"Favourite {TOPIC}")).to_have_attribute("aria-pressed", "true")
    page.goto(f"{CLUSTER}/topics?order=-name")
    expect(page.locator("tbody tr").first).to_contain_text(TOPIC)


def test_paused_pages_send_no_requests_until_r(page: Page):
    page.goto(f"{CLUSTER}/topics")
    page.get_by_role("button", name="5 s").click()
    polls: list[str] = []
    page.on("request", lambda request: polls.append(request.url))
    page.clock.install()
    page.clock.run_for(60_000)
    assert polls == []
    page.keyboard.press("r")
    with page.expect_response(re.compile("part=rows")):
        page.keyboard.press("r")


def test_charts_are_drawn_and_have_a_table(page: Page):
    page.goto(f"{CLUSTER}/")
    chart = page.get_by_role("region", name="In and out")
    expect(chart.locator("canvas")).to_have_count(1)
    expect(chart.locator(".legend")).to_contain_text(re.compile(r"in \d"))
    chart.get_by_role("button", name="6 h").click()
    expect(chart.get_by_role("button", name="6 h")).to_have_attribute("aria-pressed", "true")
    chart.get_by_role("link", name="Show as table").click()
    expect(page.get_by_role("columnheader", name="in", exact=True)).to_be_visible()


def test_an_element_without_the_nonce_stays_dead_even_if_the_extension_is_late(browser: Browser, url: str):
    with opened_page(browser, url, allowed=("hx-csp",)) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))

        def smuggle(route: Route) -> None:
            answer = route.fetch()
            evil = '<p id="evil" hx-get="/static/console.css?evil" hx-trigger="load"></p></main>'
            route.fulfill(response=answer, body=answer.text().replace("</main>", evil))

        def late(route: Route) -> None:
            page.wait_for_timeout(400)
            route.continue_()

        page.route(f"**{CLUSTER}/topics", smuggle)
        page.route("**/hx-csp-*.js", late)
        page.route("**/hx-sse-*.js", late)
        page.goto(f"{CLUSTER}/topics")
        with page.expect_response(re.compile("part=rows")):
            pass
        assert not [one for one in asked if "evil" in one]
        assert page.locator("#evil").get_attribute("hx-get") is None


def test_pages_work_without_scripts(browser: Browser, url: str):
    with opened_page(browser, url, java_script_enabled=False) as page:
        page.goto(f"{CLUSTER}/topics?q={TOPIC}")
        page.get_by_role("link", name=TOPIC).click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(TOPIC)
        page.get_by_role("link", name="Queues").click()
        expect(page.get_by_role("row")).to_have_count(3)
        expect(page.get_by_role("button", name="Theme")).to_be_hidden()
