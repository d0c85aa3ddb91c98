"""How the members of a group share the queues of a topic."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar, cast

from rocketpy import _rocketpy
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
"""A function of the group, the client id of this member, the queues of a topic and the client ids of all members, both
sorted. It returns the queues that this member reads."""

LOOK_SECONDS = 1.0
"""How long the thread that calls such a function waits at a time."""
END_SECONDS = 3.0
"""How long the closing of a consumer waits for its function."""
REMIND_SECONDS = 60.0
"""Time between two reports of the same failure."""


@dataclass(frozen=True, slots=True)
class Balance:
    """How the members of a group share the queues of a topic.

    Each member computes its own share from the same lists, so all members must have the same balance: otherwise some
    queues are read twice and others by nobody. Members of Apache's Java client agree when they have the strategy that
    is named with each. Its Go client shares `AVERAGE`, `CIRCLE` and `by_configuration` only.

    Examples:
        >>> Balance.CIRCLE
        Balance('circle')
        >>> Balance.of("consistent_hash")
        Balance('consistent_hash', virtual_nodes=10)
    """

    kind: Literal["average", "circle", "configuration", "assigned", "machine_room", "nearest_room", "consistent_hash"]
    """Which rule applies."""
    queues: tuple[MessageQueue, ...] = ()
    """The queues of `by_configuration` and of `Consumer.assign`."""
    rooms: tuple[str, ...] = ()
    """The rooms of `machine_room`."""
    brokers: tuple[tuple[str, str], ...] = ()
    """For `nearest_room`, how names of brokers begin, and their room."""
    clients: tuple[tuple[str, str], ...] = ()
    """For `nearest_room`, how client ids begin, and their room."""
    inner: Balance | None = None
    """How the queues of a room are shared with `nearest_room`."""
    virtual_nodes: int | None = None
    """Points of each member on the ring of `consistent_hash`."""

    AVERAGE: ClassVar[Balance]
    """One run of neighbouring queues for each member. Java: `AllocateMessageQueueAveragely`, the default there too."""
    CIRCLE: ClassVar[Balance]
    """Queues in turn, so that each member has some of every broker. Java: `AllocateMessageQueueAveragelyByCircle`."""
    CONSISTENT_HASH: ClassVar[Balance]
    """`consistent_hash()`."""

    @classmethod
    def by_configuration(cls, queues: Iterable[MessageQueue]) -> Balance:
        """The given queues, whatever other members read. Java: `AllocateMessageQueueByConfig`.

        The member belongs to the group and commits for it; nobody else takes its queues over when it dies. Queues that
        are not there are logged and left out.

        Args:
            queues: Queues of the topics that the consumer reads, at least one.

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

        Java: `AllocateMachineRoomNearby`, with a resolver that says the same. If the room of a broker or of a member is
        not known, the assignment stays as it is, and that is logged.

        Args:
            brokers: Rooms by broker name, or by how it begins; of several the longest counts.
            clients: Rooms of members by how their client id begins, which is their address: `{"10.1.": "east"}`.
            inner: How the queues of a room are shared: average (the default), circle or consistent hash.

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
        """By a ring of hashes: few queues move when members come and go, but shares differ in size.

        Java: `AllocateMessageQueueConsistentHash`, byte for byte.

        Args:
            virtual_nodes: Points of each member on the ring, from 1 to 1000; more make shares more alike.
        """
        return cls("consistent_hash", virtual_nodes=virtual_nodes)

    @classmethod
    def of(cls, balance: Balance | str) -> Balance:
        """A balance as people write it.

        Args:
            balance: A balance, or `"average"`, `"circle"` or `"consistent_hash"`.

        Raises:
            TypeError: It is another type.
            InvalidArgumentError: The text is no balance.
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
    """Values, at least one."""
    if not values:
        raise InvalidArgumentError(f"{name} must not be empty")
    return values


class Allocating:
    """Calls a function of the user in a thread of its own, so that no thread of the clients waits for it."""

    __slots__ = ("_failed_at", "_failure", "_function", "_questions", "_thread")

    def __init__(self, function: Allocate) -> None:
        if inspect.iscoroutinefunction(function):
            raise TypeError("balance must be a plain function, not a coroutine function: it is called in a thread")
        check_function("balance", function, "a function of group, client_id, queues and members", 4)
        self._function = function
        self._questions = _rocketpy.Allocations()
        self._failure, self._failed_at = "", 0.0
        self._thread = threading.Thread(target=self._run, name="rocketpy-balance", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ends the thread, without waiting for it."""
        self._questions.end()

    def join(self) -> None:
        """Waits a bounded time for the end of the thread, unless this is the one."""
        if self._thread is not threading.current_thread():
            self._thread.join(END_SECONDS)

    def options(self, options: Given) -> Given:
        """The options of the native consumer, whose questions this answers."""
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
                raise InvalidArgumentError(f"not a queue of topic {topic}: {stranger!r}")
        except BaseException as error:  # SystemExit as well: the thread answers the next question too
            failure = repr(error)
            if failure != self._failure or time.monotonic() - self._failed_at > REMIND_SECONDS:
                self._failure, self._failed_at = failure, time.monotonic()
                text = "balance of group %s failed for topic %s, the member keeps the queues that it has"
                logger.exception(text, group, topic)
            return
        self._failure = ""
        question.answer(chosen)


def assigned(queues: Iterable[MessageQueue], options: ConsumerOptions) -> tuple[list[str], ConsumerOptions]:
    """The topics and the options of a consumer that reads given queues without its group.

    Raises:
        InvalidArgumentError: No queue is given, or an option is one of members.
    """
    for name in ("balance", "retry_topic", "on_assigned", "on_revoked"):
        if name in options:
            raise InvalidArgumentError(f"a consumer of assigned queues has no option {name}")
    check_type("queues", queues, Iterable, "a list of rocketpy.MessageQueue")
    chosen = tuple(queues)
    for queue in chosen:
        check_type("each of queues", queue, MessageQueue, "a rocketpy.MessageQueue")
    balance = Balance("assigned", queues=some("queues", chosen))
    topics = list(dict.fromkeys(queue.topic for queue in balance.queues))
    return topics, cast("ConsumerOptions", {**options, "balance": balance})


def allocating(options: MemberOptions) -> Allocating | None:
    """What calls the function among the options, if the balance is one."""
    balance = options.get("balance")
    return Allocating(balance) if callable(balance) else None
