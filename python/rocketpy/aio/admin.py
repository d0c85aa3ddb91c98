"""Administration for asyncio: the twin of `Admin`, by name and meaning."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from rocketpy import _rocketpy
from rocketpy.admin.calls import AdminCalls
from rocketpy.admin.dead_letters import RESENDER
from rocketpy.admin.status_calls import CONCURRENT_CALLS
from rocketpy.aio.loop import AsyncClosing, later
from rocketpy.aio.producer import AsyncProducer
from rocketpy.base.names import name_server_list, text_error
from rocketpy.base.options import check_options, lists_options
from rocketpy.base.topic_names import TopicNames
from rocketpy.config import CLIENT_DEFAULTS, ClientOptions, ProducerOptions
from rocketpy.producing.copies import COPY_LIMITS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
    from typing import Unpack

    from rocketpy.admin.dead_letter_calls import Send
    from rocketpy.errors import TopicNotFoundError
    from rocketpy.message import Message, Receipt

__all__ = ["AsyncAdmin"]

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")


class AsyncAdmin(AdminCalls, AsyncClosing):
    """`Admin` for asyncio: administration of a cluster, by the calls of `rocketpy.admin.calls.AdminCalls`.

    Args:
        name_servers: `host:port` of each name server, as a list or as one text; default: the environment variable
            `NAMESRV_ADDR`.
        options: As for `rocketpy.Admin`.

    Examples:
        >>> import asyncio, rocketpy
        >>> server = getfixture("rocketpy_server")
        >>> async def main():
        ...     async with rocketpy.AsyncAdmin(server.name_server) as admin:
        ...         await admin.create_topic("aio-admin-doc", queues=2)
        ...         return len(await admin.queues("aio-admin-doc"))
        >>> asyncio.run(main())
        2
    """

    __slots__ = ("_name_servers", "_options")
    _warns = False

    @lists_options(ClientOptions, CLIENT_DEFAULTS)
    def __init__(self, name_servers: Iterable[str] | str | None = None, **options: Unpack[ClientOptions]) -> None:
        super().__init__()
        self._name_servers, self._options = name_server_list(name_servers), options
        check_options(partial(_rocketpy.Admin, []), options)

    async def _open(self, arrivals: _rocketpy.Arrivals) -> object:
        return _rocketpy.Admin(self._name_servers, arrivals, **self._options)

    def _native_admin(self) -> _rocketpy.Admin:
        return cast("_rocketpy.Admin", self._checked())

    async def _ask(self, call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        try:
            return await later(call, *arguments, **options)
        except UnicodeEncodeError as error:
            raise text_error(error) from error

    async def _each(self, call: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item]) -> list[T]:
        bound = asyncio.Semaphore(CONCURRENT_CALLS)

        async def bounded(item: Item) -> T:
            async with bound:
                return await call(item)

        tasks = [asyncio.create_task(bounded(item)) for item in items]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _explain(self, error: TopicNotFoundError, topic: str) -> None:
        await TopicNames(self._name_servers, self._options).explain_later(error, [topic])

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @asynccontextmanager
    async def _resender(self) -> AsyncGenerator[Send, None]:
        options: ProducerOptions = {**self._options, **COPY_LIMITS}
        async with AsyncProducer(RESENDER, name_servers=self._name_servers, **options) as producer:

            async def send(message: Message, msg_id: str) -> Receipt:
                return await producer.send(message, msg_id=msg_id)

            yield send

    def __repr__(self) -> str:
        return f"<AsyncAdmin{self._shown_state()}>"
