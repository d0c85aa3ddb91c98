"""Selection of the queue of a message without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from rocketpy.base.signature import check_function
from rocketpy.errors import InvalidArgumentError
from rocketpy.message import Message, MessageQueue

if TYPE_CHECKING:
    from rocketpy.config import ProducerOptions

__all__ = ["Select", "Selector"]

Select: TypeAlias = Callable[[list[MessageQueue], Message], MessageQueue]
"""Function of the sorted writable queues of a topic and of a message. Returns one of the queues."""

Selector: TypeAlias = Literal["round_robin", "random", "least_latency"] | Select
"""A selector of a producer."""

NO_SELECTOR = 'selector must be a name such as "round_robin" or a function of queues and message, not {!r}'


def split(options: ProducerOptions) -> tuple[Select | None, dict[str, Any]]:
    """Splits the options of a producer into the selector function and the options of the extension module."""
    rest: dict[str, Any] = {**options}
    selector: Any = rest.get("selector")
    if callable(selector):
        check_function("selector", selector, "a function of queues and a message", 2)
        del rest["selector"]
        return cast("Select", selector), rest
    if "selector" in rest and not isinstance(selector, str):
        raise TypeError(NO_SELECTOR.format(selector))
    return None, rest


def chosen(select: Select, queues: list[MessageQueue], message: Message) -> MessageQueue:
    """Queue chosen by a function.

    Raises:
        TypeError: The function returned another type.
        InvalidArgumentError: The function returned a queue that was not given.
    """
    queue = select(list(queues), message)
    # Not every function has a type checker.
    if not isinstance(queue, MessageQueue):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the selector must return one of the given queues, returned {queue!r}")
    if queue not in queues:
        raise InvalidArgumentError(f"the selector returned a queue that is not writable: {queue}")
    return queue
