"""Replication status of a broker: its log and the slaves that copy it."""

from dataclasses import dataclass

__all__ = ["Epoch", "HaStatus", "RefusedSlave", "SlaveInfo"]


@dataclass(frozen=True, slots=True)
class SlaveInfo:
    """A slave that is connected to a master."""

    address: str
    """`host:port` of the slave end of the connection."""
    broker_id: int | None
    """Broker id of a RocketPy slave; None for Apache's."""
    end: int
    """End of the slave's log as the slave reports it: a physical offset, in bytes."""
    lag_bytes: int
    """Number of bytes of the master's log that the slave does not have."""
    lag_records: int | None
    """Number of messages and other records in `lag_bytes`, estimated beyond 4 MiB; None if the master does not report
    it."""
    lag_seconds: float | None
    """Age of the first missing record in seconds; None if the master does not report it."""
    is_near: bool
    """Whether the lag is within `haSlaveFallbehindMax`, so that a SYNC_MASTER waits for the slave."""
    bytes_per_second: int
    """Average transfer rate since the slave connected."""


@dataclass(frozen=True, slots=True)
class RefusedSlave:
    """A slave that a master refuses to replicate to."""

    address: str
    """`host:port` of the slave as it reports it."""
    broker_id: int
    """Broker id as the slave reports it."""
    why: str
    """Reason of the refusal."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """Part of a log that one master wrote."""

    id: str
    """Random number in hexadecimal."""
    start: int
    """Start of the epoch: a physical offset, in bytes."""


@dataclass(frozen=True, slots=True)
class HaStatus:
    """A broker's log and its slaves."""

    is_master: bool
    end: int
    """End of the log: a physical offset, in bytes."""
    slaves: tuple[SlaveInfo, ...]
    epochs: tuple[Epoch, ...]
    """Epochs of the log, oldest first; empty for Apache's brokers."""
    not_followed: str | None
    """Reason why a slave does not follow its reachable master; on a master, that another master diverged from it."""
    refused_slaves: tuple[RefusedSlave, ...] = ()
    """RocketPy slaves whose replication requests are refused."""
