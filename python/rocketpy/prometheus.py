"""Metrics of clients for Prometheus, read from `stats()` when Prometheus scrapes.

Requires `prometheus-client` (extra `prometheus`). Register one collector with all clients of the process: a registry
refuses a second one, whose metrics would have the same names.

Each metric has the label `group`. Clients of the same group are added up; of their window use, their lag in a queue and
their quantiles, the largest counts. Metrics of a closed client remain.

Examples:
    >>> import rocketpy, rocketpy.prometheus
    >>> from prometheus_client import CollectorRegistry, generate_latest
    >>> server = getfixture("rocketpy_server")
    >>> with server.admin() as admin:
    ...     admin.create_topic("scraped-doc", queues=4)
    >>> registry = CollectorRegistry()
    >>> with server.producer("shop") as producer:
    ...     registry.register(rocketpy.prometheus.collector(producer))
    ...     _ = producer.send(rocketpy.Message("scraped-doc", b"A-17"))
    ...     page = generate_latest(registry).decode()
    >>> 'rocketpy_producer_messages_total{group="shop",outcome="sent"} 1.0' in page
    True
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rocketpy.base.names import RETRY_PREFIX
from rocketpy.errors import ClosedError, ForkedError, RocketPyError
from rocketpy.stats import ConsumerStats, ProducerStats, PushStats

try:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise RocketPyError("prometheus-client is not installed", hint='pip install "rocketpy-mq[prometheus]"') from missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rocketpy.stats import Latency, QueueStats

__all__ = ["collector"]

FAMILIES = {
    "rocketpy_producer_messages": ("counter", "Messages by outcome: sent, failed, unknown or oneway."),
    "rocketpy_producer_bytes": ("counter", "Bytes of these messages."),
    "rocketpy_producer_retried_messages": ("counter", "Messages sent again after a failed attempt."),
    "rocketpy_producer_request_seconds": ("summary", "Times of acknowledged requests; quantiles of 1 to 2 minutes."),
    "rocketpy_producer_in_flight_messages": ("gauge", "Messages without an outcome in the window."),
    "rocketpy_producer_in_flight_bytes": ("gauge", "Bytes of these messages."),
    "rocketpy_producer_window_ratio": ("gauge", "Use of the window, from 0 to 1. At 1 submit waits."),
    "rocketpy_consumer_received_messages": ("counter", "Messages returned by polls."),
    "rocketpy_consumer_received_bytes": ("counter", "Bytes of these messages."),
    "rocketpy_consumer_failed_pulls": ("counter", "Failed pull requests, which are repeated."),
    "rocketpy_consumer_failed_callbacks": ("counter", "Calls of on_assigned and on_revoked that raised."),
    "rocketpy_consumer_assigned_queues": ("gauge", "Queues of this member, without those of the retry topic."),
    "rocketpy_consumer_lag_messages": ("gauge", "Messages that are not consumed, as last known."),
    "rocketpy_consumer_prefetched_messages": ("gauge", "Messages that wait for a poll or a handler."),
    "rocketpy_consumer_prefetched_bytes": ("gauge", "Bytes of these messages."),
    "rocketpy_handler_messages": ("counter", "Messages by outcome of their handler: consumed or failed."),
    "rocketpy_handler_timed_out_messages": ("counter", "Failed messages whose handler exceeded its timeout."),
    "rocketpy_handler_sent_back_messages": ("counter", "Messages sent back for a redelivery."),
    "rocketpy_handler_dead_messages": ("counter", "Messages moved to the dead letters of the group."),
    "rocketpy_handler_unfinished_messages": ("gauge", "Messages in handlers, or being sent back."),
    "rocketpy_handler_hung_calls": ("gauge", "Calls of handlers that exceeded their timeout and have not returned."),
    "rocketpy_handler_seconds": ("summary", "Times of calls of handlers; quantiles of 1 to 2 minutes."),
}
"""Kind and description of each metric. Counters get the suffix `_total`."""


class Client(Protocol):
    """A client with statistics: a producer or a consumer of any kind."""

    @property
    def group(self) -> str:
        """Name of the group."""
        ...

    def stats(self) -> ProducerStats | ConsumerStats | PushStats:
        """Statistics of the client."""
        ...


class Sample(NamedTuple):
    """One value of a metric of one client."""

    family: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()
    suffix: str = ""
    merge: Callable[[float, float], float] = operator.add
    """Joins the values of clients of the same group."""


def collector(client: Client, *more: Client) -> Collector:
    """Returns a collector for `prometheus_client.REGISTRY.register`.

    A scrape reads `stats()` of each client and sends no request. Clients that were not started have no metrics yet;
    those that a parent process opened before a fork have none in the child.

    Args:
        client: A producer or consumer: `Producer`, `TransactionProducer`, `AsyncProducer`, `Consumer`, `AsyncConsumer`,
            `PushConsumer`, `AsyncPushConsumer`, or another object with `group` and `stats()`.
        more: More of them. One that is given twice counts once.

    Raises:
        TypeError: An object has no statistics, such as a server or an `Admin`, or is a class.
    """
    clients = tuple({id(one): one for one in (client, *more)}.values())
    for one in clients:
        if isinstance(one, type):
            raise TypeError(f"{one.__name__} is a class: pass an object of it")
        if not (callable(getattr(one, "stats", None)) and hasattr(one, "group")):
            kinds = "pass producers and consumers"
            raise TypeError(f"{type(one).__name__} has no metrics for Prometheus: {kinds}")
    return ClientCollector(clients)


class ClientCollector(Collector):
    """Collector of the metrics of clients."""

    def __init__(self, clients: tuple[Client, ...]) -> None:
        self._clients = clients

    def describe(self) -> Iterable[Metric]:
        """Returns all families without samples, so that a registry reads no client for their names."""
        return _families().values()

    def collect(self) -> Iterable[Metric]:
        """Returns the metrics of all clients."""
        merged: dict[tuple[str, str, tuple[tuple[str, str], ...]], float] = {}
        for client in self._clients:
            try:
                stats = client.stats()
            except (ClosedError, ForkedError):  # not started, or of the parent process
                continue
            group = ("group", client.group)
            for sample in _samples(stats):
                key = (sample.family, sample.suffix, (group, *sample.labels))
                merged[key] = sample.merge(merged[key], sample.value) if key in merged else sample.value
        families = _families()
        for (name, suffix, labels), value in merged.items():
            family = families[name]
            end = "_total" if family.type == "counter" else suffix
            family.add_sample(name + end, dict(labels), value)
        return families.values()


def _families() -> dict[str, Metric]:
    return {name: Metric(name, text, kind) for name, (kind, text) in FAMILIES.items()}


def _samples(stats: ProducerStats | ConsumerStats | PushStats) -> Iterator[Sample]:
    if isinstance(stats, ProducerStats):
        yield from _of_producer(stats)
        return
    yield Sample("rocketpy_consumer_failed_callbacks", stats.failed_callbacks)
    yield Sample("rocketpy_consumer_prefetched_messages", stats.prefetched_messages)
    yield Sample("rocketpy_consumer_prefetched_bytes", stats.prefetched_bytes)
    yield from _of_queues(stats.queues)
    if isinstance(stats, ConsumerStats):
        yield Sample("rocketpy_consumer_received_messages", stats.received.messages)
        yield Sample("rocketpy_consumer_received_bytes", stats.received.bytes)
        yield Sample("rocketpy_consumer_failed_pulls", stats.failed_pulls)
    else:
        yield from _of_handlers(stats)


def _of_producer(stats: ProducerStats) -> Iterator[Sample]:
    for outcome in ("sent", "failed", "unknown", "oneway"):
        traffic = getattr(stats, outcome)
        yield Sample("rocketpy_producer_messages", traffic.messages, (("outcome", outcome),))
        yield Sample("rocketpy_producer_bytes", traffic.bytes, (("outcome", outcome),))
    yield Sample("rocketpy_producer_retried_messages", stats.retried.messages)
    yield Sample("rocketpy_producer_in_flight_messages", stats.in_flight_messages)
    yield Sample("rocketpy_producer_in_flight_bytes", stats.in_flight_bytes)
    yield Sample("rocketpy_producer_window_ratio", stats.window_use, merge=max)
    yield from _of_times("rocketpy_producer_request_seconds", stats.latency)


def _of_queues(queues: tuple[QueueStats, ...]) -> Iterator[Sample]:
    own = [at for at in queues if not at.queue.topic.startswith(RETRY_PREFIX)]
    yield Sample("rocketpy_consumer_assigned_queues", len(own))
    for at in queues:
        if at.lag is not None:
            queue = at.queue
            labels = (("topic", queue.topic), ("broker", queue.broker_name), ("queue", str(queue.queue_id)))
            yield Sample("rocketpy_consumer_lag_messages", at.lag, labels, merge=max)


def _of_handlers(stats: PushStats) -> Iterator[Sample]:
    yield Sample("rocketpy_handler_messages", stats.consumed, (("outcome", "consumed"),))
    yield Sample("rocketpy_handler_messages", stats.failed, (("outcome", "failed"),))
    yield Sample("rocketpy_handler_timed_out_messages", stats.timed_out)
    yield Sample("rocketpy_handler_sent_back_messages", stats.sent_back)
    yield Sample("rocketpy_handler_dead_messages", stats.dead)
    yield Sample("rocketpy_handler_unfinished_messages", stats.unfinished)
    yield Sample("rocketpy_handler_hung_calls", stats.hung)
    yield from _of_times("rocketpy_handler_seconds", stats.handling)


def _of_times(family: str, times: Latency) -> Iterator[Sample]:
    yield Sample(family, times.count, suffix="_count")
    yield Sample(family, times.total, suffix="_sum")
    for quantile, seconds in (("0.5", times.p50), ("0.9", times.p90), ("0.99", times.p99), ("0.999", times.p999)):
        if seconds is not None:
            yield Sample(family, seconds, (("quantile", quantile),), merge=max)
