"""Debian's Chromium as tests drive it: no other host, and no message in its console."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from rocketpy.console.embedded import EmbeddedConsole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from rocketpy.console import Settings

NAMES = ("chromium", "chromium-browser", "google-chrome")
ONLY_LOOPBACK = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
EXPECT_MS = 60_000
"""Time that a busy machine gets for what a page shows next."""

expect.set_options(timeout=EXPECT_MS)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium is installed")
    arguments = [ONLY_LOOPBACK, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


@contextmanager
def opened_page(browser: Browser, url: str, *, allowed: tuple[str, ...] = (), **options: Any) -> Iterator[Page]:
    """A page in a context of its own. Messages in the browser's console, dialogs and other hosts fail the test.

    Args:
        browser: The browser.
        url: URL of the console, before each path of `page.goto`.
        allowed: Parts of messages that the test expects.
        options: Options of the context, such as `color_scheme`.
    """
    wrong: list[str] = []
    context = browser.new_context(base_url=url, **{"viewport": {"width": 1280, "height": 800}, **options})
    context.set_default_timeout(EXPECT_MS)
    page = context.new_page()
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: request.url.startswith((url, "data:")) or wrong.append(request.url))
    yield page
    context.close()
    assert [text for text in wrong if not any(part in text for part in allowed)] == []


@contextmanager
def served(settings: Settings) -> Iterator[EmbeddedConsole]:
    """A console that listens on a free port."""
    with EmbeddedConsole(settings) as console:
        yield console
