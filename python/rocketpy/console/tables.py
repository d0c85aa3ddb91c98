"""Lists in memory: search, sort and pages by the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["SIZES", "Rows", "page_of", "sorted_rows"]

T = TypeVar("T")
SIZES = (50, 100, 500)
"""Page sizes of lists."""


@dataclass(frozen=True, slots=True)
class Rows(Generic[T]):
    """One page of a list."""

    rows: tuple[T, ...]
    total: int
    """Number of rows of all pages."""
    page: int
    size: int
    sizes: tuple[int, ...] = SIZES

    @property
    def pages(self) -> int:
        """Number of pages."""
        return max(1, -(-self.total // self.size))

    @property
    def first(self) -> int:
        """Number of the first row, from 1; 0 for an empty list."""
        return min(self.total, (self.page - 1) * self.size + 1)

    @property
    def last(self) -> int:
        """Number of the last row of the page."""
        return min(self.total, self.page * self.size)

    @property
    def numbers(self) -> list[int | None]:
        """Numbers of pages to show; None for those left out.

        Examples:
            >>> Rows((), 5000, 50, 50).numbers
            [1, None, 49, 50, 51, None, 100]
        """
        near = {1, self.pages, *range(self.page - 1, self.page + 2)}
        found: list[int | None] = []
        before = 0
        for number in sorted(one for one in near if 1 <= one <= self.pages):
            if number > before + 1:
                found.append(None)
            found.append(number)
            before = number
        return found


def whole(text: str | None, default: int) -> int:
    """Whole number of a query; the default for any other text."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else default


def page_of(rows: list[T], query: Mapping[str, str]) -> Rows[T]:
    """The page that `page` and `size` of a query choose; the last one if the number is too large.

    Examples:
        >>> page_of(list(range(120)), {"page": "3"}).rows[0], page_of([1], {"page": "9", "size": "7"}).page
        (100, 1)
    """
    size = whole(query.get("size"), SIZES[0])
    size = size if size in SIZES else SIZES[0]
    pages = max(1, -(-len(rows) // size))
    page = min(max(1, whole(query.get("page"), 1)), pages)
    return Rows(tuple(rows[(page - 1) * size : page * size]), len(rows), page, size)


def sorted_rows(
    rows: Iterable[T], order: str, columns: Mapping[str, Callable[[T], object]], name: Callable[[T], str]
) -> list[T]:
    """Rows in the order of a column, with the name as the second key. Unknown figures come last.

    Args:
        rows: The rows.
        order: Name of a column; with a leading `-` the largest first.
        columns: Value of a row by the name of a column.
        name: Name of a row.

    Examples:
        >>> rows = [("b", 2), ("a", 2), ("c", None), ("d", 9)]
        >>> sorted_rows(rows, "-n", {"n": lambda row: row[1]}, lambda row: row[0])
        [('d', 9), ('a', 2), ('b', 2), ('c', None)]
    """
    found = sorted(rows, key=name)
    column = columns.get(order.removeprefix("-"))
    if column is None:
        return found
    known = [row for row in found if column(row) is not None]
    unknown = [row for row in found if column(row) is None]
    known.sort(key=column, reverse=order.startswith("-"))  # type: ignore[arg-type]
    return known + unknown
