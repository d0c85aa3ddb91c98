"""Answers the brokers' questions for the half messages of a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketpy.base.clock import monotonic
from rocketpy.producing.transaction import Decision
from rocketpy.spark.sink.progress import Progress
from rocketpy.spark.sink.rows import ROW_PROPERTY

if TYPE_CHECKING:
    from rocketpy.message import ReceivedMessage
    from rocketpy.spark.sink.client import SinkClient

LOOK_AGAIN_SECONDS = 1.0
"""Time for which an undecided batch is not looked up again: brokers check back for each of its messages."""
MOST_BATCHES = 8
"""Maximum number of decided batches in memory."""


class Answers:
    """Answers a broker's check-back of a half message by the decision on its batch, if any.

    Once a loss is recorded, nothing of the batch may be committed any more: its tasks send the missing rows again.
    """

    def __init__(self, client: SinkClient) -> None:
        self._client = client
        self._known: dict[tuple[str, int], set[str]] = {}
        self._open_until: dict[tuple[str, int], float] = {}

    def __call__(self, message: ReceivedMessage) -> Decision:
        """Answers for a message."""
        write, batch, _ = message.properties[ROW_PROPERTY].split("/", 2)
        key = (write, int(batch))
        if key not in self._known and monotonic() >= self._open_until.get(key, 0):
            self._look_up(key)
        if key not in self._known:
            return Decision.UNKNOWN
        return Decision.COMMIT if message.msg_id in self._known[key] else Decision.ROLLBACK

    def _look_up(self, key: tuple[str, int]) -> None:
        delivered = self._delivered(*key)
        if delivered is None:
            self._open_until = {key: monotonic() + LOOK_AGAIN_SECONDS}
            return
        while len(self._known) >= MOST_BATCHES:
            del self._known[next(iter(self._known))]
        self._known[key] = delivered

    def _delivered(self, write: str, batch: int) -> set[str] | None:
        """Ids of the half messages of a batch that are to be delivered; None while that is not known."""
        progress = Progress(self._client)
        fate = progress.fate(write, batch)
        if fate.is_lossy:
            return set()
        if fate.attempts is None:
            return None
        ids = {half.msg_id for halves in progress.halves(write, batch, fate, fate.attempts) for half in halves}
        return ids if len(ids) == sum(fate.attempts.values()) else None  # else one that counts would be rolled back
