"""Ends the half messages of a sink."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from rocketpy.errors import RefusedError, RocketPyError
from rocketpy.spark.patience import again, logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rocketpy.message import MessageQueue, Receipt
    from rocketpy.spark.sink_client import SinkClient

HALF_MESSAGE_THREADS = 8
"""Threads that send or commit half messages: each waits for its broker."""
LOST_TEXTS = ("is over", "is no half message", "no message starts at")
"""What the broker's refusals of rust/broker/src/refusal.rs say of a half message that can never be committed: it was
rolled back, given up after too many questions, or lost with the power."""


def commit_halves(client: SinkClient, halves: Iterable[Receipt]) -> int:
    """Commits half messages; those of each queue in their order. Committing them again changes nothing.

    Args:
        client: Of this process.
        halves: Their receipts.

    Returns:
        How many will not be delivered.

    Raises:
        RocketPyError: A broker does not answer, or refuses for now.
    """
    by_queue: dict[MessageQueue, list[Receipt]] = {}
    for half in halves:
        by_queue.setdefault(half.queue, []).append(half)
    with ThreadPoolExecutor(HALF_MESSAGE_THREADS) as pool:
        return sum(pool.map(partial(_commit, client), by_queue.values()))


def _commit(client: SinkClient, halves: Sequence[Receipt]) -> int:
    lost = 0
    for half in halves:
        try:
            again(client.transactions.resume(half).commit, client.options.retry_seconds, unsure=True)
        except RefusedError as error:
            if not any(text in str(error) for text in LOST_TEXTS):
                raise
            lost += 1
    return lost


def roll_back_halves(client: SinkClient, halves: Iterable[Receipt]) -> None:
    """Rolls half messages back. For those where that fails the broker asks.

    Args:
        client: Of this process.
        halves: Their receipts.
    """
    for half in halves:
        try:
            client.transactions.resume(half).rollback()
        except RocketPyError as error:
            logger.info("half messages are left to the questions of their brokers: %s", error)
            return
