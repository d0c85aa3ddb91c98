"""Receipts of many messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from typing import Protocol

    from rocketpy.message import Receipt

    class Sent(Protocol):
        """Outcomes of many messages."""

        @property
        def acknowledged(self) -> int: ...
        def receipt(self, index: int) -> Receipt: ...
        def __len__(self) -> int: ...


__all__ = ["Receipts"]


class Receipts(Sequence["Receipt"]):
    """Result of `Producer.send_many`: one receipt per message, in order, created on access.

    If some messages were not acknowledged, `send_many` raises `PartlySentError` with this object: indexing then raises
    the error of an unacknowledged message.
    """

    __slots__ = ("_sent",)

    def __init__(self, sent: Sent) -> None:
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

    def __reduce__(self) -> tuple[object, tuple[list[Receipt | Exception]]]:
        """Pickles every receipt and every error."""
        failed = dict(self.failures())
        return _of_outcomes, ([failed.get(index) or self[index] for index in range(len(self))],)

    def __repr__(self) -> str:
        return f"<Receipts: {self.acknowledged} of {len(self)} messages acknowledged>"


class _Outcomes:
    """Outcomes of many messages as a list, for pickles."""

    def __init__(self, outcomes: list[Receipt | Exception]) -> None:
        self._outcomes = outcomes
        self.acknowledged = sum(not isinstance(outcome, Exception) for outcome in outcomes)

    def receipt(self, index: int) -> Receipt:
        outcome = self._outcomes[index]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def __len__(self) -> int:
        return len(self._outcomes)


def _of_outcomes(outcomes: list[Receipt | Exception]) -> Receipts:
    return Receipts(_Outcomes(outcomes))
