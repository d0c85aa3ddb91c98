"""Health, metrics and icon: for machines, without names of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.responses import Response

    from rocketpy.console.view import View

STALE_PERIODS = 6
"""Number of periods without an answer of a name server after which the console is not ready."""


async def live(view: View) -> Response:
    """Answers while the process serves requests."""
    return PlainTextResponse("ok")


async def ready(view: View) -> Response:
    """Whether the cluster was read lately."""
    at, period = view.snapshot.brokers_at, view.console.settings.period
    gap = any(one.part == "brokers" for one in view.snapshot.gaps)
    is_ready = at is not None and not gap and view.console.age(at) < STALE_PERIODS * period
    return PlainTextResponse("ok" if is_ready else "not ready", 200 if is_ready else 503)


async def metrics(view: View) -> Response:
    """Figures of the console itself, in the format of Prometheus."""
    state, collector = view.snapshot, view.console.collector
    found = {
        "rocketpy_console_requests_total": ("counter", "SDK calls of the collector", collector.requests),
        "rocketpy_console_topics": ("gauge", "Known topics", len(state.topics)),
        "rocketpy_console_topics_sampled": ("gauge", "Topics with figures", state.sampled),
        "rocketpy_console_groups": ("gauge", "Known groups", len(state.groups)),
        "rocketpy_console_brokers_down": ("gauge", "Brokers that do not answer", len(state.down)),
        "rocketpy_console_history_bytes": ("gauge", "Memory of the history", collector.history.bytes),
        "rocketpy_console_sessions": ("gauge", "Open sessions", len(view.console.sessions)),
    }
    lines = [
        f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name} {value}" for name, (kind, text, value) in found.items()
    ]
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


async def favicon(view: View) -> Response:
    """Browsers ask for this name by themselves."""
    return RedirectResponse("/static/favicon.svg", 301)
