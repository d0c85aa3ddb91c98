"""Health of clients and servers, for the endpoint that a load balancer or Kubernetes requests.

Examples:
    >>> import rocketpy
    >>> server = getfixture("rocketpy_server")
    >>> with server.producer("shop") as producer:
    ...     rocketpy.health.check(producer, server)
    Health(ok=True, problems=())
    >>> health = rocketpy.health.check(producer)
    >>> health.status_code, health.problems
    (503, ('Producer of group shop is not running',))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rocketpy.base.lifetime import Lifetime
from rocketpy.errors import RocketPyError
from rocketpy.stats import ProducerStats, PushStats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketpy.consuming.consumer import ConsumerState

__all__ = ["Health", "check"]


@dataclass(frozen=True, slots=True)
class Health:
    """Result of a check."""

    ok: bool
    """Whether no problem was found."""
    problems: tuple[str, ...]
    """Sentences with the name of the client or server and its problem."""

    @property
    def status_code(self) -> int:
        """HTTP status of an endpoint: 200, or 503 (service unavailable)."""
        return 200 if self.ok else 503


class Checked(Protocol):
    """A client or a server."""

    @property
    def closed(self) -> bool:
        """True before the start and after the close."""
        ...


def check(client: Checked, *more: Checked) -> Health:
    """Checks clients and servers of this process. Sends no request, so any thread may call it at any rate.

    A problem is one of these:

    - A client or server is not running: not started, closed, or opened by the parent process before a fork.
    - None of the brokers of a consumer answers, as last known. Idle consumers notice it too: they always pull.
    - Users and policies deny what a consumer reads, as last known (`ConsumerState.denied`).
    - All handler threads of a push consumer hang (`PushStats.stalled`): restart the process.
    - Sends of a producer fail for a reason that may pass (`retryable`), and none was acknowledged since. A producer
      that sends nothing keeps its last state.
    - A server stopped serving by itself, as after a failed flush.

    Args:
        client: A client or a server.
        more: More of them.

    Raises:
        TypeError: An object is not a client or a server.
    """
    clients = (client, *more)
    for one in clients:
        if isinstance(one, type):
            raise TypeError(f"{one.__name__} is a class: pass an object of it")
        if not isinstance(one, Lifetime):
            raise TypeError(f"{type(one).__name__} is not a client or a server of rocketpy: pass opened objects")
    problems = tuple(problem for one in clients for problem in _problems(one))
    return Health(not problems, problems)


def _problems(client: Any) -> Iterator[str]:
    group = getattr(client, "group", None)
    kind = client.__class__.__name__  # of a proxy its client's
    name = kind if group is None else f"{kind} of group {group}"
    try:
        if client.closed:
            yield f"{name} is not running"
            return
        if hasattr(client, "state"):
            yield from _of_consumer(name, client.state())
        if hasattr(client, "stats"):
            yield from _of_stats(name, client.stats())
        elif hasattr(client, "check"):
            client.check()
    except RocketPyError as error:
        yield f"{name}: {error}"


def _of_consumer(name: str, state: ConsumerState) -> Iterator[str]:
    if not state.reachable:
        reasons = [f"{broker.broker_name}: {broker.last_error}" for broker in state.brokers]
        yield f"{name} reaches no broker: {'; '.join(reasons)}"
    if state.denied is not None:
        yield f"{name} may not read: {state.denied}"


def _of_stats(name: str, stats: object) -> Iterator[str]:
    if isinstance(stats, PushStats) and stats.stalled:
        yield f"{name} takes no more messages: all its handler threads hang, {stats.hung} calls do not return"
    if isinstance(stats, ProducerStats) and stats.failing_since is not None:
        yield f"{name}: all sends fail since {stats.failing_since.isoformat(timespec='seconds')}"
