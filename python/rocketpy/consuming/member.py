"""Membership of push consumers: what `PushConsumer` and `AsyncPushConsumer` share."""

from __future__ import annotations

import dataclasses
import weakref
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from rocketpy import _rocketpy
from rocketpy.base.names import check_type, check_unicode, name_server_list, path_text
from rocketpy.base.options import check_options
from rocketpy.base.signature import check_function
from rocketpy.base.topic_names import TopicNames
from rocketpy.config import CONCURRENCY, HANDLER_SECONDS, STOP_SECONDS, duration_seconds
from rocketpy.consuming.balance import Allocating, allocating, without_function
from rocketpy.consuming.consumer import ConsumerState, decode_by
from rocketpy.consuming.handlers import Handler
from rocketpy.consuming.rebalance import callbacks
from rocketpy.consuming.workers import END_SECONDS, Workers
from rocketpy.errors import InvalidArgumentError, TopicNotFoundError
from rocketpy.stats import PushStats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rocketpy.codec import Codec
    from rocketpy.config import PushOptions, Tags

Function = TypeVar("Function", bound="Callable[..., Any]")
Joined: TypeAlias = tuple[_rocketpy.PushConsumer, Allocating | None]
"""A native consumer, and the caller of its balance function."""

MAX_CONCURRENCY = 1000
"""Maximum of `concurrency`; each handler runs in a thread or a task."""
MAX_BATCH = 4096
"""Maximum number of messages of a batch: the size of a pull."""
OFFSETS_FOLDER = ".rocketmq_offsets"
"""Folder of offset files in the home folder, as in Apache's clients."""
OPTIONS_OF_HANDLERS: dict[str, str] = dict.fromkeys(
    ("topic", "tags", "sql", "batch", "codec"), "pass it to the decorator on() of each topic"
)
"""Options of `on`, each with its place, for errors of the constructor."""


