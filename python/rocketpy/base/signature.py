"""Signatures of base classes with a private name, and of user functions."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Function = TypeVar("Function", bound="Callable[..., Any]")
Kind = TypeVar("Kind")


def shown_as(name: str) -> Callable[[type[Kind]], type[Kind]]:
    """Builds a decorator that shows the functions of a private base class as those of another class.

    Args:
        name: Class name in Python's errors, such as that of a missing argument.

    Examples:
        >>> @shown_as("Server")
        ... class _Base:
        ...     def stop(self, timeout): ...
        >>> _Base().stop()
        Traceback (most recent call last):
        TypeError: Server.stop() missing 1 required positional argument: 'timeout'
    """

    def decorate(kind: type[Kind]) -> type[Kind]:
        for function in filter(inspect.isfunction, vars(kind).values()):
            function.__qualname__ = f"{name}.{function.__name__}"
        return kind

    return decorate


def misfit(function: Callable[..., object], count: int) -> inspect.Signature | None:
    """Signature of a function that cannot be called with `count` arguments; None if it can, or if that is unknown."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of some functions that are written in C
        return None
    try:
        signature.bind(*range(count))
    except TypeError:
        return signature
    return None


def is_generator(function: object) -> bool:
    """Whether a function, or an object that can be called, has a `yield`: its call returns before its first line."""
    call = getattr(function, "__call__", None)  # noqa: B004  # of an object that can be called
    return any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in (function, call))


def check_function(name: str, function: object, wanted: str, count: int) -> None:
    """Refuses a function that cannot be called with `count` arguments or is a generator, before its first call.

    Args:
        name: Name of the argument, for the error.
        function: Value of the argument.
        wanted: Description of the expected function, such as "a function of a message".
        count: Number of arguments of a call.

    Raises:
        TypeError: The function does not fit.

    Examples:
        >>> check_function("check", lambda: None, "a function of a message", 1)
        Traceback (most recent call last):
        TypeError: check must be a function of a message, and takes ()
    """
    if not callable(function):
        raise TypeError(f"{name} must be {wanted}, not {function!r}")
    if is_generator(function):
        raise TypeError(f"{name} must be {wanted}, not a generator: its call runs nothing: {function!r}")
    if (signature := misfit(function, count)) is not None:
        raise TypeError(f"{name} must be {wanted}, and takes {signature}")
