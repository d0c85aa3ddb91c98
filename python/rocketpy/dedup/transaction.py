"""Marks of finished work in the transaction of the work itself, through any DB-API 2.0 driver."""

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
"""Placeholders of a parameter by `paramstyle`, from its number, which starts at 1, and its name."""
BY_NAME = ("named", "pyformat")
IDLE, FAILED = 0, 3
"""Transaction statuses of libpq: no transaction; failed, and can only be rolled back."""


class TransactionStore(Store):
    """Marks in a table of your database, written in your transaction: work and mark are committed together.

    No lease is needed: until your commit the mark is invisible to other workers, and a worker that dies leaves no mark.
    If two workers have the same message, the database lets one continue. The other waits, or fails: with
    `InProgressError` after the first has committed, or with an error of the driver (lock timeout, deadlock). Then roll
    back and retry. This store never commits and never rolls back, and passes on errors of the driver unchanged.

    Args:
        connection: Open DB-API connection, or a function that returns the connection to use (for programs with one per
            thread). Connections that commit each statement are refused if the driver reports it (sqlite3, psycopg,
            drivers with an attribute `autocommit`).
        table: Table of the marks, created by `create_table`, with a schema if needed: `billing.done`.
        paramstyle: Parameter style of the driver: `qmark`, `numeric`, `named`, `format` or `pyformat`. Default: the
            value in the module of the connection.

    Raises:
        InvalidArgumentError: The table is not a name, or the paramstyle is unknown.

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
        """Statement that creates the table; adapt it for databases with another syntax.

        The database compares keys as text: if it ignores case (MySQL), give `msg_key` a binary collation when your keys
        differ only in case.
        """
        return (
            f"CREATE TABLE IF NOT EXISTS {self._table} (name VARCHAR(255) NOT NULL, msg_key VARCHAR(255) NOT NULL, "
            "done_at_ms BIGINT NOT NULL, PRIMARY KEY (name, msg_key))"
        )

    def create_table(self) -> None:
        """Creates the table if it is missing. Commit afterwards; MySQL and Oracle commit automatically."""
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
                error.add_note(
                    f"hint: if the table {self._table} is missing, create it with TransactionStore.create_table()"
                )
            raise
        if found is not None:
            return Mark(None, found[0])
        if commits_each_statement(connection):
            raise InvalidArgumentError(
                "connection commits each statement separately: work and mark would not be in one transaction",
                hint="turn autocommit off, or begin a transaction first",
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
                hint="roll back and retry: the work is then recognised as done",
            ) from error
        return None

    def renew(self, name: str, key: str, owner: str, until_ms: int) -> bool:
        """See `Store.renew`."""
        return True

    def finish(self, name: str, key: str, owner: str, now_ms: int) -> bool:
        """See `Store.finish`."""
        return True

    def release(self, name: str, key: str, owner: str) -> None:
        """Removes the mark in your transaction, which you may commit even if the work failed."""
        connection = self._connection()
        if transaction_status(connection) not in (IDLE, FAILED):
            # The work may have ended the transaction: a statement would begin another one. A failed one takes none.
            self._delete(connection, {"name": name, "msg_key": key})

    def purge(self, name: str, before_ms: int, limit: int) -> int:
        """See `Store.purge`. Removes all marks before `before_ms` in one statement.

        The count is 0 if the driver does not report it.
        """
        delete = f"DELETE FROM {self._table} WHERE name = {{name}} AND done_at_ms < {{before}}"
        return max(0, self._execute(self._connection(), delete, {"name": name, "before": before_ms})[1])

    def _delete(self, connection: Any, where: dict[str, Any]) -> None:
        self._execute(connection, f"DELETE FROM {self._table} WHERE name = {{name}} AND msg_key = {{msg_key}}", where)

    def _execute(self, connection: Any, statement: str, values: dict[str, Any] | None = None) -> tuple[Any, int]:
        """Runs a statement with `{name}` for each value, in the order of the values.

        Returns:
            The first row, if any, and the number of affected rows.
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
    """Parameter style of the driver's module, where PEP 249 requires `paramstyle`.

    Raises:
        InvalidArgumentError: No module of the connection declares it.
    """
    parts = type(connection).__module__.split(".")
    for end in range(len(parts), 0, -1):
        style = getattr(sys.modules.get(".".join(parts[:end])), "paramstyle", None)
        if style in PLACEHOLDERS:
            return str(style)
    raise InvalidArgumentError(
        f"paramstyle is unknown for {type(connection).__module__}.{type(connection).__qualname__}",
        hint=f"pass it: paramstyle= one of {', '.join(PLACEHOLDERS)}",
    )


def transaction_status(connection: Any) -> int | None:
    """Status: `IDLE` without a transaction, another number in one; None if the driver does not report it."""
    if isinstance(is_open := getattr(connection, "in_transaction", None), bool):  # sqlite3
        return int(is_open)
    status = getattr(getattr(connection, "info", None), "transaction_status", None)  # psycopg, psycopg2
    return None if status is None else int(status)


def commits_each_statement(connection: Any) -> bool:
    """Whether a change would not begin a transaction, as far as the driver reports it. Call after a query.

    Drivers of PostgreSQL begin the transaction with the query; sqlite3 begins it with a change.
    """
    autocommit = getattr(connection, "autocommit", None) is True
    status = transaction_status(connection)
    if status is None:
        return autocommit
    return status == IDLE and (autocommit or getattr(connection, "isolation_level", None) is None)
