"""Marks of done work in the transaction of the work itself, through any DB-API 2.0 driver."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from rocketpy.dedup.stores import Mark, Store
from rocketpy.errors import InProgressError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TransactionStore"]

PLACEHOLDERS: dict[str, Callable[[int, str], str]] = {
    "qmark": lambda number, name: "?",
    "numeric": lambda number, name: f":{number}",
    "named": lambda number, name: f":{name}",
    "format": lambda number, name: "%s",
    "pyformat": lambda number, name: f"%({name})s",
}
"""By the `paramstyle` of a driver, how a parameter is written: the one of this number, from 1, and of this name."""
BY_NAME = ("named", "pyformat")
IDLE, FAILED = 0, 3
"""Transaction statuses of libpq: there is none; it failed, and can only be rolled back."""


class TransactionStore(Store):
    """Marks in a table of your database, written in your transaction: the work and its mark are committed together.

    So there is no lease: until your commit the mark is not there for anybody else, and a worker that dies leaves none.
    Of two workers with one message, the database lets one go on. The other waits for it, or fails: with
    `InProgressError` once the first one has committed, or with an error of the driver (a lock's timeout, a deadlock).
    Then roll back and retry. This store never commits and never rolls back, and errors of the driver come as they are.

    Args:
        connection: An open DB-API connection, or a function that returns the one whose transaction is to be used (for
            programs with one for each thread). Not one that commits each statement by itself: it is refused where the
            driver tells (sqlite3, psycopg, those with an attribute `autocommit`).
        table: The table of the marks, which `create_table` makes. With its schema if need be: `billing.done`.
        paramstyle: How the driver writes parameters: `qmark`, `numeric`, `named`, `format` or `pyformat`. Default: what
            the module of the connection says.

    Raises:
        InvalidArgumentError: The table is no name, or the paramstyle is not known.

    Examples:
        >>> import sqlite3
        >>> from rocketpy.dedup import Dedup, TransactionStore
        >>> books = sqlite3.connect(":memory:")
        >>> store = TransactionStore(books)
        >>> store.create_table()
        >>> books.commit()
        >>> once = Dedup("billing", store, key=lambda message: message)
        >>> for message in ["A1", "A1"]:
        ...     with books, once.claim(message) as claim:  # `books` ends the transaction
        ...         print(claim.already_done)
        False
        True
        >>> books.close()
    """

    blocks = False  # the connection may belong to the thread that called
    purged_by_itself = False  # its locks would last as long as the transaction of the work

    def __init__(self, connection: Any, *, table: str = "rocketpy_done", paramstyle: str | None = None) -> None:
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", table, re.ASCII):
            raise InvalidArgumentError(f"not the name of a table: {table!r}")
        if paramstyle is not None and paramstyle not in PLACEHOLDERS:
            raise InvalidArgumentError(f"paramstyle must be one of {', '.join(PLACEHOLDERS)}, not {paramstyle!r}")
        # A connection of sqlite3 can be called too.
        self._connection: Callable[[], Any] = (lambda: connection) if hasattr(connection, "cursor") else connection
        if not callable(self._connection):
            raise TypeError(f"connection must be a DB-API connection, or a function that returns one: {connection!r}")
        self._table = table
        self._paramstyle = paramstyle

    @property
    def schema(self) -> str:
        """The statement that makes the table, to be changed for databases that do not know it.

        Keys are compared as the database compares text: where that ignores case (MySQL), give `msg_key` a binary
        collation if your keys differ only in case.
        """
        return (
            f"CREATE TABLE IF NOT EXISTS {self._table} (name VARCHAR(255) NOT NULL, msg_key VARCHAR(255) NOT NULL, "
            "done_at_ms BIGINT NOT NULL, PRIMARY KEY (name, msg_key))"
        )

    def create_table(self) -> None:
        """Makes the table unless it is there. Commit afterwards; MySQL and Oracle commit by themselves."""
        self._execute(self._connection(), self.schema)

    def begin(self, name: str, key: str, owner: str, now_ms: int, until_ms: int) -> Mark | None:
        """See `Store.begin`."""
        connection = self._connection()
        where = {"name": name, "msg_key": key}
        select = f"SELECT done_at_ms FROM {self._table} WHERE name = {{name}} AND msg_key = {{msg_key}}"
        try:
            found, _ = self._execute(connection, select, where)
        except Exception as error:  # of the driver: each has its own
            if self._table in str(error):
                error.add_note(f"hint: if there is no table {self._table}, TransactionStore.create_table() makes it")
            raise
        if found is not None:
            return Mark(None, found[0])
        if commits_each_statement(connection):
            raise InvalidArgumentError(
                "the connection commits each statement by itself: the work and its mark would not be one transaction",
                hint="turn autocommit off, or begin a transaction before",
            )
        insert = f"INSERT INTO {self._table} (name, msg_key, done_at_ms) VALUES ({{name}}, {{msg_key}}, {{now}})"
        try:
            self._execute(connection, insert, {**where, "now": now_ms})
        except Exception as error:
            if not any(kind.__name__ == "IntegrityError" for kind in type(error).__mro__):
                raise
            raise InProgressError(
                f"another transaction of {name} has just done the work of {key}",
                retryable=True,
                may_have_been_applied=True,
                hint="roll back and try again: it is then recognised",
            ) from error
        return None

    def renew(self, name: str, key: str, owner: str, until_ms: int) -> bool:
        """See `Store.renew`."""
        return True

    def finish(self, name: str, key: str, owner: str, now_ms: int) -> bool:
        """See `Store.finish`."""
        return True

    def release(self, name: str, key: str, owner: str) -> None:
        """Removes the mark in your transaction, which you may commit although the work failed."""
        connection = self._connection()
        if transaction_status(connection) not in (IDLE, FAILED):
            # The work may have ended the transaction: a statement would begin another one. A failed one takes none.
            self._delete(connection, {"name": name, "msg_key": key})

    def purge(self, name: str, before_ms: int, limit: int) -> int:
        """See `Store.purge`. Removes all at once; the count is 0 where the driver does not tell it."""
        delete = f"DELETE FROM {self._table} WHERE name = {{name}} AND done_at_ms < {{before}}"
        return max(0, self._execute(self._connection(), delete, {"name": name, "before": before_ms})[1])

    def _delete(self, connection: Any, where: dict[str, Any]) -> None:
        self._execute(connection, f"DELETE FROM {self._table} WHERE name = {{name}} AND msg_key = {{msg_key}}", where)

    def _execute(self, connection: Any, statement: str, values: dict[str, Any] | None = None) -> tuple[Any, int]:
        """Runs a statement with `{name}` for each value, in the order of the values.

        Returns:
            The first row, if any, and how many rows it concerned.
        """
        cursor = connection.cursor()
        try:
            if values is None:
                cursor.execute(statement)
            else:
                style = self._paramstyle or paramstyle_of(connection)
                places = {name: PLACEHOLDERS[style](at, name) for at, name in enumerate(values, 1)}
                parameters = values if style in BY_NAME else tuple(values.values())
                cursor.execute(statement.format_map(places), parameters)
            return None if cursor.description is None else cursor.fetchone(), cursor.rowcount
        finally:
            cursor.close()


def paramstyle_of(connection: Any) -> str:
    """What the driver's module says: PEP 249 asks for `paramstyle` in it.

    Raises:
        InvalidArgumentError: No module of the connection says it.
    """
    parts = type(connection).__module__.split(".")
    for end in range(len(parts), 0, -1):
        style = getattr(sys.modules.get(".".join(parts[:end])), "paramstyle", None)
        if style in PLACEHOLDERS:
            return str(style)
    raise InvalidArgumentError(
        f"how parameters are written is not known for {type(connection).__module__}.{type(connection).__qualname__}",
        hint=f"say it: paramstyle= one of {', '.join(PLACEHOLDERS)}",
    )


def transaction_status(connection: Any) -> int | None:
    """`IDLE` without a transaction, another number in one; None where the driver does not tell."""
    if isinstance(is_open := getattr(connection, "in_transaction", None), bool):  # sqlite3
        return int(is_open)
    status = getattr(getattr(connection, "info", None), "transaction_status", None)  # psycopg, psycopg2
    return None if status is None else int(status)


def commits_each_statement(connection: Any) -> bool:
    """Whether a change would not begin a transaction, as far as the driver tells. To be called after a query.

    The query began the transaction at the drivers of PostgreSQL; sqlite3 begins it with a change.
    """
    autocommit = getattr(connection, "autocommit", None) is True
    status = transaction_status(connection)
    if status is None:
        return autocommit
    return status == IDLE and (autocommit or getattr(connection, "isolation_level", None) is None)
