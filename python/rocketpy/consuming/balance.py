"""Strategies by which the members of a group share the queues of a topic."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar, cast

from rocketpy import _rocketpy
from rocketpy.base.clock import monotonic
from rocketpy.base.failure import loggable
from rocketpy.base.names import check_type
from rocketpy.base.signature import check_function
from rocketpy.errors import ClosedError, ForkedError, InvalidArgumentError
from rocketpy.message import MessageQueue

if TYPE_CHECKING:
    from rocketpy.config import ConsumerOptions, MemberOptions

__all__ = ["Allocate", "Balance"]

logger = logging.getLogger("rocketpy.client")

Given = TypeVar("Given", bound="MemberOptions")

Allocate: TypeAlias = Callable[[str, str, list[MessageQueue], list[str]], Iterable[MessageQueue]]
"""Function of the group, the client id of this member, the queues of a topic and the client ids of all members, both
sorted. Returns the queues that this member reads."""

LOOK_SECONDS = 1.0
"""Maximum wait of the thread that calls the function, before it checks for the end."""
END_SECONDS = 3.0
"""Timeout for the function when a consumer is closed."""
REMIND_SECONDS = 60.0
"""Minimum time between two logs of the same failure."""


@dataclass(frozen=True, slots=True)
class Balance:
    """Strategy by which the members of a group share the queues of a topic.

    Each member computes its own share from the same lists, so all members must have the same balance: otherwise some
    queues are read twice and others are not read. Members of Apache's Java client agree if they have the strategy that
    is named with each. Its Go client supports only `AVERAGE`, `CIRCLE` and `by_configuration`.

    Examples:
        >>> Balance.CIRCLE
        Balance('circle')
        >>> Balance.of("consistent_hash")
        Balance('consistent_hash', virtual_nodes=10)
    """

    kind: Literal["average", "circle", "configuration", "assigned", "machine_room", "nearest_room", "consistent_hash"]
    """The kind of strategy."""
    queues: tuple[MessageQueue, ...] = ()
    """Queues of `by_configuration` and of `Consumer.assign`."""
    rooms: tuple[str, ...] = ()
    """Rooms of `machine_room`."""
    brokers: tuple[tuple[str, str], ...] = ()
    """Prefixes of broker names and their rooms, for `nearest_room`."""
    clients: tuple[tuple[str, str], ...] = ()
    """Prefixes of client ids and their rooms, for `nearest_room`."""
    inner: Balance | None = None
    """Strategy within a room, for `nearest_room`."""
    virtual_nodes: int | None = None
    """Number of points of each member on the ring of `consistent_hash`."""

    AVERAGE: ClassVar[Balance]
    """A run of consecutive queues for each member. Java: `AllocateMessageQueueAveragely`, the default there too."""
    CIRCLE: ClassVar[Balance]
    """Queues in turn, so that each member has some of every broker. Java: `AllocateMessageQueueAveragelyByCircle`."""
    CONSISTENT_HASH: ClassVar[Balance]
    """Ring of hashes with 10 points for each member, as `consistent_hash()`."""

    @classmethod
    def by_configuration(cls, queues: Iterable[MessageQueue]) -> Balance:
        """Assigns the given queues, independently of other members. Java: `AllocateMessageQueueByConfig`.

        The member belongs to the group and commits for it; no other member takes its queues over when it dies. Missing
        queues are logged and left out.

        Args:
            queues: Queues of the topics of the consumer, at least one.

        Raises:
            InvalidArgumentError: No queue is given.
        """
        return cls("configuration", queues=some("queues", tuple(queues)))

    @classmethod
    def machine_room(cls, rooms: Iterable[str]) -> Balance:
        """Queues of the brokers of some rooms, shared among all members. Java: `AllocateMessageQueueByMachineRoom`.

        Args:
            rooms: Names of rooms, at least one. The room of a broker is the part of its name before `@`, as in
                `"east@broker-a"`; other brokers are not read. Only Apache's brokers can have such names.

        Raises:
            InvalidArgumentError: No room is given.
        """
        names = (rooms,) if isinstance(rooms, str) else tuple(rooms)
        return cls("machine_room", rooms=some("rooms", names))

    @classmethod
    def nearest_room(
        cls, brokers: Mapping[str, str], clients: Mapping[str, str], inner: Balance | str | None = None
    ) -> Balance:
        """Queues of the brokers in the member's own room. Those of rooms without a member are shared among all.

        Java: `AllocateMachineRoomNearby`, with an equivalent resolver. If the room of a broker or of a member is
        unknown, the assignment stays unchanged, and this is logged.

        Args:
            brokers: Rooms by broker name or its prefix; the longest matching prefix applies.
            clients: Rooms of members by the prefix of their client id, which is their address: `{"10.1.": "east"}`.
            inner: Strategy within a room: average (the default), circle or consistent hash.

        Raises:
            InvalidArgumentError: No broker or no client is given.
        """
        return cls(
            "nearest_room",
            brokers=some("brokers", tuple(brokers.items())),
            clients=some("clients", tuple(clients.items())),
            inner=cls.AVERAGE if inner is None else cls.of(inner),
        )

    @classmethod
    def consistent_hash(cls, virtual_nodes: int = 10) -> Balance:
        """Shares queues by a ring of hashes: few queues move when members join or leave, but shares differ in size.

        Java: `AllocateMessageQueueConsistentHash`, byte for byte.

        Args:
            virtual_nodes: Number of points of each member on the ring, from 1 to 1000; more points make shares more
                equal.
        """
        return cls("consistent_hash", virtual_nodes=virtual_nodes)

    @classmethod
    def of(cls, balance: Balance | str) -> Balance:
        """Converts user input to a balance.

        Args:
            balance: A balance, or `"average"`, `"circle"` or `"consistent_hash"`.

        Raises:
            TypeError: The value has another type.
            InvalidArgumentError: The text is not a balance.
        """
        if isinstance(balance, cls):
            return balance
        if not isinstance(balance, str):
            raise TypeError(
                f"must be a rocketpy.Balance, one of {BALANCES} or a function, not {type(balance).__name__}"
            )
        named = {"average": cls.AVERAGE, "circle": cls.CIRCLE, "consistent_hash": cls.CONSISTENT_HASH}
        try:
            return named[balance.strip().lower().replace("-", "_")]
        except KeyError:
            hint = f"write one of {BALANCES}, or Balance.by_configuration(...), machine_room(...), nearest_room(...)"
            raise InvalidArgumentError(f"not a balance: {balance}", hint=hint) from None

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in self.__slots__ if name != "kind"}
        given = "".join(f", {name}={value!r}" for name, value in values.items() if value not in ((), None))
        return f"Balance({self.kind!r}{given})"


BALANCES = "'average', 'circle', 'consistent_hash'"
"""Balances as text, for errors."""

Balance.AVERAGE = Balance("average")
Balance.CIRCLE = Balance("circle")
Balance.CONSISTENT_HASH = Balance.consistent_hash()


def some(name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Requires at least one value."""
    if not values:
        raise InvalidArgumentError(f"{name} must not be empty")
    return values


