"""Audit: who did what in this console, with a filter and an export."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from starlette.concurrency import iterate_in_threadpool
from starlette.responses import StreamingResponse

from rocketpy.base.instant import datetime_of, now_ms
from rocketpy.console.names import UNKNOWN
from rocketpy.console.tables import Rows, page_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from starlette.responses import Response

    from rocketpy.console.view import View

MAX_EXPORT = 1 << 30
"""Maximum size of an export in bytes."""
RESULTS = ("started", "done", "failed", "unknown")


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One line of the audit log. A body is never part of it."""

    time: datetime | None
    user: str
    address: str
    action: str
    object: str
    before: str
    parameters: str
    after: str
    result: str
    text: str
    request: str


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Lines of the audit log, newest first."""

    lines: Rows[AuditRow]
    is_kept: bool
    """Whether a restart keeps the lines."""


def value_text(value: Any) -> str:
    """Value of a line as text."""
    if value in (None, "", {}, []):
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{name}: {value_text(one) or UNKNOWN}" for name, one in value.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value if isinstance(value, str) else json.dumps(value)


def row_of(line: Mapping[str, Any]) -> AuditRow:
    """Row of a line."""
    names = ("user", "address", "action", "object")
    known = [str(line.get(name, "")) for name in names]
    values = [value_text(line.get(name)) for name in ("before", "parameters", "after")]
    rest = [str(line.get(name, "") or "") for name in ("result", "text", "request")]
    try:
        at = datetime.fromisoformat(str(line.get("time", "")))
    except ValueError:
        at = None
    return AuditRow(at, *known, *values, *rest)


def is_wanted(line: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    """Whether a line passes the filter of a query."""
    for name in ("user", "action", "result"):
        if query.get(name) and str(line.get(name, "")) != query[name]:
            return False
    text = query.get("q", "").strip().lower()
    return not text or text in json.dumps(dict(line), ensure_ascii=False, default=str).lower()


async def index(view: View) -> Response:
    """The audit log of this console."""
    lines = list(view.audit.recent)
    found = [row_of(line) for line in reversed(lines) if is_wanted(line, view.query)]
    page = AuditPage(page_of(found, view.query), view.audit.is_kept)
    users = sorted({str(line.get("user", "")) for line in lines})
    actions = sorted({str(line.get("action", "")) for line in lines})
    chosen = {name: view.query.get(name, "") for name in ("q", "user", "action", "result")}
    return view.answer("audit.html", page, users=users, actions=actions, results=RESULTS, chosen=chosen)


async def export(view: View) -> Response:
    """The lines that pass the filter, as JSON lines: all of the file, else those in memory."""
    at = datetime_of(now_ms())
    name = f"audit-{at.strftime('%Y%m%dT%H%M%SZ') if at else 'export'}.jsonl"
    query = {name: view.query.get(name, "") for name in ("q", "user", "action", "result")}
    async with view.act("export audit", "audit", parameters={k: v for k, v in query.items() if v}) as done:
        done.result("The export has begun.")
    folder = view.console.settings.data
    lines = kept_lines(folder) if folder is not None else iter(list(view.audit.recent))
    return StreamingResponse(
        iterate_in_threadpool(export_lines(lines, query)),
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def kept_lines(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Lines of the files of the data folder, the oldest first."""
    for path in (folder / "audit.1.jsonl", folder / "audit.jsonl"):
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                for text in file:
                    try:
                        line = json.loads(text)
                    except ValueError:
                        continue
                    if isinstance(line, dict):
                        yield line
        except FileNotFoundError:
            continue


def export_lines(lines: Iterator[Mapping[str, Any]], query: Mapping[str, str]) -> Iterator[bytes]:
    """Lines of an export as bytes, up to its maximum size."""
    size = 0
    for line in lines:
        if is_wanted(line, query):
            data = json.dumps(line, default=str).encode() + b"\n"
            size += len(data)
            if size > MAX_EXPORT:
                return
            yield data
