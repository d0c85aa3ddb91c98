"""Pages of the console with many topics and groups: time of a page, memory, and processor time of console and broker.

    python benches/macro/console.py
    python benches/macro/console.py --topics 50 --groups 20 --seconds 5    # does it run?

One broker has the topics, of four queues each, and groups with offsets. The console reads it by itself until all rows
are known. The time of a page is that of the whole answer over loopback; the best and the median of the requests are
shown. Processor times are shares of one core over a window: `alone` is the broker without a console, `idle` a console
that nobody watches, `open` a page that polls every 5 s. The windows alternate.
"""

import argparse
import http.client
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

import rocketpy
from monitor import add_groups, fill
from process import ROOT, anonymous_memory_bytes, built_server, cpu_seconds, launched, status

PAGES = ("/", "/topics", "/topics?order=-messages", "/topics?q=499", "/groups", "/groups?order=-lag")
POLL_SECONDS = 5.0
LISTED = "/groups"


def add_topics(name_server: str, count: int) -> None:
    """Creates topics of four queues."""
    with rocketpy.Admin(name_servers=[name_server]) as admin:
        for number in range(count):
            admin.create_topic(f"topic-{number}", queues=4)


@contextmanager
def started(name_server: str, ready: Path) -> Iterator[tuple[int, str]]:
    """Process id and URL of a console on a free port."""
    command = [sys.executable, "-m", "rocketpy", "console", "--name-server", name_server, "--listen", "127.0.0.1:0"]
    ready.unlink(missing_ok=True)
    process = subprocess.Popen([*command, "--ready-file", str(ready)], stdout=subprocess.DEVNULL)
    try:
        while not ready.exists():
            if process.poll() is not None:
                sys.exit(f"error: the console ended with exit code {process.returncode}")
            time.sleep(0.05)
        yield process.pid, json.loads(ready.read_text())["console"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


class Browser:
    """One connection to the console that follows redirects of its own host."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        self.tags: dict[str, str] = {}

    def get(self, path: str, **headers: str) -> tuple[float, int, bytes]:
        """Seconds until the whole answer is there, its status and its body."""
        began = time.perf_counter()
        self._connection.request("GET", path, headers=headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if tag := answer.getheader("ETag"):
            self.tags[path] = tag
        if answer.status in {302, 303, 307}:
            return self.get(answer.getheader("Location") or "/", **headers)
        return time.perf_counter() - began, answer.status, body


def cluster_path(url: str) -> str:
    """Path of the cluster's pages."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.request("GET", "/")
    return (connection.getresponse().getheader("Location") or "/").rstrip("/")


def known(browser: Browser, base: str, topics: int, groups: int) -> None:
    """Waits until the console has read every topic and group once."""
    wanted = {"topics": topics, "groups": groups}
    limit = time.monotonic() + 300
    while wanted:
        for name, count in list(wanted.items()):
            _, code, body = browser.get(f"/api/v1{base}/{name}?size=1", Accept="application/json")
            if code != 200:
                sys.exit(f"error: /api/v1{base}/{name} answered {code}: {body[:200]!r}")
            if json.loads(body).get("total", 0) >= count:
                del wanted[name]
        if time.monotonic() > limit:
            sys.exit(f"error: not known after 300 s: {wanted}")
        time.sleep(0.2)


def page_times(browser: Browser, base: str, requests: int) -> dict[str, list[float]]:
    """Times of each page in milliseconds."""
    times: dict[str, list[float]] = {}
    for _ in range(requests):
        for page in PAGES:
            seconds, code, body = browser.get(f"{base}{page}")
            if code != 200:
                sys.exit(f"error: {page} answered {code}: {body[:200]!r}")
            times.setdefault(page, []).append(seconds * 1e3)
    return times


def polling(url: str, base: str, stop: threading.Event) -> None:
    """Asks for the rows of a list as an open page does."""
    browser, path = Browser(url), f"{base}{LISTED}?part=rows"
    while not stop.is_set():
        tag = browser.tags.get(path)
        browser.get(path, **({"If-None-Match": tag} if tag else {}))
        stop.wait(POLL_SECONDS)


def share(pids: tuple[int, ...], seconds: float) -> list[float]:
    """Processor time of each process over a window, as a share of one core."""
    before = [cpu_seconds(pid) for pid in pids]
    time.sleep(seconds)
    return [(cpu_seconds(pid) - was) / seconds for pid, was in zip(pids, before, strict=True)]


def shown(console: Console, what: str, values: list[float], unit: str) -> None:
    low, high = min(values), max(values)
    console.print(f"{what}: {statistics.median(values):,.3g} {unit} ({low:,.3g} to {high:,.3g})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=5_000)
    parser.add_argument("--groups", type=int, default=2_000)
    parser.add_argument("--requests", type=int, default=20, help="requests of each page")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the windows alone, idle, open")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of a window")
    parser.add_argument("--server", type=Path, help="`rocketpy-server`; default: builds the release")
    options = parser.parse_args()
    program = built_server(options.server)
    console = Console(width=None if sys.stdout.isatty() else 160)
    with tempfile.TemporaryDirectory(prefix="rocketpy-bench-", dir=ROOT / "target") as folder:
        store, ready = Path(folder, "store"), Path(folder, "console.json")
        with launched(program, store, Path(folder, "first.json")) as running:
            fill(running)
            add_topics(running.name_server, options.topics)
        add_groups(store, options.groups)
        with launched(program, store, Path(folder, "ready.json")) as running:
            broker: dict[str, list[float]] = {"alone": [], "idle": [], "open": []}
            idle: list[float] = []
            memory: list[float] = []
            for number in range(options.rounds):
                broker["alone"] += share((running.pid,), options.seconds)
                with started(running.name_server, ready) as (pid, url):
                    browser = Browser(url)
                    base = cluster_path(url)
                    known(browser, base, options.topics + 2, options.groups)
                    if number == 0:
                        for page, times in page_times(browser, base, options.requests).items():
                            console.print(f"{page}: best {min(times):.1f} ms, median {statistics.median(times):.1f} ms")
                    time.sleep(options.seconds)  # the first round of samples is over
                    ours, theirs = share((pid, running.pid), options.seconds)
                    idle.append(ours)
                    broker["idle"].append(theirs)
                    stop = threading.Event()
                    watching = threading.Thread(target=polling, args=(url, base, stop))
                    watching.start()
                    broker["open"] += share((running.pid,), options.seconds)
                    stop.set()
                    watching.join()
                    memory.append(status(Path(f"/proc/{pid}"), "VmRSS") / 1024)
                    console.print(f"own memory: {anonymous_memory_bytes(pid) / (1 << 20):,.1f} MiB")
            shown(console, "console, processor, idle", [one * 100 for one in idle], "% of a core")
            for name, values in broker.items():
                shown(console, f"broker, processor, console {name}", [one * 100 for one in values], "% of a core")
            shown(console, "console, resident memory", memory, "MiB")


if __name__ == "__main__":
    main()