class Allocating:
    """Calls a user function in its own thread, so that no thread of the clients waits for it."""

    __slots__ = ("_failed_at", "_failure", "_function", "_questions", "_thread")

    def __init__(self, function: Allocate) -> None:
        _check_balance(function)
        self._function = function
        self._questions = _rocketpy.Allocations()
        self._failure, self._failed_at = "", 0.0
        self._thread = threading.Thread(target=self._run, name="rocketpy-balance", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ends the thread, without waiting for it."""
        self._questions.end()

    def join(self) -> None:
        """Waits a bounded time for the end of the thread, unless it is the current one."""
        if self._thread is not threading.current_thread():
            self._thread.join(END_SECONDS)

    def options(self, options: Given) -> Given:
        """Options of the native consumer, whose requests the thread answers."""
        return cast("Given", {**options, "balance": self._questions})

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            try:
                question, goes_on = self._questions.next(LOOK_SECONDS)
            except (ClosedError, ForkedError):
                return
            if question is not None:
                try:
                    self._answer(question)
                finally:
                    question.refuse()

    def _answer(self, question: _rocketpy.Allocation) -> None:
        asked = question.asked()
        if asked is None:  # an earlier call took too long
            return
        group, client_id, queues, members = asked
        topic, known = queues[0].topic if queues else "", set(queues)
        try:
            chosen = list(self._function(group, client_id, queues, members))
            stranger = next((queue for queue in chosen if queue not in known), None)
            if stranger is not None:
                raise InvalidArgumentError(f"the balance function returned a queue outside topic {topic}: {stranger!r}")
        except BaseException as error:  # SystemExit as well: the thread answers the next question too
            failure = repr(error)
            if failure != self._failure or monotonic() - self._failed_at > REMIND_SECONDS:
                self._failure, self._failed_at = failure, monotonic()
                text = "balance function of group %s failed for topic %s; the member keeps its queues"
                logger.error(text, group, topic, exc_info=loggable(error))
            return
        self._failure = ""
        question.answer(chosen)


def assigned(queues: Iterable[MessageQueue], options: ConsumerOptions) -> tuple[list[str], ConsumerOptions]:
    """Topics and options of a consumer that reads given queues outside its group.

    Raises:
        InvalidArgumentError: No queue is given, or an option applies only to members.
    """
    for name in ("balance", "retry_topic", "on_assigned", "on_revoked"):
        if name in options:
            raise InvalidArgumentError(f"Consumer.assign has no option {name}")
    check_type("queues", queues, Iterable, "a list of rocketpy.MessageQueue")
    chosen = tuple(queues)
    for queue in chosen:
        check_type("each of queues", queue, MessageQueue, "a rocketpy.MessageQueue")
    balance = Balance("assigned", queues=some("queues", chosen))
    topics = list(dict.fromkeys(queue.topic for queue in balance.queues))
    return topics, cast("ConsumerOptions", {**options, "balance": balance})


def allocating(options: MemberOptions) -> Allocating | None:
    """Caller of the balance function among the options, if there is one."""
    balance = options.get("balance")
    return Allocating(balance) if callable(balance) else None


def without_function(options: MemberOptions) -> MemberOptions:
    """Options for a check by the extension module: without the balance function, which is checked here.

    Raises:
        TypeError: The function cannot be called with these arguments.
    """
    balance = options.get("balance")
    if not callable(balance):
        return options
    _check_balance(balance)
    return cast("MemberOptions", {name: value for name, value in options.items() if name != "balance"})


def _check_balance(function: Allocate) -> None:
    if inspect.iscoroutinefunction(function):
        raise TypeError("balance must be a plain function, not a coroutine function: it is called in a thread")
    check_function("balance", function, "a function of group, client_id, queues and members", 4)
