"""Trace of a message as a timeline: sends, deliveries and ends of transactions, with a bar for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from rocketpy.admin.trace import MessageTrace, TracedDelivery

__all__ = ["Step", "Timeline", "timeline_of"]

WIDTH = 400
"""Width of the bars in units of the drawing."""
MIN_BAR = 2
"""Minimum length of a bar, so that it can be seen."""


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a message."""

    at: datetime | None
    after_ms: int | None
    """Milliseconds since the first event."""
    kind: str
    """`sent`, `received`, `transaction` or `recalled`."""
    who: str
    """Group."""
    client: str
    cost_ms: int | None
    result: str
    is_ok: bool | None
    """None while the result is unknown."""
    left: int = 0
    """Begin of the bar in units of the drawing."""
    length: int = MIN_BAR


@dataclass(frozen=True, slots=True)
class Timeline:
    """All events of a message, the oldest first."""

    steps: tuple[Step, ...]
    span_ms: int
    """Milliseconds from the first to the last event."""
    width: int = WIDTH


def delivered(one: TracedDelivery) -> Step:
    """Step of a delivery."""
    cost = one.cost_ms
    if one.began_at is not None and one.ended_at is not None:
        cost = round((one.ended_at - one.began_at).total_seconds() * 1000)
    text = one.result or {True: "success", False: "failed", None: "no end yet"}[one.success]
    retries = f", retry {one.retries}" if one.retries else ""
    return Step(
        one.began_at or one.ended_at, None, "received", one.group or "", one.client, cost, text + retries, one.success
    )


def timeline_of(trace: MessageTrace) -> Timeline:
    """Timeline of a trace."""
    steps = [
        Step(one.at, None, "sent", one.group, one.client, one.cost_ms, one.kind or "", one.success)
        for one in trace.sends
    ]
    steps += [delivered(one) for one in trace.deliveries]
    steps += [
        Step(one.at, None, "transaction", one.group, one.client, None, one.state, True) for one in trace.transactions
    ]
    steps += [Step(one.at, None, "recalled", one.group, one.client, None, "", one.success) for one in trace.recalls]
    known = [one.at for one in steps if one.at is not None]
    if not known:
        return Timeline(tuple(steps), 0)
    first = min(known)
    after = [None if one.at is None else round((one.at - first).total_seconds() * 1000) for one in steps]
    span = max([1, *(ms + (one.cost_ms or 0) for ms, one in zip(after, steps, strict=True) if ms is not None)])
    placed = [_placed(one, ms, span) for one, ms in zip(steps, after, strict=True)]
    placed.sort(key=lambda one: -1 if one.after_ms is None else one.after_ms)
    return Timeline(tuple(placed), span)


def _placed(one: Step, after_ms: int | None, span_ms: int) -> Step:
    left = min(WIDTH - MIN_BAR, (after_ms or 0) * WIDTH // span_ms)
    length = min(WIDTH - left, max(MIN_BAR, (one.cost_ms or 0) * WIDTH // span_ms))
    return Step(one.at, after_ms, one.kind, one.who, one.client, one.cost_ms, one.result, one.is_ok, left, length)
