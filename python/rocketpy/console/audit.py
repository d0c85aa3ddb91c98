"""Audit log: a JSON line before each action and one after it. Without a line there is no action."""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from rocketpy.base.instant import datetime_of, now_ms
from rocketpy.commandline.secrets import SECRET_NAME
from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

__all__ = ["Audit", "AuditError", "Outcome", "Who", "without_secrets"]

logger = logging.getLogger("rocketpy.console.audit")
KEPT = 1000
"""Number of lines that the page shows."""
MAX_BYTES = 64 << 20
"""Size of the file in bytes above which it is renamed to `audit.1.jsonl`."""
HIDDEN = "•••"
MAX_VALUE = 1000
"""Maximum length of one value in characters."""


class AuditError(Exception):
    """A line of the audit log cannot be written; the action is not done."""


@dataclass(frozen=True, slots=True)
class Who:
    """Visitor of one request."""

    user: str
    address: str
    session: str
    """First 8 digits of the hash of the session; empty without one."""
    request: str
    """Id of the request."""


@dataclass(slots=True)
class Outcome:
    """Result of an action, filled while it runs."""

    text: str = ""
    after: Any = None
    parts: dict[str, Any] = field(default_factory=dict[str, Any])

    def result(self, text: str, after: Any = None) -> None:
        """Keeps the result as the page shows it.

        Args:
            text: Sentence for the page.
            after: State after the change, as read back.
        """
        self.text, self.after = text, after


def is_secret(name: str) -> bool:
    """Whether the value of a setting is hidden.

    Examples:
        >>> is_secret("haTokenFile"), is_secret("tlsPwd"), is_secret("brokerRole")
        (True, True, False)
    """
    return SECRET_NAME.search(name) is not None


def without_secrets(value: Any) -> Any:
    """Value for the log: secrets hidden, long texts cut.

    Examples:
        >>> without_secrets({"queues": 4, "password": "x", "at": [1, "y"]})
        {'queues': 4, 'password': '•••', 'at': [1, 'y']}
    """
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value)
        return {
            str(name): HIDDEN if is_secret(str(name)) and one not in (None, "") else without_secrets(one)
            for name, one in pairs.items()
        }
    if isinstance(value, list | tuple):
        items = cast("list[object]", value)
        return [without_secrets(one) for one in items]
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"


class Audit:
    """Writes the lines: to a file of the data folder, else to the log of the process.

    Args:
        folder: Data folder; None for the log.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / "audit.jsonl"
        self.recent: deque[dict[str, Any]] = deque(maxlen=KEPT)
        """Newest lines, the oldest first."""
        if self._path is not None and self._path.exists():
            self._load(self._path)

    @property
    def is_kept(self) -> bool:
        """Whether a restart keeps the lines."""
        return self._path is not None

    def _load(self, path: Path) -> None:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in deque(file, maxlen=KEPT):
                try:
                    self.recent.append(json.loads(line))
                except ValueError:
                    continue

    def write(self, line: Mapping[str, Any]) -> None:
        """Writes one line.

        Raises:
            AuditError: The file cannot be written.
        """
        at = datetime_of(now_ms())
        entry = {"time": at.isoformat(timespec="milliseconds") if at else "", **line}
        text = json.dumps(entry, ensure_ascii=True, default=str)
        if self._path is None:
            logger.info("%s", text)
        else:
            try:
                self._append(self._path, text)
            except OSError as error:
                raise AuditError(f"cannot write the audit log: {error.strerror}") from error
        self.recent.append(entry)

    @staticmethod
    def _append(path: Path, text: str) -> None:
        if path.exists() and path.stat().st_size > MAX_BYTES:
            path.replace(path.with_name("audit.1.jsonl"))
        opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(opened, "a", encoding="utf-8") as file:
            file.write(text + "\n")

    @asynccontextmanager
    async def act(
        self,
        who: Who,
        cluster: str,
        action: str,
        target: str,
        *,
        before: Any = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Outcome]:
        """Writes `started` before an action, and `done` or `failed` after it.

        Args:
            who: The visitor.
            cluster: Name of the cluster.
            action: Name of the action, such as `delete topic`.
            target: Name of the object.
            before: State before the change.
            parameters: Parameters without bodies.

        Raises:
            AuditError: The first line cannot be written; the action has not begun.
        """
        head = {
            "user": who.user,
            "address": who.address,
            "session": who.session,
            "request": who.request,
            "cluster": cluster,
            "action": action,
            "object": target,
            "parameters": without_secrets(dict(parameters or {})),
            "before": without_secrets(before),
        }
        self.write({**head, "result": "started"})
        outcome = Outcome()
        try:
            yield outcome
        except BaseException as error:
            text = str(error) if isinstance(error, RocketPyError) else type(error).__name__
            unsure = isinstance(error, RocketPyError) and error.may_have_been_applied
            self._close({**head, "result": "unknown" if unsure else "failed", "text": text})
            raise
        self._close({**head, "result": "done", "text": outcome.text, "after": without_secrets(outcome.after)})

    def _close(self, line: Mapping[str, Any]) -> None:
        """Writes the second line. The action is done by then, so that a failure is only logged."""
        try:
            self.write(line)
        except AuditError as error:
            logger.error("%s; action %s of %s: %s", error, line["action"], line["user"], line["result"])
            self.recent.append({**line, "time": ""})
