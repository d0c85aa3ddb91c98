"""Ends the half messages of a sink."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from rocketpy.errors import RocketPyError, TransactionOverError
from rocketpy.spark.patience import T, again, logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rocketpy.message import MessageQueue, Receipt
    from rocketpy.spark.sink.client import SinkClient

HALF_MESSAGE_THREADS = 8
"""Threads that send or end half messages: each waits for its broker."""


def commit_halves(client: SinkClient, halves: Iterable[Receipt]) -> int:
    """Commits half messages; those of each queue in their order. Committing them again changes nothing.

    Args:
        client: Client of this process.
        halves: Receipts of the half messages.

    Returns:
        Number of messages that will not be delivered.

    Raises:
        RocketPyError: A broker does not answer, or refuses for now.
    """
    return sum(_each_queue(partial(_commit, client), halves))


def _commit(client: SinkClient, halves: Sequence[Receipt]) -> int:
    lost = 0
    for half in halves:
        try:
            again(client.transactions.resume(half).commit, client.options.retry_seconds, unsure=True)
        except TransactionOverError:
            lost += 1
    return lost


def roll_back_halves(client: SinkClient, halves: Iterable[Receipt]) -> None:
    """Rolls half messages back. After a failure, the broker checks back.

    Args:
        client: Client of this process.
        halves: Receipts of the half messages.
    """
    _each_queue(partial(_roll_back, client), halves)


def _roll_back(client: SinkClient, halves: Sequence[Receipt]) -> None:
    for half in halves:
        try:
            client.transactions.resume(half).rollback()
        except RocketPyError as error:
            logger.info("half messages left to the check-back of their brokers: %s", error)
            return


def _each_queue(end: Callable[[Sequence[Receipt]], T], halves: Iterable[Receipt]) -> list[T]:
    """Ends the half messages of several queues at the same time."""
    by_queue: dict[MessageQueue, list[Receipt]] = {}
    for half in halves:
        by_queue.setdefault(half.queue, []).append(half)
    with ThreadPoolExecutor(HALF_MESSAGE_THREADS) as pool:
        return list(pool.map(end, by_queue.values()))
