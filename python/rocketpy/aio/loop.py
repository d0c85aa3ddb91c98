"""Shared parts of the clients of an event loop: delivery of answers, start and close."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Never, ParamSpec, Self, TypeVar, cast

from rocketpy import _rocketpy
from rocketpy.base.lifetime import Lifetime
from rocketpy.base.names import text_error
from rocketpy.errors import ClosedError, RocketPyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

P = ParamSpec("P")
T = TypeVar("T")


_watched: dict[asyncio.AbstractEventLoop, _rocketpy.Arrivals] = {}
"""Arrivals by loop until the loop is closed: requests under way at the close of its last client still get an answer."""


def watch(loop: asyncio.AbstractEventLoop) -> _rocketpy.Arrivals:
    """Arrivals for the clients of a loop, watched by the loop."""
    for other in list(_watched):  # a copy: loops of other threads come and go meanwhile
        drop_if_closed(other)
    if loop not in _watched:
        arrivals = _watched[loop] = _rocketpy.Arrivals(loop)
        loop.add_reader(arrivals.descriptor, arrivals.deliver)
    return _watched[loop]


def drop_if_closed(loop: asyncio.AbstractEventLoop) -> bool:
    """Drops the arrivals of a closed loop. Returns whether the loop is closed."""
    is_closed = loop.is_closed()
    if is_closed and (arrivals := _watched.pop(loop, None)) is not None:
        arrivals.end()
    return is_closed


def later(call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> Awaitable[T]:
    """Types a native call for a loop as an awaitable of the result in its stub, which a call for a thread returns."""
    return cast("Awaitable[T]", call(*arguments, **options))


class AsyncClosing(Lifetime):
    """Base of the clients of an event loop: `async with`, or `start` and `close`."""

    __slots__ = ("_client", "_is_unwanted", "_loop", "_starting")

    def __init__(self) -> None:
        super().__init__()
        self._starting: asyncio.Future[None] | None = None  # while `start` runs
        self._is_unwanted = False  # closed meanwhile
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @abstractmethod
    async def _open(self, arrivals: _rocketpy.Arrivals) -> object:
        """Makes the native client."""

    async def start(self) -> Self:
        """Opens the client for the running event loop, the only loop that may use it; `async with` does the same.

        Raises:
            RocketPyError: The client was started before. Create a new one.
            ClosedError: Another task called `close` during the start.
        """
        if self._loop is not None:
            raise RocketPyError(f"{self!r} was already started", hint="create a new client: each starts only once")
        loop = self._loop = asyncio.get_running_loop()
        starting = self._starting = loop.create_future()
        self._is_unwanted = False
        try:
            await self._start(loop)
        finally:
            self._starting = None
            starting.set_result(None)
        return self

    async def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Opens the client, and closes it if `close` was called meanwhile."""
        try:
            self._client = await self._open(watch(loop))
        except BaseException as error:
            self._loop = None  # it may be tried again
            if isinstance(error, UnicodeEncodeError):
                raise text_error(error) from error
            raise
        self._opened()
        if self._is_unwanted:
            self._starting = None
            await self.close()
            raise ClosedError(f"{self!r} was closed during its start", hint="create a new client")

    def _checked(self) -> Any:
        """Native client, for the loop of its start.

        Raises:
            ClosedError: The client was not started, or is closed.
            RocketPyError: The running loop is another one.
        """
        if self._closed:
            state = "was not started" if self._client is None else "is closed"
            raise ClosedError(f"{self!r} {state}", hint="use it inside `async with`, or between start() and close()")
        self._check_loop()
        return self._client

    def _has_outlived_its_loop(self) -> bool:
        """Whether the loop of the client was closed: then another loop may close the client.

        Raises:
            RocketPyError: The running loop is another one, and the loop of the client was not closed.
        """
        if self._loop is not None and drop_if_closed(self._loop):
            return True
        self._check_loop()
        return False

    def _check_loop(self) -> None:
        """Refuses calls in other loops.

        Raises:
            RocketPyError: The running loop is another one.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise RocketPyError(f"{self!r} belongs to another event loop", hint="create one client per event loop")

    def _started(self) -> Any:
        """Native client, for calls of any thread after the start.

        Raises:
            ClosedError: The client was not started.
        """
        if self._client is None:
            raise ClosedError(f"{self!r} was not started", hint="use it inside `async with`, or after start()")
        return self._client

    def _shown_state(self) -> str:
        """State for `repr`."""
        return "" if not self._closed else " (not started)" if self._client is None else " (closed)"

    async def close(self) -> None:
        """Closes the client. A second call does nothing, or completes a close that a cancellation interrupted.

        A start that another task has under way ends with `ClosedError`, and leaves no client open.

        Any loop may close a client whose own loop was closed.

        Raises:
            RocketPyError: The loop of the client is another one, and not closed.
        """
        if self._starting is not None and not self._is_elsewhere and not self._has_outlived_its_loop():
            self._is_unwanted = True
            await asyncio.wait([self._starting])
            return
        if self._is_over():
            return
        has_outlived = not self._is_elsewhere and self._has_outlived_its_loop()
        self._closed = True
        try:
            if has_outlived:
                await asyncio.to_thread(self._client.close, True)
            elif not self._is_elsewhere:
                await self._client.close(False)
        except asyncio.CancelledError:
            raise  # the next call waits for the rest
        except BaseException:
            self._ended()
            raise
        self._ended()

    def _begin_close(self) -> None:
        self._client.begin_close()

    def _close_now(self) -> None:
        self._closed = True
        if not self._is_elsewhere:
            self._client.close(True)

    if not TYPE_CHECKING:  # which refuses `with` itself

        def __enter__(self) -> Never:
            raise TypeError(f"{type(self).__name__} needs `async with`, not `with`")

        def __exit__(self, *_error: object) -> None:
            pass

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
