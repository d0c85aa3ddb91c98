"""Values of the drain of a broker and of the move of a topic."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DrainStep", "GroupRest", "MoveStep", "TopicWrites"]


@dataclass(frozen=True, slots=True)
class TopicWrites:
    """Messages that a topic received from clients since the step before."""

    topic: str
    messages: int
    client: str
    """`host:port` of the client that sent the newest of them."""


@dataclass(frozen=True, slots=True)
class GroupRest:
    """Messages at one broker that a group has not committed."""

    group: str
    topic: str
    lag: int
    members: int
    """Number of live members. A group without members cannot catch up."""


@dataclass(frozen=True, slots=True)
class DrainStep:
    """Progress of the drain of a broker."""

    broker_name: str
    address: str
    state: str
    """`lowered`: clients learn that the broker is read only. `producers`: the drain waits until sends have stopped.
    `consumers`: the drain waits for groups with live members. `drained`: the broker may be stopped."""
    permission: int
    """`brokerPermission` before the drain, which `undrain_broker` restores: 4 read, 2 write."""
    seconds: float
    """Time since the start of this call."""
    quiet_seconds: float
    """Time without a send of a client."""
    writes: tuple[TopicWrites, ...] = ()
    """Topics that clients still send to."""
    rests: tuple[GroupRest, ...] = ()
    """Messages of this broker that groups have not committed, in the states `consumers` and `drained`."""
    waiting: int = 0
    """Number of delayed messages, timers and open transactions, in the state `drained`. They continue after the next
    start."""


@dataclass(frozen=True, slots=True)
class MoveStep:
    """Step of the move of a topic to another broker."""

    number: int
    """Number of the step, from 1."""
    step: str
    """`create`, `close`, `quiet`, `consume` or `remove`."""
    state: str
    """`planned`, `waiting` or `done`."""
    detail: str
    rests: tuple[GroupRest, ...] = ()
    """Messages at the source that groups have not committed."""
    waiting: int = 0
    """Number of delayed messages, timers and open transactions of the topic at the source."""
