"""Coroutines that never wait: a call that is written once, for event loops and for threads.

A coroutine that awaits nothing but calls that block runs to its end at its first step, without an event loop.
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from rocketpy.base.misuse import misfit_text
from rocketpy.base.names import text_error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator

P = ParamSpec("P")
T = TypeVar("T")


class HasCalls(Protocol):
    """An object whose calls block. Those that it runs have the same names, and are coroutine functions."""

    @property
    def _calls(self) -> Any: ...


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never waits, and returns its result.

    Examples:
        >>> async def one():
        ...     return 1
        >>> finished(one())
        1
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    except UnicodeEncodeError as error:
        raise text_error(error) from error
    coroutine.close()
    raise AssertionError(f"a coroutine that must not wait did: {coroutine!r}")


def at_once(
    call: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], owner: str
) -> Callable[Concatenate[HasCalls, P], T]:
    """Makes a method that blocks of a coroutine function, with the same arguments and docstring.

    Args:
        call: A coroutine function of the class of `_calls`.
        owner: Name of the class that gets the method, for Python's errors.
    """
    written = cast("FunctionType", call)
    own = FunctionType(written.__code__, written.__globals__, written.__name__, written.__defaults__)
    own.__kwdefaults__, own.__qualname__ = written.__kwdefaults__, f"{owner}.{written.__name__}"

    def run(self: HasCalls, /, *arguments: P.args, **options: P.kwargs) -> T:
        try:
            coroutine: Coroutine[Any, Any, T] = own(self._calls, *arguments, **options)
        except TypeError as error:  # no line of the call has run
            raise TypeError(misfit_text(run, arguments, options) or str(error)) from None
        return finished(coroutine)

    functools.update_wrapper(run, written)
    run.__qualname__ = own.__qualname__
    return run


async def each(items: Iterable[T]) -> AsyncIterator[T]:
    """An iterable for `async for`."""
    for item in items:
        yield item


def steps(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """Yields the items of an asynchronous generator that never waits, and closes it at the end."""
    try:
        while True:
            try:
                item = finished(items.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        finished(items.aclose())
