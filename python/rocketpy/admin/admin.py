"""Topics, groups, offsets and clusters."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rocketpy import _rocketpy
from rocketpy.admin.calls import AdminCalls
from rocketpy.admin.dead_letters import RESENDER
from rocketpy.admin.drain_calls import ROUTE_SECONDS
from rocketpy.admin.status_calls import CONCURRENT_CALLS
from rocketpy.base.at_once import at_once, finished, steps
from rocketpy.base.lifetime import Closing
from rocketpy.base.names import name_server_list
from rocketpy.base.options import takes_options
from rocketpy.base.topic_names import TopicNames
from rocketpy.config import CLIENT_DEFAULTS, ClientOptions, ProducerOptions
from rocketpy.producing.copies import COPY_LIMITS
from rocketpy.producing.producer import Producer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
    from typing import Unpack

    from rocketpy.admin.dead_letter_calls import Send
    from rocketpy.admin.dead_letters import DeadLetter, DeadLetterFilter, Resent
    from rocketpy.admin.drains import DrainStep, MoveStep
    from rocketpy.errors import TopicNotFoundError
    from rocketpy.message import Message, Receipt

__all__ = ["Admin"]

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")


class CallsAtOnce(AdminCalls):
    """The calls for a thread: it waits for each answer."""

    __slots__ = ("_name_servers", "_options", "native")

    def __init__(self, name_servers: list[str], options: ClientOptions) -> None:
        self._name_servers, self._options = name_servers, options
        self.native = _rocketpy.Admin(name_servers, **options)

    def _native_admin(self) -> _rocketpy.Admin:
        return self.native

    async def _ask(self, call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        return call(*arguments, **options)

    async def _each(self, call: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item]) -> list[T]:
        given = list(items)
        if len(given) <= 1:
            return [await call(item) for item in given]

        def run(item: Item) -> T:
            return finished(call(item))

        pool = ThreadPoolExecutor(CONCURRENT_CALLS, "rocketpy-admin")
        try:
            return list(pool.map(run, given))
        finally:  # after Ctrl-C the close of the client ends the requests
            pool.shutdown(wait=not isinstance(sys.exception(), KeyboardInterrupt), cancel_futures=True)

    async def _explain(self, error: TopicNotFoundError, topic: str) -> None:
        TopicNames(self._name_servers, self._options).explain(error, [topic])

    async def _pause(self, seconds: float) -> None:
        time.sleep(seconds)

    @asynccontextmanager
    async def _resender(self) -> AsyncGenerator[Send, None]:
        options: ProducerOptions = {**self._options, **COPY_LIMITS}
        with Producer(RESENDER, name_servers=self._name_servers, **options) as producer:

            async def send(message: Message, msg_id: str) -> Receipt:
                return producer.send(message, msg_id=msg_id)

            yield send


@takes_options(ClientOptions, CLIENT_DEFAULTS)
class Admin(Closing):
    """Administration of a cluster, by the calls of `rocketpy.admin.calls.AdminCalls` without `await`.

    If no broker is registered, every call except `brokers` raises `BrokerNotFoundError`: nothing was done, and a later
    call may succeed.

    Args:
        name_servers: `host:port` of each name server, as a list or as one text; default: the environment variable
            `NAMESRV_ADDR`.
        options: Keyword options, declared in `rocketpy.config.ClientOptions`.

    Examples:
        >>> server = getfixture("rocketpy_server")
        >>> with server.admin() as admin:
        ...     admin.create_topic("admin-doc", queues=2)
        ...     [info.queue.queue_id for info in admin.describe_topic("admin-doc").queues]
        [0, 1]
    """

    __slots__ = ("_calls",)
    _warns = False

    def __init__(self, name_servers: Iterable[str] | str | None = None, **options: Unpack[ClientOptions]) -> None:
        super().__init__()
        self._calls = CallsAtOnce(name_server_list(name_servers), options)
        self._opened()

    create_topic = at_once(AdminCalls.create_topic, "Admin")
    delete_topic = at_once(AdminCalls.delete_topic, "Admin")
    topics = at_once(AdminCalls.topics, "Admin")
    describe_topic = at_once(AdminCalls.describe_topic, "Admin")
    queues = at_once(AdminCalls.queues, "Admin")
    topic_configs = at_once(AdminCalls.topic_configs, "Admin")
    topic_groups = at_once(AdminCalls.topic_groups, "Admin")
    topic_rate = at_once(AdminCalls.topic_rate, "Admin")
    groups = at_once(AdminCalls.groups, "Admin")
    group_configs = at_once(AdminCalls.group_configs, "Admin")
    group_rate = at_once(AdminCalls.group_rate, "Admin")
    queue_delays = at_once(AdminCalls.queue_delays, "Admin")
    queue_owners = at_once(AdminCalls.queue_owners, "Admin")
    message_consumers = at_once(AdminCalls.message_consumers, "Admin")
    producers = at_once(AdminCalls.producers, "Admin")
    group_lag = at_once(AdminCalls.group_lag, "Admin")
    group_members = at_once(AdminCalls.group_members, "Admin")
    describe_group = at_once(AdminCalls.describe_group, "Admin")
    consumer_running_info = at_once(AdminCalls.consumer_running_info, "Admin")
    running_members = at_once(AdminCalls.running_members, "Admin")
    producer_connections = at_once(AdminCalls.producer_connections, "Admin")
    create_group = at_once(AdminCalls.create_group, "Admin")
    delete_group = at_once(AdminCalls.delete_group, "Admin")
    reset_offsets = at_once(AdminCalls.reset_offsets, "Admin")
    commit_offset = at_once(AdminCalls.commit_offset, "Admin")
    clone_offsets = at_once(AdminCalls.clone_offsets, "Admin")
    min_offset = at_once(AdminCalls.min_offset, "Admin")
    max_offset = at_once(AdminCalls.max_offset, "Admin")
    next_offset = at_once(AdminCalls.next_offset, "Admin")
    search_offset = at_once(AdminCalls.search_offset, "Admin")
    committed_offset = at_once(AdminCalls.committed_offset, "Admin")
    view_message = at_once(AdminCalls.view_message, "Admin")
    query_messages = at_once(AdminCalls.query_messages, "Admin")
    message = at_once(AdminCalls.message, "Admin")
    trace = at_once(AdminCalls.trace, "Admin")
    brokers = at_once(AdminCalls.brokers, "Admin")
    status = at_once(AdminCalls.status, "Admin")
    broker_status = at_once(AdminCalls.broker_status, "Admin")
    group_status = at_once(AdminCalls.group_status, "Admin")
    topic_status = at_once(AdminCalls.topic_status, "Admin")
    read = at_once(AdminCalls.read, "Admin")
    waiting_retries = at_once(AdminCalls.waiting_retries, "Admin")
    waiting_messages = at_once(AdminCalls.waiting_messages, "Admin")
    open_transactions = at_once(AdminCalls.open_transactions, "Admin")
    broker_figures = at_once(AdminCalls.broker_figures, "Admin")
    ping = at_once(AdminCalls.ping, "Admin")
    config = at_once(AdminCalls.config, "Admin")
    set_config = at_once(AdminCalls.set_config, "Admin")
    unset_config = at_once(AdminCalls.unset_config, "Admin")
    broker_config = at_once(AdminCalls.broker_config, "Admin")
    update_broker_config = at_once(AdminCalls.update_broker_config, "Admin")
    ha_status = at_once(AdminCalls.ha_status, "Admin")
    promote = at_once(AdminCalls.promote, "Admin")
    demote = at_once(AdminCalls.demote, "Admin")
    quotas = at_once(AdminCalls.quotas, "Admin")
    set_quota = at_once(AdminCalls.set_quota, "Admin")
    remove_quota = at_once(AdminCalls.remove_quota, "Admin")
    account_servers = at_once(AdminCalls.account_servers, "Admin")
    users = at_once(AdminCalls.users, "Admin")
    user = at_once(AdminCalls.user, "Admin")
    create_user = at_once(AdminCalls.create_user, "Admin")
    update_user = at_once(AdminCalls.update_user, "Admin")
    rotate_user = at_once(AdminCalls.rotate_user, "Admin")
    finish_rotation = at_once(AdminCalls.finish_rotation, "Admin")
    delete_user = at_once(AdminCalls.delete_user, "Admin")
    policies = at_once(AdminCalls.policies, "Admin")
    grant = at_once(AdminCalls.grant, "Admin")
    revoke = at_once(AdminCalls.revoke, "Admin")
    dead_letter_groups = at_once(AdminCalls.dead_letter_groups, "Admin")
    was_resent = at_once(AdminCalls.was_resent, "Admin")
    update_topic = at_once(AdminCalls.update_topic, "Admin")
    update_group = at_once(AdminCalls.update_group, "Admin")
    group_settings = at_once(AdminCalls.group_settings, "Admin")
    plan_reset = at_once(AdminCalls.plan_reset, "Admin")
    set_offset = at_once(AdminCalls.set_offset, "Admin")
    resend_message = at_once(AdminCalls.resend_message, "Admin")
    consume_directly = at_once(AdminCalls.consume_directly, "Admin")
    clean_broker = at_once(AdminCalls.clean_broker, "Admin")
    undrain_broker = at_once(AdminCalls.undrain_broker, "Admin")

    def dead_letters(
        self, group: str, which: DeadLetterFilter | None = None, *, newest_first: bool = False
    ) -> Iterator[DeadLetter]:
        """Yields the dead letters of a group, queue by queue, the oldest first. Later dead letters are left out.

        A group that gave up no message has none. The dead letters of a deleted group can still be read.

        Args:
            group: The consumer group.
            which: Filter of the dead letters; default: all.
            newest_first: Whether to yield the newest of all queues first, by the time at which they were stored.

        Raises:
            GroupNotFoundError: Neither the group nor a topic of its dead letters exists.
            InvalidArgumentError: A time is invalid.
            RequestTimeoutError: A broker does not answer. The dead letters of the others were yielded before.
        """
        return steps(finished(self._calls._letters_of(group, which, newest_first)))

    def resend_dead_letters(
        self,
        letters: Iterable[DeadLetter],
        *,
        to: str | None = None,
        rate: float | None = None,
        again: bool = False,
    ) -> Iterator[Resent]:
        """Resends dead letters to their original topics. Each step of the iteration sends the next one.

        The dead letters stay. A dead letter that was resent before is skipped: each copy has its own id, derived from
        the position of the dead letter, and is looked up first. An interrupted resend can therefore be repeated. Two
        concurrent resends may send the same dead letter twice; both copies then have one `msg_id`. A copy is found as
        long as its topic keeps it. Without `to`, dead letters that do not name their original topic are skipped.

        A copy has the body, tag, keys, order key and own properties of the dead letter as stored, and the properties
        `rocketpyResentFrom`, `rocketpyOriginTopic` and `rocketpyOriginMsgId`. Its delivery count starts at 0. A dead
        letter that its target can never accept is skipped, and `Resent.rejected` has the reason: the dead letter is
        too large with these properties, its body does not decompress, or its original topic does not exist or has an
        invalid name.

        Args:
            letters: Dead letters to resend, from `dead_letters`.
            to: Target topic for all dead letters, in place of their original topics. It must exist.
            rate: Maximum number of messages per second. Skipped dead letters do not count.
            again: Whether to send dead letters that were resent before.

        Raises:
            TopicNotFoundError: The topic `to` does not exist, and nothing was sent.
            InvalidArgumentError: The rate is not above 0.
            RocketPyError: As for `Producer.send`. The dead letters before it were resent.

        Examples:
            >>> import rocketpy
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin, server.producer("ingest") as producer:
            ...     admin.create_topic("resend-doc", queues=1)
            ...     _ = producer.send(rocketpy.Message("%DLQ%resend-doc", b"a dead letter that names no topic"))
            ...     resent = admin.resend_dead_letters(admin.dead_letters("resend-doc"), to="resend-doc", rate=100)
            ...     print(sum(one.receipt is not None for one in resent))  # they are sent as they are read
            1
        """
        return steps(finished(self._calls._resent(letters, to, rate, again)))

    def drain_broker(
        self, broker: str, *, quiet: float = ROUTE_SECONDS, timeout: float | None = None, force: bool = False
    ) -> Iterator[DrainStep]:
        """Makes a broker read only, and waits until it may be stopped. Each step of the iteration waits a second.

        Clients read the route within 30 s and send to other brokers; until then the broker accepts their messages, for
        up to 60 s. Then the drain waits for groups with live members. Groups without members, delayed messages and
        timers stay in the store: the last step names them, and the next start delivers them. An iteration that ends
        early leaves the broker read only: drain it again to continue, or call `undrain_broker`.

        The name servers keep the permission before the drain.

        Args:
            broker: Name or `host:port` of the broker.
            quiet: Time in seconds without a send after which all clients have followed. Default: 35, because clients
                read routes every 30 s.
            timeout: Maximum time in seconds; None for no limit.
            force: Whether to drain a broker with topics that no other broker accepts messages of. Their sends fail.

        Yields:
            The progress. The last step has the state `drained`.

        Raises:
            BrokerNotFoundError: No master has this name or address.
            RefusedError: No other broker accepts messages of some topics, and nothing was changed; or the broker got
                its write permission back during the drain.
            RequestTimeoutError: The timeout is over, or a broker does not answer. A retry continues the drain.

        Examples:
            >>> import rocketpy
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     states = [step.state for step in admin.drain_broker(server.broker, quiet=0, force=True)]
            ...     admin.undrain_broker(server.broker)
            6
            >>> states[0], states[-1]
            ('lowered', 'drained')
        """
        return steps(self._calls._drain(broker, quiet, timeout, force))

    def move_topic(
        self,
        topic: str,
        source: str,
        target: str,
        *,
        settle: float = ROUTE_SECONDS,
        timeout: float | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> Iterator[MoveStep]:
        """Moves a topic from one broker to another, under load. Each step of the iteration may wait a second.

        The steps: create the topic at the target; make it read only at the source; wait until clients have followed,
        whose messages the source accepts until then; wait until every group has read it there; remove it from the
        source. Only new messages are at the target. An iteration that ends early can be repeated, and continues.

        Progress that a reader keeps elsewhere, such as a checkpoint of Spark, is not known to brokers: stop such
        readers at the end of the source first.

        Args:
            topic: The topic; not one of the system.
            source: Name or `host:port` of the broker that has the topic.
            target: Name or `host:port` of the broker that receives the topic.
            settle: Time in seconds without a send to the source after which all clients have followed. Default: 35,
                because they read routes every 30 s.
            timeout: Maximum time in seconds; None for no limit.
            force: Whether to remove messages that no group consumes.
            dry_run: Whether to return the plan without changing anything.

        Yields:
            The steps, each again while it waits.

        Raises:
            TopicNotFoundError: Neither broker has the topic.
            BrokerNotFoundError: No master has the name or address of a broker.
            InvalidArgumentError: The topic belongs to the system, or both brokers are the same.
            RefusedError: No group consumes the messages at the source; see `force`.
            RequestTimeoutError: The timeout is over, or a broker does not answer. A retry continues the move.
        """
        return steps(self._calls._move(topic, source, target, settle, timeout, force, dry_run))

    def _begin_close(self) -> None:
        self._calls.native.begin_close()

    def _close(self) -> None:
        self._calls.native.close()

    def __repr__(self) -> str:
        return f"<Admin{' (closed)' if self.closed else ''}>"
