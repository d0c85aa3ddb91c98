"""Store of rules, silences, channels, history and pending notifications: in memory, or in one SQLite file as well."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import deque
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rocketpy.console.alerts.records import Alert, Channel, Entry, Notice, Silence
from rocketpy.console.alerts.rules import MAX_RULES, Rule, built_in_rules
from rocketpy.errors import ConfigError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from rocketpy.console.alerts.engine import Count, Step

FILE = "console.db"
MAX_ENTRIES = 1000
"""Maximum number of lines of the history."""
MAX_SILENCES = 1000
MAX_CHANNELS = 16
MAX_NOTICES = 1000
"""Maximum number of notifications that wait for their delivery."""
APPLICATION_ID = 0x524D5143
"""Mark of the file in its header: RMQC."""
SCHEMA = 1
MAX_PAGES = 65_536
"""Maximum size of the file in pages of 4 KiB: 256 MiB."""
TABLES = """
CREATE TABLE item (kind TEXT NOT NULL, id TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, id)) WITHOUT ROWID;
CREATE TABLE entry (number INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE notice (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, value TEXT NOT NULL);
"""
Write = tuple[str, tuple[Any, ...]]
"""Statement and its values."""


class AlertStore:
    """Rules, silences, channels, history and notifications in memory: all is lost at the end of the process.

    Calls are thread-safe.
    """

    path: Path | None = None
    """File of the store; None for memory."""

    def __init__(self) -> None:
        self.error: str | None = None
        """Reason why the last write failed; the store then holds more than its file."""
        self.dropped = 0
        """Number of notifications that were dropped since the start, because too many waited."""
        self._lock = threading.RLock()
        self._rules = {rule.id: rule for rule in built_in_rules()}
        self._silences: dict[str, Silence] = {}
        self._channels: dict[str, Channel] = {}
        self._alerts: dict[str, Alert] = {}
        self._counts: dict[str, Count] = {}
        self._brokers: set[str] = set()
        self._entries = deque[Entry](maxlen=MAX_ENTRIES)
        self._notices: dict[str, Notice] = {}

    @property
    def rules(self) -> list[Rule]:
        """All rules, by name."""
        with self._lock:
            return sorted(self._rules.values(), key=lambda rule: (rule.name, rule.id))

    @property
    def silences(self) -> list[Silence]:
        """All silences, the last to end first."""
        with self._lock:
            return sorted(self._silences.values(), key=lambda one: (-one.until_ms, one.id))

    @property
    def channels(self) -> list[Channel]:
        """All channels, by name."""
        with self._lock:
            return sorted(self._channels.values(), key=lambda one: one.name)

    @property
    def entries(self) -> list[Entry]:
        """The history, newest first."""
        with self._lock:
            return list(reversed(self._entries))

    @property
    def alerts(self) -> list[Alert]:
        """Alerts as they were at the last commit."""
        with self._lock:
            return list(self._alerts.values())

    @property
    def counts(self) -> dict[str, Count]:
        """Counts of dead letters by group."""
        with self._lock:
            return dict(self._counts)

    @property
    def brokers(self) -> list[str]:
        """Known brokers."""
        with self._lock:
            return sorted(self._brokers)

    def notices(self, channel: str | None = None, limit: int = MAX_NOTICES) -> list[Notice]:
        """Notifications that wait for their delivery, oldest first.

        Args:
            channel: Name of a channel; None for all.
            limit: Maximum number.
        """
        with self._lock:
            found = (one for one in self._notices.values() if channel in {None, one.channel})
            return [one for _, one in zip(range(limit), found, strict=False)]

    def put(self, item: Rule | Silence | Channel) -> None:
        """Creates or replaces a rule, a silence or a channel.

        Raises:
            InvalidArgumentError: There are too many of them.
            ConfigError: The file cannot be written; nothing is changed.
        """
        with self._lock:
            kind, key = kind_of(item)
            known, limit = self._kept(kind)
            if key not in known and len(known) >= limit:
                raise InvalidArgumentError(f"number of {kind}s exceeds {limit}", hint=f"delete a {kind} first")
            self._write([put_item(kind, key, item)], must=True)
            known[key] = item

    def delete(self, item: Rule | Silence | Channel) -> None:
        """Deletes a rule, a silence or a channel, with the notifications that wait for that channel.

        Raises:
            ConfigError: The file cannot be written; nothing is changed.
        """
        with self._lock:
            kind, key = kind_of(item)
            ended = list(self._notices.values()) if isinstance(item, Channel) else []
            ended = [one for one in ended if one.channel == key]
            self._write([drop_item(kind, key), *map(drop_notice, ended)], must=True)
            self._kept(kind)[0].pop(key, None)
            for one in ended:
                self._notices.pop(one.id, None)

    def commit(self, step: Step) -> None:
        """Stores the outcome of a step of the engine in one transaction."""
        with self._lock:
            self._write([*self._states(step), *self._history(step.entries), *self._queue(step.notices)])

    def delivered(self, notices: Iterable[Notice]) -> None:
        """Removes notifications after their delivery."""
        with self._lock:
            found = [one for notice in notices if (one := self._notices.pop(notice.id, None))]
            self._write([drop_notice(one) for one in found])

    def close(self) -> None:
        """Ends the use of the store."""

    def _kept(self, kind: str) -> tuple[dict[str, Any], int]:
        kept: dict[str, tuple[dict[str, Any], int]] = {
            "rule": (self._rules, MAX_RULES),
            "silence": (self._silences, MAX_SILENCES),
            "channel": (self._channels, MAX_CHANNELS),
        }
        return kept[kind]

    def _states(self, step: Step) -> Iterator[Write]:
        for (rule_id, subject), alert in step.alerts.items():
            yield self._change(self._alerts, "alert", json.dumps([rule_id, subject]), alert)
        for group, count in step.counts.items():
            yield self._change(self._counts, "count", group, count)
        for name, is_known in step.brokers.items():
            (self._brokers.add if is_known else self._brokers.discard)(name)
            yield put_item("broker", name, True) if is_known else drop_item("broker", name)

    def _change(self, known: dict[str, Any], kind: str, key: str, value: Any) -> Write:
        if value is None:
            known.pop(key, None)
            return drop_item(kind, key)
        known[key] = value
        return put_item(kind, key, value)

    def _history(self, entries: list[Entry]) -> Iterator[Write]:
        for entry in entries:
            self._entries.append(entry)
            yield "INSERT INTO entry (value) VALUES (?)", (text_of(entry),)
        if entries:
            yield "DELETE FROM entry WHERE number <= (SELECT MAX(number) FROM entry) - ?", (MAX_ENTRIES,)

    def _queue(self, notices: list[Notice]) -> Iterator[Write]:
        for notice in notices:
            if notice.kind == "repeat" and self._waits(notice):
                continue  # the receiver has not got the former one
            while len(self._notices) >= MAX_NOTICES:
                yield drop_notice(self._drop_one())
            self._notices[notice.id] = notice
            yield "INSERT INTO notice (id, value) VALUES (?, ?)", (notice.id, text_of(notice))

    def _waits(self, notice: Notice) -> bool:
        key = (notice.channel, notice.rule_id, notice.subject)
        kinds = [one.kind for one in self._notices.values() if (one.channel, one.rule_id, one.subject) == key]
        return bool(kinds) and kinds[-1] in {"firing", "repeat"}

    def _drop_one(self) -> Notice:
        self.dropped += 1
        waiting = self._notices.values()
        oldest = next((one for one in waiting if one.kind in {"repeat", "test"}), None) or next(iter(waiting))
        return self._notices.pop(oldest.id)

    def _write(self, writes: Iterable[Write], *, must: bool = False) -> None:
        for _ in writes:
            pass


class SqliteStore(AlertStore):
    """Store in memory and in an SQLite file, which one console holds at a time.

    Args:
        path: Path of the file; its folder must exist.

    Raises:
        ConfigError: The file is damaged, is not a file of the console, or another console uses it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._is_behind = False
        try:
            self._file = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise refusal(path, error) from None
        try:
            self._open(path)
        except sqlite3.Error as error:
            self._file.close()
            raise refusal(path, error) from None
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Closes the file. Another console can use it then."""
        with self._lock, suppress(sqlite3.Error):
            self._file.close()

    def _open(self, path: Path) -> None:
        run = self._file.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        is_empty = run("PRAGMA schema_version").fetchone()[0] == 0
        mark = run("PRAGMA application_id").fetchone()[0]
        if not is_empty and mark != APPLICATION_ID:
            raise ConfigError(
                f"cannot open the store of the console: not a file of the console: {path}",
                hint="choose another folder for --data",
            )
        version = run("PRAGMA user_version").fetchone()[0]
        if not is_empty and version != SCHEMA:
            raise ConfigError(
                f"cannot open the store of the console: version {version} of {path} is not {SCHEMA}",
                hint="use the release that wrote the file, or another folder for --data",
            )
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run(f"PRAGMA max_page_count = {MAX_PAGES}")
        run("BEGIN EXCLUSIVE")
        if is_empty:
            run(f"PRAGMA application_id = {APPLICATION_ID}")
            run(f"PRAGMA user_version = {SCHEMA}")
            for statement in filter(str.strip, TABLES.split(";")):
                run(statement)
            for rule in self.rules:
                run(*put_item("rule", rule.id, rule))
        elif (found := run("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(found)
        run("COMMIT")
        self._load()

    def _load(self) -> None:
        self._rules.clear()
        kinds: dict[str, tuple[dict[str, Any], Callable[[Any], Any]]] = {
            "rule": (self._rules, lambda found: Rule(**found)),
            "silence": (self._silences, lambda found: Silence(**found)),
            "channel": (self._channels, lambda found: Channel(**found)),
            "alert": (self._alerts, lambda found: Alert(**found)),
            "count": (self._counts, lambda found: tuple((int(at), float(count)) for at, count in found)),
        }
        try:
            for kind, key, value in self._file.execute("SELECT kind, id, value FROM item ORDER BY kind, id"):
                if kind == "broker":
                    self._brokers.add(json.loads(key))
                elif kind in kinds:
                    known, made = kinds[kind]
                    known[json.loads(key)] = made(json.loads(value))
            for (value,) in self._file.execute("SELECT value FROM entry ORDER BY number DESC LIMIT ?", (MAX_ENTRIES,)):
                self._entries.appendleft(Entry(**json.loads(value)))
            for (value,) in self._file.execute("SELECT value FROM notice ORDER BY number"):
                notice = Notice(**json.loads(value))
                self._notices[notice.id] = notice
        except (ValueError, TypeError, InvalidArgumentError) as error:
            raise sqlite3.DatabaseError(f"unreadable record: {error}") from None

    def _write(self, writes: Iterable[Write], *, must: bool = False) -> None:
        statements = list(writes)
        if not statements:
            return
        if self._is_behind:
            statements = [*self._all(), *(statements if must else ())]
        try:
            self._file.execute("BEGIN")
            for statement in statements:
                self._file.execute(*statement)
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._file.execute("ROLLBACK")
            self.error = f"cannot write the store of the console: {error}: {self.path}"
            if must:
                raise ConfigError(self.error, hint="check the disk and its permissions") from None
            self._is_behind = True
        else:
            self.error, self._is_behind = None, False

    def _all(self) -> Iterator[Write]:
        """All of the memory, after writes that failed."""
        for table in ("item", "entry", "notice"):
            yield f"DELETE FROM {table}", ()
        for kind, known in (("rule", self._rules), ("silence", self._silences), ("channel", self._channels)):
            for key, item in known.items():
                yield put_item(kind, key, item)
        for kind, states in (("alert", self._alerts), ("count", self._counts)):
            for key, state in states.items():
                yield put_item(kind, key, state)
        for name in self._brokers:
            yield put_item("broker", name, True)
        for entry in self._entries:
            yield "INSERT INTO entry (value) VALUES (?)", (text_of(entry),)
        for notice in self._notices.values():
            yield "INSERT INTO notice (id, value) VALUES (?, ?)", (notice.id, text_of(notice))


def opened_store(folder: Path | None) -> AlertStore:
    """Store of a folder, or in memory without one.

    Args:
        folder: Folder of `--data`; created if missing.

    Raises:
        ConfigError: The folder or its file cannot be used.
    """
    if folder is None:
        return AlertStore()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / FILE).touch(mode=0o600)  # URLs of webhooks are secrets
    except OSError as error:
        raise ConfigError(
            f"cannot use the folder of --data ({error.strerror or error}): {folder}", hint="check its permissions"
        ) from None
    return SqliteStore(folder / FILE)


def refusal(path: Path, error: sqlite3.Error) -> ConfigError:
    """Error of a file that cannot be used."""
    code = getattr(error, "sqlite_errorcode", None)
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return ConfigError(
            f"another console uses the store of the console: {path}",
            hint="stop it, or choose another folder for --data",
        )
    if code == sqlite3.SQLITE_NOTADB:
        return ConfigError(
            f"cannot open the store of the console: not an SQLite file: {path}",
            hint="choose another folder for --data",
        )
    if code in {None, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR}:
        return ConfigError(
            f"cannot open the store of the console: the file is damaged ({error}): {path}",
            hint="restore it from a copy, or move it away: the console then starts with the built-in rules",
        )
    return ConfigError(f"cannot open the store of the console: {error}: {path}", hint="check the disk and permissions")


def kind_of(item: Rule | Silence | Channel) -> tuple[str, str]:
    """Kind and key of a stored item."""
    if isinstance(item, Channel):
        return "channel", item.name
    return "rule" if isinstance(item, Rule) else "silence", item.id


def text_of(value: Any) -> str:
    """JSON of a record."""
    return json.dumps(value if isinstance(value, tuple | bool) else asdict(value))


def put_item(kind: str, key: str, value: Any) -> Write:
    """Statement that stores an item. Its key is JSON: names may have lone surrogates, which SQLite rejects."""
    return "INSERT OR REPLACE INTO item VALUES (?, ?, ?)", (kind, json.dumps(key), text_of(value))


def drop_item(kind: str, key: str) -> Write:
    """Statement that deletes an item."""
    return "DELETE FROM item WHERE kind = ? AND id = ?", (kind, json.dumps(key))


def drop_notice(notice: Notice) -> Write:
    """Statement that deletes a notification."""
    return "DELETE FROM notice WHERE id = ?", (notice.id,)
