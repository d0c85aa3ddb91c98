"""Servers in this process: name server and broker together or alone, on real TCP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Self

from rocketpy import _rocketpy
from rocketpy.base.descriptors import open_closed_descriptors
from rocketpy.base.lifetime import Closing
from rocketpy.base.misuse import explained
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
"""Default timeout for a stop, also at the end of a `with` statement. A flush on a busy disk takes seconds."""

Setting = str | int | float | bool
"""Value of a configuration key; True and False are written as `true` and `false`."""


class _Default(int):
    """Default number, overridden by the same key in `settings`."""


FREE_PORT = _Default(0)
"""Free port, unless `settings` names one."""


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
        """Starts the server and returns when it accepts connections; does nothing if the server is running.

        A stopped server starts again with its folder and its ports, including automatically chosen ones, so that its
        clients find it.

        Raises:
            PortInUseError: An address is already in use. After a stop another process may have taken the port.
            StoreLockedError: Another process has the store open.
            StoreError: The folder is not a store, or cannot be written.
            ConfigError: A key is unknown, or its value is out of range.
        """
        if self._closed:
            open_closed_descriptors()
            config, settings = self._arguments
            native = _rocketpy.Server(self._kind, config, settings + self._ports)
            self._native = native
            self._opened()
            addresses = {
                "listenPort": native.broker,
                "nameServerPort": native.name_server,
                "metricsPromExporterPort": native.metrics,
            }
            self._ports = [(key, address.rpartition(":")[2]) for key, address in addresses.items() if address]
        return self

    def stop(self, timeout: Duration = STOP_SECONDS) -> None:
        """Stops in order: answers held requests, flushes and closes the store. A second call does nothing.

        Args:
            timeout: Maximum wait, in seconds.

        Raises:
            ServerError: The stop exceeded the timeout. The next start recovers, as after a kill; in this process the
                store may stay locked for a moment.
        """
        try:
            if not self._closed and self._native is not None:
                self._native.stop(timeout)
        finally:
            self.close()

    def check(self) -> None:
        """Raises the error of a server that stopped serving by itself.

        Raises:
            StoreError: The disk failed, and the server stopped (`onFailedFlush`).
            AssertionFailedError: An assertion of the store failed: a defect.
        """
        self._running().check()

    @property
    def metrics(self) -> str | None:
        """`host:port` of the HTTP server for metrics and health; None if it is off (`metricsExporterType`).

        Raises:
            ClosedError: The server is not running.

        Examples:
            >>> import rocketpy, tempfile
            >>> settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0}
            >>> with tempfile.TemporaryDirectory() as folder, rocketpy.Server(folder, settings=settings) as server:
            ...     print((server.metrics or "").rpartition(":")[0])
            127.0.0.1
        """
        return self._running().metrics

    @property
    def warning(self) -> str | None:
        """Warning that other machines can reach the server without access control; None if they cannot."""
        return self._running().warning

    def __enter__(self) -> Self:
        return self.start()

    def _close(self) -> None:
        if self._native is not None:
            self._native.stop(STOP_SECONDS)

    def _running(self) -> _rocketpy.Server:
        if self._native is None or self._closed:
            raise ClosedError(f"server is not running: {self!r}", hint="start it with `with`, or with start()")
        return self._native


@shown_as("Server")
class _Named(_Process):
    """Server that knows its name server and can create clients."""

    __slots__ = ()

    @property
    def name_servers(self) -> list[str]:
        """`host:port` of each name server for clients: the own one, or those at which the broker registers.

        Raises:
            ClosedError: The server is not running.
        """
        return self._running().name_servers

    @explained
    def producer(self, group: str, **options: Unpack[ProducerOptions]) -> Producer:
        """Creates a producer for this server: see `rocketpy.Producer`.

        Args:
            group: Name of the producer group.
            options: As for `rocketpy.Producer`.
        """
        from rocketpy.producing.producer import Producer

        return Producer(group, name_servers=self.name_servers, **options)

    @explained
    def transaction_producer(
        self,
        group: str,
        check: Callable[[ReceivedMessage], Decision],
        *,
        local: Callable[[Message], Decision] | None = None,
        check_threads: int | None = None,
        **options: Unpack[ProducerOptions],
    ) -> TransactionProducer:
        """Creates a transaction producer for this server: see `rocketpy.TransactionProducer`.

        Args:
            group: Name of the producer group.
            check: Function that returns the outcome of a transaction, as a `Decision`.
            local: Function that does the work of a message, for `send_in_transaction`; default None.
            check_threads: Number of threads that run `check`; default None: that of `rocketpy.TransactionProducer`.
            options: As for `rocketpy.TransactionProducer`.
        """
        from rocketpy.producing.transaction import CHECK_THREADS, TransactionProducer

        threads = CHECK_THREADS if check_threads is None else check_threads
        return TransactionProducer(
            group, check, local=local, name_servers=self.name_servers, check_threads=threads, **options
        )

    @explained
    def consumer(
        self,
        group: str,
        topic: str | Iterable[str],
        *,
        codec: Codec[V] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer[V]:
        """Creates a consumer for this server: see `rocketpy.Consumer`.

        Args:
            group: Name of the consumer group.
            topic: Name of the topic, or a list of names.
            codec: Decodes values of messages; default None.
            options: As for `rocketpy.Consumer`.
        """
        from rocketpy.consuming.consumer import Consumer

        return Consumer(group, topic, codec=codec, name_servers=self.name_servers, **options)

    @explained
    def push_consumer(self, group: str, **options: Unpack[PushOptions]) -> PushConsumer:
        """Creates a push consumer for this server: see `rocketpy.PushConsumer`.

        Args:
            group: Name of the consumer group.
            options: As for `rocketpy.PushConsumer`.
        """
        from rocketpy.consuming.push import PushConsumer

        return PushConsumer(group, name_servers=self.name_servers, **options)

    def admin(self, **options: Unpack[ClientOptions]) -> Admin:
        """Creates an administration client for this server: see `rocketpy.Admin`.

        Args:
            options: As for `rocketpy.Admin`.
        """
        from rocketpy.admin.admin import Admin

        return Admin(name_servers=self.name_servers, **options)


class Server(_Named):
    """Name server and broker in this process. Clients in any process reach them over TCP.

    Args:
        path: Folder of the store; created if missing.
        host: Host or address to listen on; default `127.0.0.1`.
        port: Port of the broker; 0 selects a free port, None uses the configuration (10911).
        name_server_port: Port of the name server; 0 selects a free port, None uses the configuration (9876).
        config: Configuration file, in TOML or in Apache's properties format.
        settings: Any key of Apache's or RocketPy's configuration, such as `{"flushDiskType": "SYNC_FLUSH"}`. Arguments
            override keys here.
        ready_file: File that receives `{"pid", "name_server", "broker"}` when both accept connections.

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
            ClosedError: The server is not running.
        """
        return self._running().name_server or ""

    @property
    def broker(self) -> str:
        """`host:port` of the broker.

        Raises:
            ClosedError: The server is not running.
        """
        return self._running().broker or ""

    def __repr__(self) -> str:
        return f"<Server on {self._path!r}{' (not running)' if self.closed else ''}>"


class Broker(_Named):
    """Broker alone, registered at name servers in other processes.

    Args:
        path: Folder of the store; created if missing.
        name_servers: `host:port` of each name server, as a list or as one text; default: the value of `settings`, the
            environment variable `NAMESRV_ADDR` or the configuration file, in this order.
        host: Host or address to listen on; default `127.0.0.1`.
        port: Port of the broker; 0 selects a free port, None uses the configuration (10911).
        config: Configuration file, in TOML or in Apache's properties format.
        settings: Any key of Apache's or RocketPy's configuration. Arguments override keys here.
        ready_file: File that receives `{"pid", "name_server", "broker"}` when the server accepts connections.
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
            ClosedError: The server is not running.
        """
        return self._running().broker or ""

    def __repr__(self) -> str:
        return f"<Broker on {self._path!r}{' (not running)' if self.closed else ''}>"


class NameServer(_Named):
    """Name server alone. It has no state on disk: brokers register again after a restart.

    Args:
        host: Host or address to listen on; default `127.0.0.1`.
        port: Port of the name server; 0 selects a free port, None uses the configuration (9876).
        config: Configuration file, in TOML or in Apache's properties format.
        settings: Any key of Apache's or RocketPy's configuration. Arguments override keys here.
        ready_file: File that receives `{"pid", "name_server", "broker"}` when the server accepts connections.
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
            ClosedError: The server is not running.
        """
        return self._running().name_server or ""

    def __repr__(self) -> str:
        return f"<NameServer{' (not running)' if self.closed else ''}>"


def _text(value: Setting) -> str:
    """Converts a value to text for configuration files."""
    return str(value).lower() if isinstance(value, bool) else str(value)
