"""Servers in this process: name server and broker together or alone, on real TCP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Self

from rocketpy import _rocketpy
from rocketpy.base.lifetime import Closing
from rocketpy.base.names import check_type, name_server_list, path_text
from rocketpy.base.signature import shown_as
from rocketpy.errors import ClosedError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from typing import Unpack

    from rocketpy._rocketpy import Message, ReceivedMessage
    from rocketpy.admin.admin import Admin
    from rocketpy.codec import Codec
    from rocketpy.config import ClientOptions, ConsumerOptions, Duration, ProducerOptions, PushOptions
    from rocketpy.consuming.consumer import Consumer, V
    from rocketpy.consuming.push import PushConsumer
    from rocketpy.producing.producer import Producer
    from rocketpy.producing.transaction import Decision, TransactionProducer

__all__ = ["Broker", "NameServer", "Server"]

STOP_SECONDS = 60.0
"""Default limit of a stop, also at the end of a `with` statement. A busy disk takes seconds for a flush."""

Setting = str | int | float | bool
"""A value of a configuration key; True and False are written as Apache writes them."""


class _Default(int):
    """A default number: the same key in `settings` wins over it."""


FREE_PORT = _Default(0)
"""Any free port, unless `settings` names one."""


@shown_as("Server")
class _Process(Closing):
    """Base of the three kinds of server."""

    __slots__ = ("_arguments", "_native", "_ports")
    _closed_last: ClassVar[bool] = True
    _kind: ClassVar[str]

    def __init__(
        self,
        *,
        host: str | None,
        config: str | os.PathLike[str] | None,
        settings: Mapping[str, Setting] | None,
        ready_file: str | os.PathLike[str] | None,
        **keys: Setting | None,
    ) -> None:
        super().__init__()
        keys |= {"bindAddress": host, "readyFile": None if ready_file is None else path_text("ready_file", ready_file)}
        given = [(name, value) for name, value in keys.items() if value is not None]
        # The last value of a key wins, however the key is spelt, so arguments come last.
        pairs = [pair for pair in given if isinstance(pair[1], _Default)]
        check_type("settings", settings, Mapping | None, "a dict by key")
        for name in settings or {}:
            check_type("a key of settings", name, str, "a str")
        pairs += (settings or {}).items()
        pairs += [pair for pair in given if not isinstance(pair[1], _Default)]
        self._arguments = (
            None if config is None else path_text("config", config),
            [(name, _text(to)) for name, to in pairs],
        )
        self._native: _rocketpy.Server | None = None
        self._ports: list[tuple[str, str]] = []  # those of the first start, by key

    def start(self) -> Self:
        """Starts the server and returns once it accepts connections; does nothing when it runs.

        A stopped server starts again on its folder and its ports, also on the free ones that it chose: its clients find
        it again.

        Raises:
            PortInUseError: An address is taken. After a stop another process may have got a port that was free before.
            StoreLockedError: Another process uses the store.
            StoreError: The folder is not a store, or cannot be written.
            ConfigError: A key is unknown, or its value is out of range.
        """
        if self._closed:
            config, settings = self._arguments
            native = _rocketpy.Server(self._kind, config, settings + self._ports)
            self._native = native
            self._opened()
            addresses = {"listenPort": native.broker, "nameServerPort": native.name_server}
            self._ports = [(key, address.rpartition(":")[2]) for key, address in addresses.items() if address]
        return self

    def stop(self, timeout: Duration = STOP_SECONDS) -> None:
        """Stops in order: answers held requests, flushes and closes the store. A second call does nothing.

        Args:
            timeout: Longest wait, in seconds.

        Raises:
            ServerError: The stop was cut off at the timeout. The next start recovers, as after a kill; in this process
                the store may stay locked for a moment.
        """
        try:
            if not self._closed and self._native is not None:
                self._native.stop(timeout)
        finally:
            self.close()

    def check(self) -> None:
        """Raises the reason when the server stopped serving by itself.

        Raises:
            StoreError: Its disk failed, and it stopped (`onFailedFlush`).
            AssertionFailedError: An assertion of its store failed: a defect.
        """
        self._running().check()

    @property
    def warning(self) -> str | None:
        """Says that other machines can reach the server, and that there is no access control; else `None`."""
        return self._running().warning

    def __enter__(self) -> Self:
        return self.start()

    def _close(self) -> None:
        if self._native is not None:
            self._native.stop(STOP_SECONDS)

    def _running(self) -> _rocketpy.Server:
        if self._native is None or self._closed:
            raise ClosedError(f"the server does not run: {self!r}", hint="start it with `with`, or with start()")
        return self._native


@shown_as("Server")
class _Named(_Process):
    """A server that knows its name server and can make clients."""

    __slots__ = ()

    @property
    def name_servers(self) -> list[str]:
        """`host:port` of each name server that its clients ask: its own one, or those that the broker registers at.

        Raises:
            ClosedError: The server does not run.
        """
        return self._running().name_servers

    def producer(self, group: str, **options: Unpack[ProducerOptions]) -> Producer:
        """Makes a producer for this server: see `rocketpy.Producer`."""
        from rocketpy.producing.producer import Producer

        return Producer(group, name_servers=self.name_servers, **options)

    def transaction_producer(
        self,
        group: str,
        check: Callable[[ReceivedMessage], Decision],
        *,
        local: Callable[[Message], Decision] | None = None,
        check_threads: int | None = None,
        **options: Unpack[ProducerOptions],
    ) -> TransactionProducer:
        """Makes a producer of transactions for this server: see `rocketpy.TransactionProducer`."""
        from rocketpy.producing.transaction import CHECK_THREADS, TransactionProducer

        threads = CHECK_THREADS if check_threads is None else check_threads
        return TransactionProducer(
            group, check, local=local, name_servers=self.name_servers, check_threads=threads, **options
        )

    def consumer(
        self,
        group: str,
        topic: str | Iterable[str],
        *,
        codec: Codec[V] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer[V]:
        """Makes a consumer for this server: see `rocketpy.Consumer`."""
        from rocketpy.consuming.consumer import Consumer

        return Consumer(group, topic, codec=codec, name_servers=self.name_servers, **options)

    def push_consumer(self, group: str, **options: Unpack[PushOptions]) -> PushConsumer:
        """Makes a push consumer for this server: see `rocketpy.PushConsumer`."""
        from rocketpy.consuming.push import PushConsumer

        return PushConsumer(group, name_servers=self.name_servers, **options)

    def admin(self, **options: Unpack[ClientOptions]) -> Admin:
        """Makes an administration object for this server: see `rocketpy.Admin`."""
        from rocketpy.admin.admin import Admin

        return Admin(name_servers=self.name_servers, **options)


class Server(_Named):
    """A name server and a broker in this process. Clients reach them over TCP, from here and from elsewhere.

    Args:
        path: Folder of the store; created if missing.
        host: Host or address to listen on; default `127.0.0.1`.
        port: Port of the broker; 0 takes a free one, None leaves it to the configuration (10911).
        name_server_port: Port of the name server; 0 takes a free one, None leaves it to the configuration (9876).
        config: Configuration file: TOML, or properties as Apache writes them.
        settings: Any key of Apache's or RocketPy's configuration, such as `{"flushDiskType": "SYNC_FLUSH"}`. An
            argument wins over its key here.
        ready_file: File to write `{"pid", "name_server", "broker"}` to once both accept.

    Examples:
        >>> import rocketpy, tempfile
        >>> with tempfile.TemporaryDirectory() as folder, rocketpy.Server(folder) as server:
        ...     with server.producer("ingest") as producer:
        ...         print(producer.send(rocketpy.Message("flights", b"UA1545")).queue_offset)
        0
    """

    __slots__ = ("_path",)
    _kind = "standalone"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        host: str | None = None,
        port: int | None = FREE_PORT,
        name_server_port: int | None = FREE_PORT,
        config: str | os.PathLike[str] | None = None,
        settings: Mapping[str, Setting] | None = None,
        ready_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._path = path_text("path", path)
        super().__init__(
            host=host,
            config=config,
            settings=settings,
            ready_file=ready_file,
            storePathRootDir=self._path,
            listenPort=port,
            nameServerPort=name_server_port,
        )

    @property
    def path(self) -> str:
        """Folder of the store."""
        return self._path

    @property
    def name_server(self) -> str:
        """`host:port` of the name server.

        Raises:
            ClosedError: The server does not run.
        """
        return self._running().name_server or ""

    @property
    def broker(self) -> str:
        """`host:port` of the broker.

        Raises:
            ClosedError: The server does not run.
        """
        return self._running().broker or ""

    def __repr__(self) -> str:
        return f"<Server on {self._path!r}{' (not running)' if self.closed else ''}>"


class Broker(_Named):
    """A broker alone, registered at name servers that run elsewhere.

    Args:
        path: Folder of the store; created if missing.
        name_servers: `host:port` of each name server, as a list or as one text; default: what `settings`, the variable
            `NAMESRV_ADDR` or the configuration file names, in this order.
        host: Host or address to listen on; default `127.0.0.1`.
        port: Port of the broker; 0 takes a free one, None leaves it to the configuration (10911).
        config: Configuration file: TOML, or properties as Apache writes them.
        settings: Any key of Apache's or RocketPy's configuration. An argument wins over its key here.
        ready_file: File to write `{"pid", "name_server", "broker"}` to once it accepts.
    """

    __slots__ = ("_path",)
    _kind = "broker"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name_servers: Iterable[str] | str | None = None,
        host: str | None = None,
        port: int | None = FREE_PORT,
        config: str | os.PathLike[str] | None = None,
        settings: Mapping[str, Setting] | None = None,
        ready_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._path = path_text("path", path)
        super().__init__(
            host=host,
            config=config,
            settings=settings,
            ready_file=ready_file,
            storePathRootDir=self._path,
            listenPort=port,
            namesrvAddr=None if name_servers is None else ";".join(name_server_list(name_servers)) or None,
        )

    @property
    def path(self) -> str:
        """Folder of the store."""
        return self._path

    @property
    def broker(self) -> str:
        """`host:port` of the broker.

        Raises:
            ClosedError: The server does not run.
        """
        return self._running().broker or ""

    def __repr__(self) -> str:
        return f"<Broker on {self._path!r}{' (not running)' if self.closed else ''}>"


class NameServer(_Named):
    """A name server alone. It holds no state on disk: brokers register again after a restart.

    Args:
        host: Host or address to listen on; default `127.0.0.1`.
        port: Its port; 0 takes a free one, None leaves it to the configuration (9876).
        config: Configuration file: TOML, or properties as Apache writes them.
        settings: Any key of Apache's or RocketPy's configuration. An argument wins over its key here.
        ready_file: File to write `{"pid", "name_server", "broker"}` to once it accepts.
    """

    __slots__ = ()
    _kind = "name_server"

    def __init__(
        self,
        *,
        host: str | None = None,
        port: int | None = FREE_PORT,
        config: str | os.PathLike[str] | None = None,
        settings: Mapping[str, Setting] | None = None,
        ready_file: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(host=host, config=config, settings=settings, ready_file=ready_file, nameServerPort=port)

    @property
    def name_server(self) -> str:
        """`host:port` of the name server.

        Raises:
            ClosedError: The server does not run.
        """
        return self._running().name_server or ""

    def __repr__(self) -> str:
        return f"<NameServer{' (not running)' if self.closed else ''}>"


def _text(value: Setting) -> str:
    """A value as configuration files write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