class PushMember:
    """Handlers of a push consumer, and its membership in the group: `join`, `begin`, `stop`.

    Args:
        group: Name of the consumer group.
        name_servers: As for `rocketpy.PushConsumer`.
        options: As for `rocketpy.PushConsumer`.
        workers: Class of the workers.
    """

    __slots__ = (
        "_allocating",
        "_callbacks",
        "_handlers",
        "_name_servers",
        "_native",
        "_options",
        "group",
        "has_started",
        "stop_timeout",
        "workers",
    )

    def __init__(
        self,
        group: str,
        name_servers: Iterable[str] | str | None,
        options: PushOptions,
        workers: type[Workers] = Workers,
    ) -> None:
        check_type("group", group, str, "a str")
        check_unicode(group)
        self.group = group
        self._name_servers = name_server_list(name_servers)
        self._handlers: dict[str, Handler] = {}
        concurrency = options.pop("concurrency", CONCURRENCY)
        _check_count("concurrency", concurrency, MAX_CONCURRENCY)
        self.workers = workers(group, concurrency, options.get("handler_timeout", HANDLER_SECONDS))
        self.stop_timeout = duration_seconds("stop_timeout", options.pop("stop_timeout", STOP_SECONDS))
        self._callbacks = callbacks(group, options, has_loop=True)
        _check_options(group, options)
        self._allocating: Allocating | None = None
        self._options = options
        self._native: _rocketpy.PushConsumer | None = None
        self.has_started = False  # no handler can be registered any more

    def register(
        self, topic: str, tags: Tags, sql: str | None, batch: int | None, codec: Codec[Any] | None
    ) -> Callable[[Function], Function]:
        """Returns a decorator that registers the handler of a topic, as `PushConsumer.on`."""
        check_type("topic", topic, str, "a name")
        check_unicode(topic, sql, tags)
        if sql is not None:
            check_type("sql", sql, str, 'an expression such as "a > 3"')
            if tags != "*":
                hint = "use TAGS in the expression, as in TAGS = 'UA'"
                raise InvalidArgumentError(f"tags and sql exclude each other for topic {topic}", hint=hint)
        if batch is not None:
            _check_count("batch", batch, MAX_BATCH)
        _rocketpy.tag_names(tags)  # refuses invalid tags
        decode = decode_by(codec)

        def register(function: Function) -> Function:
            wanted = "a function of a message" if batch is None else "a function of a list of messages"
            check_function(f"the handler of topic {topic}", function, wanted, 1)
            if self.has_started:
                raise InvalidArgumentError(
                    f"cannot register a handler of topic {topic}: the consumer was already started"
                )
            if topic in self._handlers:
                hint = "subscribe the handler to all tags, and branch on message.tag in it"
                raise InvalidArgumentError(f"topic {topic} already has a handler", hint=hint)
            self._handlers[topic] = Handler(function, tags, sql, batch, decode)
            return function

        return register

    @property
    def has_handlers(self) -> bool:
        """Whether a handler is registered."""
        return bool(self._handlers)

    def join(self) -> Joined:
        """Joins the group, and waits for the answers of brokers."""
        if not self._handlers:
            raise InvalidArgumentError(
                f"push consumer of group {self.group} has no handler",
                hint='decorate a function: @consumer.on("orders")',
            )
        options = self._options.copy()
        folder = options.pop("offsets_folder", None)
        if options.get("broadcast"):
            path = Path.home() / OFFSETS_FOLDER if folder is None else Path(path_text("offsets_folder", folder))
            options["offsets_folder"] = str(path.absolute())
        topics = [
            (topic, one.tags, one.sql, one.lane, one.batch or 1, one.decode) for topic, one in self._handlers.items()
        ]
        caller = allocating(options)
        if caller is not None:
            options = caller.options(options)
        try:
            return _rocketpy.PushConsumer(self.group, topics, self._name_servers, **options), caller
        except BaseException as error:
            _end_allocating(caller)
            if isinstance(error, TopicNotFoundError):
                TopicNames(self._name_servers, options, self.group).explain(error, self._handlers)
            raise

    def leave(self, joined: Joined) -> None:
        """Leaves the group after a `join` without `begin`."""
        native, caller = joined
        try:
            native.stop(0.0)
        finally:
            _end_allocating(caller)

    def begin(self, joined: Joined, consumer: object) -> None:
        """Calls handlers, in threads and tasks.

        Args:
            joined: Result of `join`.
            consumer: The public object, passed to the callbacks.
        """
        self.has_started = True
        self._native, self._allocating = joined
        self.workers.start(self._native, self._handlers, self._callbacks, weakref.ref(consumer))

    def begin_stop(self, patience: float) -> None:
        """Begins a stop that waits up to `patience` seconds for handlers; `stop` waits for its end."""
        if self._native is not None:
            self._native.begin_stop(patience)

    def stop(self) -> None:
        """Stops in order: waits up to `stop_timeout` for running handlers, commits, and leaves the group."""
        if self._native is not None:
            try:
                self._native.stop(self.stop_timeout)
            except BaseException:  # Ctrl-C: neither this nor the end of Python waits on
                self.stop_timeout = 0.0
                self.workers.end(0.0)
                raise
            finally:
                _end_allocating(self._allocating)
            self.workers.end(END_SECONDS)

    @property
    def client_id(self) -> str | None:
        """Id of the member at brokers; None before the start."""
        return None if self._native is None else self._native.client_id

    def stats(self) -> PushStats:
        """Outcomes of messages, as `PushConsumer.stats`."""
        failed_callbacks = self._callbacks.failures if self._callbacks else 0
        if self._native is None:
            return PushStats(0, 0, 0, 0, 0, 0, failed_callbacks)
        hung, is_stalled = self.workers.hung()
        return dataclasses.replace(self._native.stats(failed_callbacks), hung=hung, stalled=is_stalled)

    def state(self) -> ConsumerState:
        """Assigned queues and brokers, as `PushConsumer.state`."""
        if self._native is None:
            return ConsumerState((), ())
        return self._native.state()


def _end_allocating(caller: Allocating | None) -> None:
    if caller is not None:
        caller.end()
        caller.join()


def _check_options(group: str, options: PushOptions) -> None:
    checked = dict(without_function(options))
    if (folder := checked.pop("offsets_folder", None)) is not None:
        path_text("offsets_folder", cast("str", folder))
    check_options(partial(_rocketpy.PushConsumer, group, [], []), checked)


def _check_count(name: str, count: int, most: int) -> None:
    # Not every caller has a type checker.
    if isinstance(count, bool) or not isinstance(count, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} must be an int, not {type(count).__name__}")
    if not 1 <= count <= most:
        raise InvalidArgumentError(f"{name} must be from 1 to {most}, not {count}")
