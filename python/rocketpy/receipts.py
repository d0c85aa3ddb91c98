"""What sending many messages returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from rocketpy import _rocketpy
    from rocketpy.message import Receipt

__all__ = ["Receipts"]


class Receipts(Sequence["Receipt"]):
    """What `Producer.send_many` returns: one receipt per message, in order, made on access.

    When some messages were not acknowledged, `send_many` raises `PartlySentError` with this object in it: indexing then
    raises the error of such a message.
    """

    __slots__ = ("_sent",)

    def __init__(self, sent: _rocketpy.SentMany) -> None:
        self._sent = sent

    @property
    def acknowledged(self) -> int:
        """Number of acknowledged messages."""
        return self._sent.acknowledged

    def failures(self) -> Iterator[tuple[int, Exception]]:
        """Index and error of every message that was not acknowledged."""
        if self._sent.acknowledged == len(self):
            return
        for index in range(len(self)):
            try:
                self._sent.receipt(index)
            except Exception as error:
                yield index, error

    def __len__(self) -> int:
        return len(self._sent)

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...
    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if isinstance(index, slice):
            return [self._sent.receipt(at) for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"receipt index out of range: {index}")
        return self._sent.receipt(at)

    def __repr__(self) -> str:
        return f"<Receipts: {self.acknowledged} of {len(self)} messages acknowledged>"
