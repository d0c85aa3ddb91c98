"""OpenTelemetry spans of sends, handlers and work on messages, connected by a context in message properties.

Requires `opentelemetry-api` (extra `otel`). Names and attributes follow OpenTelemetry's semantic conventions for
messaging. The global propagator writes the context, by default as W3C's `traceparent`, `tracestate` and `baggage`,
which members in other languages can read.

Examples:
    >>> import rocketpy
    >>> from rocketpy.otel import instrument, process_span
    >>> server = getfixture("rocketpy_server")
    >>> with instrument(server.producer("shop")) as producer:
    ...     receipt = producer.send(rocketpy.Message("otel-doc", b"a book"))
    >>> with server.consumer("billing", "otel-doc") as consumer:
    ...     for message in consumer.poll(timeout=60):
    ...         with process_span(message, consumer=consumer) as span:
    ...             span.set_attribute("shop.item", message.body.decode())
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rocketpy import Message, __version__
from rocketpy.base.names import check_type
from rocketpy.consuming.handlers import Retry, is_async
from rocketpy.errors import RocketPyError

try:
    from opentelemetry import propagate, trace
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode
except ImportError as missing:
    raise RocketPyError("opentelemetry-api is not installed", hint='pip install "rocketpy-mq[otel]"') from missing

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from concurrent.futures import Future

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from rocketpy import (
        AsyncConsumer,
        AsyncProducer,
        AsyncPushConsumer,
        Consumer,
        Producer,
        PushConsumer,
        Receipt,
        Receipts,
        ReceivedMessage,
        Transaction,
    )

__all__ = ["extract", "inject", "instrument", "process_span"]

P = TypeVar("P", "Producer", "AsyncProducer", "PushConsumer", "AsyncPushConsumer")
Function = TypeVar("Function", bound="Callable[..., Any]")
Attributes = dict[str, str | int | Sequence[str]]


def instrument(client: P, *, tracer_provider: TracerProvider | None = None) -> P:
    """Instruments a producer, whose sends become spans, or a push consumer, whose handlers run in spans.

    For a producer, `send`, `request`, `submit`, `send_oneway` and `transaction` create a span per message, and
    `send_many` one span for all its messages; each message carries the context of its span. The span of `submit` ends
    with the outcome of the message. An existing context of a message is replaced.

    For a push consumer, each call of a handler registered by `on` of the returned object has a span of `process_span`.
    Errors of the handler are recorded, except a `Retry` that was not raised from an error.

    All other calls are forwarded to the given client, which creates no spans if it is used directly.

    Args:
        client: A `Producer`, `TransactionProducer`, `AsyncProducer`, `PushConsumer` or `AsyncPushConsumer`.
        tracer_provider: Tracer provider of the spans; default: the global one.

    Raises:
        TypeError: The client has another type.

    Examples:
        >>> import rocketpy
        >>> mailer = instrument(rocketpy.PushConsumer("mailer", name_servers="127.0.0.1:9876"))
        >>> @mailer.on("orders")
        ... def mail(message):
        ...     trace.get_current_span().set_attribute("shop.order", message.body.decode())
    """
    from rocketpy import AsyncProducer, AsyncPushConsumer, Producer, PushConsumer

    kinds = "a Producer, an AsyncProducer, a PushConsumer or an AsyncPushConsumer"
    check_type("client", client, Producer | AsyncProducer | PushConsumer | AsyncPushConsumer, kinds)
    if isinstance(client, PushConsumer | AsyncPushConsumer):
        return cast("P", TracedPush(client, tracer_provider))
    kind = TracedAsync if isinstance(client, AsyncProducer) else Traced
    return cast("P", kind(client, _tracer(tracer_provider)))


def inject(message: Message, context: Context | None = None) -> Message:
    """Copies a message and adds a context to it.

    Args:
        message: The message, which is not changed.
        context: The context; default: the current one.
    """
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    if not carrier:
        return message
    arguments, options = message.__getnewargs_ex__()
    options["properties"] = {**message.properties, **carrier}
    return Message(*arguments, **options)


def extract(message: ReceivedMessage) -> Context:
    """Returns the context of a message; the empty context without one."""
    from opentelemetry.context import Context

    return propagate.extract(message.properties, Context())


@contextmanager
def process_span(
    messages: ReceivedMessage | Sequence[ReceivedMessage],
    *,
    consumer: Consumer | AsyncConsumer | PushConsumer | AsyncPushConsumer | None = None,
    tracer_provider: TracerProvider | None = None,
) -> Generator[Span]:
    """Opens a span for the work on one or several messages. The span is current in the block.

    The span links to the send span of each message. Outside any other span, the span of one message is a child of its
    send span, so that both are in one trace. An error that leaves the block is recorded, and raised.

    Args:
        messages: The message or messages, of one topic.
        consumer: Consumer of the messages, for the attributes.
        tracer_provider: Tracer provider of the span; default: the global one.

    Yields:
        The span, for additional attributes.
    """
    batch = messages if isinstance(messages, Sequence) else [messages]
    origins = [extract(message) for message in batch]
    contexts = [trace.get_current_span(origin).get_span_context() for origin in origins]
    links = [Link(context) for context in contexts if context.is_valid]
    has_current = trace.get_current_span().get_span_context().is_valid
    parent = origins[0] if len(batch) == 1 and not has_current else None
    topics = sorted({message.topic for message in batch})
    attributes = _attributes("process", "process", topics)
    if consumer is not None:
        attributes |= {
            "messaging.consumer.group.name": consumer.group,
            "messaging.client.id": consumer.client_id or "",  # a push consumer has one from its start on
        }
    if isinstance(messages, Sequence):
        attributes["messaging.batch.message_count"] = len(batch)
    else:
        attributes |= _of_message(messages)
        attributes["messaging.message.id"] = messages.msg_id
        attributes["messaging.destination.partition.id"] = str(messages.queue_id)
    tracer = _tracer(tracer_provider)
    name = _span_name("process", topics)
    with tracer.start_as_current_span(name, parent, SpanKind.CONSUMER, attributes, links) as span:
        with _telling(span):
            yield span


class _Standing:
    """Proxy of a client, which forwards all calls without spans."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @property  # type: ignore[misc]
    def __class__(self) -> type[object]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Class of the client, so that `isinstance` checks succeed."""
        return cast("object", self._client).__class__

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def __repr__(self) -> str:
        return f"<instrumented {self._client!r}>"


class TracedPush(_Standing):
    """An instrumented `PushConsumer` or `AsyncPushConsumer`."""

    def __init__(self, consumer: PushConsumer | AsyncPushConsumer, provider: TracerProvider | None) -> None:
        super().__init__(consumer)
        self._provider = provider

    def on(self, topic: str, **options: Any) -> Callable[[Function], Function]:
        register = self._client.on(topic, **options)

        def traced(function: Function) -> Function:
            register(self._traced(function) if callable(cast("object", function)) else function)
            return function

        return traced

    def _traced(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def span(given: Any) -> Generator[None]:
            asked: Retry | None = None
            with process_span(given, consumer=self._client, tracer_provider=self._provider):
                try:
                    yield
                except Retry as retry:
                    if retry.__cause__ is not None:
                        raise
                    asked = retry
            if asked is not None:
                raise asked

        def handle(given: Any) -> Any:
            with span(given):
                return function(given)

        async def handle_async(given: Any) -> Any:
            with span(given):
                return await function(given)

        return functools.wraps(function, updated=())(handle_async if is_async(function) else handle)

    def __enter__(self) -> TracedPush:
        self._client.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._client.__exit__(*raised)

    async def __aenter__(self) -> TracedPush:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._client.__aexit__(*raised)


class _Producing(_Standing):
    """Common base of instrumented producers: the producer, and the spans of its sends."""

    def __init__(self, producer: Any, tracer: Tracer) -> None:
        super().__init__(producer)
        self._tracer = tracer

    def _start(self, messages: Sequence[Message]) -> Span:
        for message in messages:
            check_type("message", message, Message, "a rocketpy.Message")
        topics = sorted({message.topic for message in messages})
        attributes = _attributes("send", "send", topics)
        attributes |= {"messaging.client.id": self._client.client_id}
        if len(messages) == 1:
            attributes |= {"messaging.message.body.size": len(messages[0]), **_of_message(messages[0])}
        else:
            attributes["messaging.batch.message_count"] = len(messages)
        return self._tracer.start_span(_span_name("send", topics), kind=SpanKind.PRODUCER, attributes=attributes)

    @contextmanager
    def _span(self, *messages: Message) -> Generator[tuple[Span, list[Message]]]:
        """Opens a current span for a call, and returns it with the messages that carry its context."""
        span = self._start(messages)
        with trace.use_span(span, end_on_exit=True), _telling(span):
            yield span, [inject(message) for message in messages]


class Traced(_Producing):
    """An instrumented `Producer`."""

    def send(self, message: Message, **options: Any) -> Receipt:
        with self._span(message) as (span, (carrying,)):
            return _received(span, self._client.send(carrying, **options))

    def request(self, message: Message, **options: Any) -> ReceivedMessage:
        with self._span(message) as (_, (carrying,)):
            return cast("ReceivedMessage", self._client.request(carrying, **options))

    def transaction(self, message: Message, **options: Any) -> Transaction:
        begin = self._client.transaction  # what a plain producer has not
        with self._span(message) as (span, (carrying,)):
            transaction: Transaction = begin(carrying, **options)
            _received(span, transaction.receipt)
            return transaction

    def send_oneway(self, message: Message, **options: Any) -> None:
        with self._span(message) as (_, (carrying,)):
            self._client.send_oneway(carrying, **options)

    def send_many(self, messages: Iterable[Message], **options: Any) -> Receipts:
        with self._span(*messages) as (_, carrying):
            return cast("Receipts", self._client.send_many(carrying, **options))

    def submit(self, message: Message, **options: Any) -> Future[Receipt]:
        span = self._start([message])
        try:
            carrying = inject(message, trace.set_span_in_context(span))
            future: Future[Receipt] = self._client.submit(carrying, **options)
        except BaseException as error:
            _ended(span, error)
            raise

        def done(future: Future[Receipt]) -> None:
            # The failure stays unread.
            error = cast("BaseException | None", future._peek())  # type: ignore[attr-defined]
            if error is None:
                _received(span, future.result())
            _ended(span, error)

        future.add_done_callback(done)
        return future

    def __enter__(self) -> Traced:
        self._client.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._client.__exit__(*raised)


class TracedAsync(_Producing):
    """An instrumented `AsyncProducer`."""

    async def send(self, message: Message, **options: Any) -> Receipt:
        with self._span(message) as (span, (carrying,)):
            return _received(span, await self._client.send(carrying, **options))

    async def request(self, message: Message, **options: Any) -> ReceivedMessage:
        with self._span(message) as (_, (carrying,)):
            return cast("ReceivedMessage", await self._client.request(carrying, **options))

    async def send_oneway(self, message: Message, **options: Any) -> None:
        with self._span(message) as (_, (carrying,)):
            await self._client.send_oneway(carrying, **options)

    async def send_many(self, messages: Iterable[Message], **options: Any) -> Receipts:
        with self._span(*messages) as (_, carrying):
            return cast("Receipts", await self._client.send_many(carrying, **options))

    async def start(self) -> TracedAsync:
        await self._client.start()
        return self

    async def __aenter__(self) -> TracedAsync:
        return await self.start()

    async def __aexit__(self, *raised: Any) -> None:
        await self._client.__aexit__(*raised)


def _tracer(provider: TracerProvider | None) -> Tracer:
    return trace.get_tracer("rocketpy", __version__, provider)


def _span_name(operation: str, topics: list[str]) -> str:
    return f"{operation} {topics[0]}" if len(topics) == 1 else operation


def _attributes(operation: str, kind: str, topics: list[str]) -> Attributes:
    attributes: Attributes = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }
    if len(topics) == 1:
        attributes["messaging.destination.name"] = topics[0]
    return attributes


def _of_message(message: Message | ReceivedMessage) -> Attributes:
    attributes: Attributes = {}
    if message.tag is not None:
        attributes["messaging.rocketmq.message.tag"] = message.tag
    if message.keys:
        attributes["messaging.rocketmq.message.keys"] = message.keys
    if message.order_key is not None:
        attributes["messaging.rocketmq.message.group"] = message.order_key
    return attributes


@contextmanager
def _telling(span: Span) -> Generator[None]:
    """Records the type of an error that leaves the block; the block of the span records its details."""
    try:
        yield
    except BaseException as error:
        _failed(span, error)
        raise


def _failed(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__qualname__)


def _received(span: Span, receipt: Receipt) -> Receipt:
    span.set_attribute("messaging.message.id", receipt.msg_id)
    span.set_attribute("messaging.destination.partition.id", str(receipt.queue.queue_id))
    return receipt


def _ended(span: Span, error: BaseException | None) -> None:
    if error is not None:
        _failed(span, error)
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
    span.end()
