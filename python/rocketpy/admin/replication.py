"""What a broker says of its log, and of the slaves that copy it."""

from dataclasses import dataclass

__all__ = ["Epoch", "HaStatus", "RefusedSlave", "SlaveInfo"]


@dataclass(frozen=True, slots=True)
class SlaveInfo:
    """A slave that is connected to a master."""

    address: str
    """`host:port` that it connects from."""
    broker_id: int | None
    """The id of a slave of RocketPy; Apache's state none."""
    end: int
    """How far its log reaches, as it says: a physical offset, in bytes."""
    lag_bytes: int
    """How much of the master's log it does not have."""
    lag_records: int | None
    """How many messages and other records that is, an estimate beyond 4 MiB; None where the master does not say."""
    lag_seconds: float | None
    """How long ago the first of them was stored; None where the master does not say."""
    is_near: bool
    """Whether it is near enough (`haSlaveFallbehindMax`) for a SYNC_MASTER to wait for it."""
    bytes_per_second: int
    """What it was sent since it connected."""


@dataclass(frozen=True, slots=True)
class RefusedSlave:
    """A slave that a master gives nothing of its log."""

    address: str
    """`host:port` at which it answers, as it says."""
    broker_id: int
    """Its id, as it says."""
    why: str
    """Why, in words."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """A life of a master: what it wrote nobody else did."""

    id: str
    """Drawn by chance, in hexadecimal."""
    start: int
    """Where the log ended when it began: a physical offset, in bytes."""


@dataclass(frozen=True, slots=True)
class HaStatus:
    """A broker's log and its slaves."""

    is_master: bool
    end: int
    """Where its log ends: a physical offset, in bytes."""
    slaves: tuple[SlaveInfo, ...]
    epochs: tuple[Epoch, ...]
    """Which lives of masters wrote the log, oldest first; none of Apache's."""
    not_followed: str | None
    """Why a slave does not follow its master, though it reaches it; of a master, that another one parted from it."""
    refused_slaves: tuple[RefusedSlave, ...] = ()
    """Slaves of RocketPy that asked for its log and get nothing of it."""
