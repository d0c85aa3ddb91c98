"""Parts that the planner sends to the workers, and their distribution."""

from __future__ import annotations

import heapq
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from rocketpy.message import MessageQueue
    from rocketpy.spark.options import ReadOptions

    Groupings: TypeAlias = Sequence[Sequence[str]]
    """Choices of groups to add messages up by, as for `StoreReader.scan`."""

SMALLEST_PART_BYTES = 1 << 20
"""Minimum size of a partition that is created only to keep a core busy."""


class Sized(Protocol):
    """Piece to read, with an estimate of its size."""

    @property
    def estimated_bytes(self) -> int:
        """Bytes of records."""
        ...


Piece = TypeVar("Piece", bound=Sized)


@dataclass(frozen=True, slots=True)
class QueuePart:
    """A part of a queue of a broker: queue offsets from `start` up to, not including, `end`."""

    queue: MessageQueue
    start: int
    end: int
    estimated_bytes: int


def fewest_partitions(options: ReadOptions) -> int:
    """Returns the minimum number of partitions, by default one for each core of this machine."""
    return options.min_partitions or os.cpu_count() or 1


def wanted_partitions(options: ReadOptions, total_bytes: int) -> int:
    """Computes the number of partitions.

    Args:
        options: Options with the target size of a partition, and the minimum number of partitions.
        total_bytes: Total number of bytes to read.

    Returns:
        At least 1; a multiple of the fewest wanted, so that all cores are done at the same time.
    """
    fewest = fewest_partitions(options)
    for_size = -(-total_bytes // options.max_partition_bytes)
    for_cores = fewest * max(1, -(-for_size // fewest))
    return max(1, for_size, min(for_cores, total_bytes // SMALLEST_PART_BYTES))


def share_out(pieces: Sequence[Piece], count: int) -> list[tuple[Piece, ...]]:
    """Distributes pieces so that each share has about the same size.

    Args:
        pieces: Pieces to read.
        count: Maximum number of shares.

    Returns:
        One tuple each, none empty.

    Examples:
        >>> parts = [QueuePart(None, 0, 1, size) for size in (5, 3, 2, 4)]
        >>> [[part.estimated_bytes for part in share] for share in share_out(parts, 2)]
        [[5, 2], [4, 3]]
    """
    shares: list[tuple[int, int, list[Piece]]] = [(0, index, []) for index in range(count)]
    for piece in sorted(pieces, key=lambda piece: -piece.estimated_bytes):
        size, index, taken = shares[0]
        taken.append(piece)
        heapq.heapreplace(shares, (size + piece.estimated_bytes, index, taken))
    return [tuple(taken) for _, _, taken in sorted(shares, key=lambda share: share[1]) if taken]
