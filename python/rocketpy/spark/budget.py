"""Share of a stream's backlog in its next batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketpy.message import MessageQueue


def messages_to_take(
    backlog: Mapping[MessageQueue, int],
    sizes: Mapping[MessageQueue, int],
    *,
    max_messages: int | None,
    max_bytes: int,
    turn: int = 0,
) -> dict[MessageQueue, int]:
    """Distributes the limits of a batch among the queues, in proportion to their backlogs.

    The limit of messages holds exactly, that of bytes as far as sizes are known. At least one message is taken, however
    large it is.

    Args:
        backlog: Number of waiting messages, by queue; not negative.
        sizes: Mean bytes of a message, by queue; at least for the queues where messages wait.
        max_messages: Maximum number of messages; None for no limit.
        max_bytes: Maximum number of bytes.
        turn: Number that selects the first queue when not all queues can have a message.

    Returns:
        Messages to take, by queue.

    Examples:
        >>> from rocketpy import MessageQueue
        >>> a, b = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)
        >>> taken = messages_to_take({a: 300, b: 100}, {a: 10, b: 10}, max_messages=100, max_bytes=800)
        >>> taken[a], taken[b]
        (60, 20)
    """
    waiting = {queue: count for queue, count in backlog.items() if count > 0}
    if not waiting:
        return {}
    messages = sum(waiting.values())
    total_bytes = sum(count * sizes[queue] for queue, count in waiting.items())
    allowed = messages if max_messages is None else min(messages, max_messages)
    share = min(allowed / messages, max_bytes / max(1, total_bytes))
    if share >= 1:
        return waiting
    taken = {queue: int(count * share) for queue, count in waiting.items()}
    left_bytes = max_bytes - sum(count * sizes[queue] for queue, count in taken.items())
    left = allowed - sum(taken.values())
    queues = sorted(waiting)
    for index in range(len(queues)):
        queue = queues[(turn + index) % len(queues)]
        is_first = not any(taken.values())
        if left > 0 and (sizes[queue] <= left_bytes or is_first) and taken[queue] < waiting[queue]:
            taken[queue] += 1
            left -= 1
            left_bytes -= sizes[queue]
    return {queue: count for queue, count in taken.items() if count}
