"""Errors of calls whose arguments fit no parameter: they name the wrong argument first, then the missing ones."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rocketpy.base.similar import FOREIGN, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

Function = TypeVar("Function", bound="Callable[..., Any]")

SHOWN_CHARACTERS = 64
"""Maximum length of a text that an error shows as the value of an argument."""
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
ONE_MESSAGE = (
    "{}(message) takes one message and options by name: write {}(rocketpy.Message(topic, body)), with queue=, timeout= "
    "and other options by name"
)
NO_MESSAGE = (
    "{}.commit() takes no message: it commits all messages returned so far. To commit up to one message, write "
    "commit_offsets({{message.queue: message.queue_offset + 1}})"
)


def one_message(call: str) -> TypeError:
    """Error of a send with a topic and a body, as in other clients, in place of a message.

    Args:
        call: Name of the call, with its class.
    """
    return TypeError(ONE_MESSAGE.format(call, call.rpartition(".")[2]))


def no_message(owner: str) -> TypeError:
    """Error of a commit of a message.

    Args:
        owner: Name of the consumer's class.
    """
    return TypeError(NO_MESSAGE.format(owner))


def explained(function: Function) -> Function:
    """Explains calls of a method whose arguments do not fit its signature. Errors inside the method stay as they are.

    Examples:
        >>> class Reader:
        ...     @explained
        ...     def __init__(self, group, *, start=0): ...
        >>> Reader(group_id="g")
        Traceback (most recent call last):
        TypeError: Reader has no option 'group_id' (did you mean group?); Reader(group) lacks group
    """
    code = inspect.unwrap(function).__code__

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except TypeError as error:
            if has_begun(error.__traceback__, code):
                raise
            raise TypeError(misfit_text(call, arguments[1:], options) or str(error)) from None

    return cast("Function", call)


def has_begun(traceback: TracebackType | None, code: object) -> bool:
    """Whether the function with this code was running when an exception was raised."""
    while traceback is not None:
        if traceback.tb_frame.f_code is code:
            return True
        traceback = traceback.tb_next
    return False


def misfit_text(function: Callable[..., object], arguments: Sequence[object], options: Mapping[str, object]) -> str:
    """Explanation of a call that does not fit; empty if only Python knows what is wrong.

    Args:
        function: A method.
        arguments: Arguments by position, without `self`.
        options: Arguments by name.
    """
    name = function.__qualname__.removesuffix(".__init__")
    parameters = dict(list(inspect.signature(function).parameters.items())[1:])
    positional = [one for one in parameters.values() if one.kind in POSITIONAL]
    required = [one.name for one in positional if one.default is inspect.Parameter.empty]
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    usage = f"{name}({', '.join(required)})"
    given = dict(zip([one.name for one in positional], arguments, strict=False))
    unknown = [
        one for one in options if one not in parameters and (not takes_any or set(FOREIGN.get(one, ())) & {*required})
    ]
    said = [f"{name} has no option {option!r}{did_you_mean(option, parameters)}" for option in unknown]
    said += [
        f"{usage} has {option} twice: {shown(given[option])} by position, {shown(options[option])} by name"
        for option in options
        if option in given
    ]
    if len(arguments) > len(positional):
        said.append(f"{usage} takes {len(positional)} by position, not {len(arguments)}: pass the others by name")
    missing = [one for one in required if one not in given and one not in options]
    if missing:
        values = " and ".join(f"{shown(value)} is the {one}" for one, value in given.items())
        said.append(f"{usage} lacks {' and '.join(missing)}" + (f", {values}" if values else ""))
    return "; ".join(said)


def shown(value: object) -> str:
    """Value of an argument in an error: a short text, or else the name of its type."""
    return repr(value) if isinstance(value, str) and len(value) <= SHOWN_CHARACTERS else f"<{type(value).__name__}>"
