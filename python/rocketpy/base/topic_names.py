"""Hints for a topic that does not exist: a topic of a similar name, or group and topic in each other's place.

Only a call that failed with `TopicNotFoundError` requests the names of topics from a name server.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

from rocketpy import _rocketpy
from rocketpy.base.clock import monotonic
from rocketpy.base.hints import set_hint
from rocketpy.base.names import RETRY_PREFIX, is_system_topic
from rocketpy.base.similar import nearest
from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rocketpy.config import ClientOptions
    from rocketpy.errors import TopicNotFoundError

LIST_SECONDS = 1.0
"""Timeout for the names of topics."""
KEPT_SECONDS = 5.0
"""Time for which names of topics are kept, so that repeated failures share one request."""
CHECK_NAME = "check its name, or "
"""Beginning of the hint that a similar name replaces."""
QUESTION = "did you mean "
"""Beginning of a hint with a similar name."""


class TopicNames:
    """Names of the topics that the name servers of a client know.

    Args:
        servers: `host:port` of each name server.
        options: Options of the client.
        group: Consumer group of the client, which may be a topic by mistake.
    """

    __slots__ = ("_group", "_options", "_prefix", "_servers")
    _lock = threading.Lock()
    _kept: tuple[list[str], float, list[str]] = ([], 0.0, [])
    """Name servers of the last request, its time, and the names."""

    def __init__(self, servers: list[str], options: Mapping[str, object], group: str | None = None) -> None:
        self._servers, self._group = servers, group
        own = {name: options[name] for name in ("tls", "credentials") if name in options}
        limits = {"api_timeout": LIST_SECONDS, "connect_timeout": LIST_SECONDS}
        self._options = cast("ClientOptions", own | limits)
        namespace = options.get("namespace")
        self._prefix = f"{namespace}%" if namespace else ""

    def explain(self, error: TopicNotFoundError, topics: Iterable[str]) -> None:
        """Extends the hint of an error for topics, if one of them has a similar name or is a group.

        Args:
            error: The error.
            topics: Topics of the failed call.
        """
        topics = [topic for topic in topics if not is_system_topic(topic)]
        known = set(self._names()) if topics else set[str]()
        for topic in topics if known else ():
            if self._prefix + topic not in known and (hint := self._hint(topic, known, error.hint or "")):
                set_hint(error, hint)
                return

    async def explain_later(self, error: TopicNotFoundError, topics: Iterable[str]) -> None:
        """Does the same as `explain` without blocking the event loop."""
        import asyncio  # threads do without

        await asyncio.to_thread(self.explain, error, topics)

    def near(self, topic: str) -> str | None:
        """Name of the topic that is most similar to another; None without one, and if no name server answers."""
        return self._nearest(topic, self._names())

    def _nearest(self, topic: str, known: Iterable[str]) -> str | None:
        ours = (name.removeprefix(self._prefix) for name in known if name.startswith(self._prefix))
        return nearest(topic, (name for name in ours if name != topic and not is_system_topic(name)))

    def _hint(self, topic: str, known: set[str], hint: str) -> str | None:
        if hint.startswith(QUESTION):
            return None
        is_group = f"{RETRY_PREFIX}{self._prefix}{topic}" in known
        if self._group is not None and self._prefix + self._group in known:
            more = f", and {topic} is a consumer group" if is_group else ""
            return f"group and topic look swapped: {self._group} is a topic{more}; the group comes first"
        if is_group:
            return f"{topic} is a consumer group: give the name of a topic; `rocketpy topic list` shows the topics"
        near = self._nearest(topic, known)
        return near and f"{QUESTION}{near}? If not, {hint.removeprefix(CHECK_NAME)}"

    def _names(self) -> list[str]:
        """Names of all topics; none if no name server answers."""
        if not TopicNames._lock.acquire(timeout=LIST_SECONDS):  # a fork may have copied it locked
            return []
        try:
            servers, at, names = TopicNames._kept
            if servers != self._servers or monotonic() - at > KEPT_SECONDS:
                names = self._requested()
                TopicNames._kept = self._servers, monotonic(), names
            return names
        finally:
            TopicNames._lock.release()

    def _requested(self) -> list[str]:
        try:
            admin = _rocketpy.Admin(self._servers, **self._options)
            try:
                return admin.topics()
            finally:
                admin.close()
        except RocketPyError:  # the error of the call says more
            return []
