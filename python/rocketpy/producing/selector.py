"""How a producer chooses the queue of a message that names none."""

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
"""A function of the queues of a topic that may be written, sorted, and of a message. It returns one of the queues."""

Selector: TypeAlias = Literal["round_robin", "random", "least_latency"] | Select
"""A selector of a producer."""

NO_SELECTOR = 'selector must be a name such as "round_robin" or a function of queues and message, not {!r}'


def split(options: ProducerOptions) -> tuple[Select | None, dict[str, Any]]:
    """The function among the options of a producer, and the options that the extension module takes."""
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
    """The queue that a function chooses.

    Raises:
        TypeError: It returned something else.
        InvalidArgumentError: It returned another queue than one of those given.
    """
    queue = select(list(queues), message)
    # Not every function has a type checker.
    if not isinstance(queue, MessageQueue):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the selector must return one of the queues that it is given, returned {queue!r}")
    if queue not in queues:
        raise InvalidArgumentError(f"the selector returned a queue that cannot be written: {queue}")
    return queue
