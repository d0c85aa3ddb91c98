"""The job `lag_report`: lag of consumer groups, and the time until retention removes unread messages.

`spark-submit spark/lag_report.py --name-server 127.0.0.1:9876` runs it by itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketpy import Admin, GroupNotFoundError, MessageQueue, OffsetError, RangeReader, TopicNotFoundError
from rocketpy.base.instant import datetime_of, now_ms
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.config import PATIENT
from rocketpy.spark import job
from rocketpy.spark.picture import GREEN, MOST_BARS, ORANGE, RED, Bar, draw_bars, drawn
from rocketpy.spark.session import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETENTION = "retention.hours"
"""Attribute of a topic with its retention time, for RocketPy's brokers."""
MOST_HOURS = 1_000_000
"""Maximum of `fileReservedTime` and of the attribute: brokers ignore a larger number."""

NameServer = Annotated[
    str,
    typer.Option(
        "--name-server",
        "-n",
        envvar="NAMESRV_ADDR",
        metavar="HOST:PORT[,HOST:PORT]",
        help="Name servers of the cluster.",
    ),
]
Groups = Annotated[list[str] | None, typer.Option("--group", "-g", help="Only this group; may be repeated.")]
TopicsOfGroups = Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only this topic; may be repeated.")]
Retention = Annotated[
    float,
    typer.Option(
        "--retention-hours",
        min=0.001,
        max=MOST_HOURS,
        help=f"Retention time of the brokers: their fileReservedTime. A topic's own {RETENTION} overrides it.",
    ),
]
Alarm = Annotated[
    float,
    typer.Option("--alarm-hours", min=0, max=MOST_HOURS, help="Remaining hours below which messages are at risk."),
]
Queues = Annotated[bool, typer.Option("--queues", help="Print a row for each queue.")]

VERDICT_COLORS = {"ok": GREEN, "at risk": ORANGE, "gone": RED}


@dataclass(frozen=True, slots=True)
class Behind:
    """A queue that a group has not read to its end.

    Attributes:
        group: The consumer group.
        queue: The queue.
        lag: Number of existing messages that the group has not read.
        gone: Number of messages that retention removed before the group read them.
        next_offset: Offset of the first existing unread message.
        retention_hours: Retention time of the topic in hours.
        stored_at: Store time of that message; None before the message is read, without a message, and for a number that
            is not a time.
    """

    group: str
    queue: MessageQueue
    lag: int
    gone: int
    next_offset: int
    retention_hours: float
    stored_at: datetime | None = None

    def row(self, now: datetime, alarm_hours: float) -> dict[str, Any]:
        """Returns the row of the report."""
        left = None
        if self.stored_at is not None:
            left = self.retention_hours - (now - self.stored_at).total_seconds() / 3600  # no sum that dates cannot hold
        is_at_risk = left is not None and left < alarm_hours
        return {
            "group": self.group,
            "topic": self.queue.topic,
            "queues": 1,
            "lag": self.lag,
            "gone": self.gone,
            "oldest_unread_at": self.stored_at,
            "hours_left": left,
            "needed_per_hour": None if left is None or left <= 0 else self.lag / left,
            "verdict": "gone" if self.gone else "at risk" if is_at_risk else "ok",
        }


def queues_behind(
    admin: Admin, groups: Sequence[str] = (), topics: Sequence[str] = (), retention_hours: float = 72.0
) -> list[Behind]:
    """Returns the queues that groups have not read to their ends, without reading messages.

    Args:
        admin: Administration client of the cluster.
        groups: Consumer groups; empty for all.
        topics: Topics; empty for all.
        retention_hours: Retention time of topics without their own.

    Raises:
        GroupNotFoundError: A group does not exist.
    """
    found: list[Behind] = []
    known: dict[str, tuple[dict[MessageQueue, int], float]] = {}
    for group in groups or [one.name for one in admin.groups()]:
        try:
            lags = admin.group_lag(group)
        except GroupNotFoundError:
            if groups:
                raise
            continue  # it was deleted meanwhile
        for lag in lags:
            topic = lag.queue.topic
            if lag.lag == 0 or (topics and topic not in topics):
                continue
            if topic not in known:
                known[topic] = _facts(admin, topic, retention_hours)
            next_offset = lag.max_offset - lag.lag
            start = max(next_offset, known[topic][0].get(lag.queue, 0))
            # Where a group committed nothing, nobody expects it to have read what is gone.
            gone = 0 if lag.committed_offset is None else start - next_offset
            if gone or start < lag.max_offset:
                found.append(Behind(group, lag.queue, lag.max_offset - start, gone, start, known[topic][1]))
    return found


def _facts(admin: Admin, topic: str, retention_hours: float) -> tuple[dict[MessageQueue, int], float]:
    """Returns the minimum offset of each queue of a topic, and the topic's retention time in hours."""
    try:
        info = admin.describe_topic(topic)
    except TopicNotFoundError:
        return {}, retention_hours
    own = [hours for broker in info.brokers if (hours := _hours(broker.attributes.get(RETENTION, ""))) is not None]
    return {one.queue: one.min_offset for one in info.queues}, min(own, default=retention_hours)


def _hours(text: str) -> float | None:
    """Reads an attribute as brokers do: whole hours from 1 to 1,000,000; None for anything else.

    Examples:
        >>> _hours("13"), _hours("1000000"), _hours("1000001"), _hours("1e5"), _hours("-2"), _hours("soon"), _hours("")
        (13.0, 1000000.0, None, None, None, None, None)
    """
    digits = text.removeprefix("+")
    if len(text) > len(str(MOST_HOURS)) or not (digits.isascii() and digits.isdigit()):
        return None
    return float(digits) if 0 < int(digits) <= MOST_HOURS else None


def with_times(spark: "SparkSession", name_server: str, behind: Sequence[Behind]) -> list[Behind]:
    """Reads the first unread message of each queue, in the workers: one small read each.

    Args:
        spark: The session.
        name_server: Name server of the cluster.
        behind: Result of `queues_behind`.

    Returns:
        The same queues with times. A message that retention removed meanwhile has no time.
    """
    from dataclasses import replace

    unread = [(one.queue, one.next_offset) for one in behind if one.lag]
    if not unread:
        return list(behind)

    def read_times(numbers):  # type: ignore[no-untyped-def]
        from rocketpy.spark.lag_report import times_of

        for batch in numbers:
            yield times_of(name_server, [unread[number] for number in batch.column(0).to_pylist()], batch.column(0))

    tasks = min(len(unread), 4 * context_of(spark).defaultParallelism)
    frame = spark.range(0, len(unread), 1, tasks).mapInArrow(read_times, "number bigint, stored_ms bigint")
    stored_ms = {row.number: row.stored_ms for row in frame.collect()}
    times = iter([stored_ms[number] for number in range(len(unread))])
    timed = []
    for one in behind:
        at_ms = next(times) if one.lag else None
        timed.append(one if at_ms is None else replace(one, stored_at=datetime_of(at_ms)))
    return timed


def times_of(name_server: str, places: Sequence[tuple[MessageQueue, int]], numbers: Any) -> Any:
    """Reads the store times of messages, in a worker.

    Args:
        name_server: Name server of the cluster.
        places: Queue and offset of each.
        numbers: Column to return with the times.

    Returns:
        A record batch with `number` and `stored_ms`.
    """
    import pyarrow as pa

    return pa.record_batch({"number": numbers, "stored_ms": pa.array(list(_times(name_server, places)), pa.int64())})


def _times(name_server: str, places: Sequence[tuple[MessageQueue, int]]) -> Iterator[int | None]:
    for queue, offset in places:
        with RangeReader(queue, offset, offset + 1, name_servers=name_server, **PATIENT) as reader:
            try:
                yield next((message.stored_at_ms for messages in reader.messages() for message in messages), None)
            except OffsetError:
                yield None


def summed(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of queues, added up to one for each group and topic.

    Args:
        rows: Result of `Behind.row`.
    """
    total: dict[tuple[str, str], dict[str, Any]] = {}
    worst = ("ok", "at risk", "gone")
    for row in rows:
        one = total.setdefault(
            (row["group"], row["topic"]), {**row, "queues": 0, "lag": 0, "gone": 0, "needed_per_hour": None}
        )
        for name in ("queues", "lag", "gone"):
            one[name] += row[name]
        if row["needed_per_hour"] is not None:
            one["needed_per_hour"] = row["needed_per_hour"] + (one["needed_per_hour"] or 0)
        for name in ("oldest_unread_at", "hours_left"):
            one[name] = min((value for value in (one[name], row[name]) if value is not None), default=None)
        one["verdict"] = max(one["verdict"], row["verdict"], key=worst.index)
    return list(total.values())


def draw_lags(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws the lags of groups, as PNG.

    Args:
        rows: Result of `summed`.
        path: File to write.
    """

    def bars(name: str, of: Sequence[dict[str, Any]]) -> list[Bar]:
        return [Bar(f"{row['group']}, {row['topic']}", row[name], VERDICT_COLORS[row["verdict"]]) for row in of]

    timed = sorted((row for row in rows if row["hours_left"] is not None), key=lambda row: row["hours_left"])
    panels = {
        "messages behind": bars("lag", rows),
        "messages gone unread": bars("gone", [row for row in rows if row["gone"]]),
        "hours left for the oldest unread": bars("hours_left", timed[:MOST_BARS]),
    }
    draw_bars("green: ok, orange: at risk, red: gone", panels, path)


def lag_report(
    name_server: NameServer,
    groups: Groups = None,
    topics: TopicsOfGroups = None,
    retention_hours: Retention = 72.0,
    alarm_hours: Alarm = 12.0,
    queues: Queues = False,
    out: job.Out = None,
    dry_run: job.DryRun = False,
    as_json: job.Json = False,
) -> None:
    """Report the lag of groups, and the hours left before retention removes unread messages.

    Ends with exit code 9 when unread messages are gone or at risk.
    """
    folder = job.new_folder(out)
    with Admin(name_servers=name_server, **PATIENT) as admin:
        behind = queues_behind(admin, groups or (), topics or (), retention_hours)
    if dry_run:
        shown = [{"group": one.group, "queue": one.queue, "lag": one.lag, "gone": one.gone} for one in behind]
        title = "dry run: the first unread message of each of these would be read"
        output.show(shown, as_json=as_json, title=title, empty=f"no group is behind at {name_server}")
        return
    rows = []
    if behind:
        with job.session("lag report") as spark:
            with job.progress(spark, "unread messages"):
                behind = with_times(spark, name_server, behind)
            now = datetime.fromtimestamp(now_ms() / 1000, UTC)
            rows = [one.row(now, alarm_hours) for one in behind]
            if folder is not None:
                save_rows(spark, behind, rows, folder)
                drawn(lambda: draw_lags(summed(rows), folder / "lag.png"))
    if queues:
        shown = [{"group": one.group, "queue": str(one.queue), **row} for one, row in zip(behind, rows, strict=True)]
        for row in shown:
            del row["queues"], row["topic"]
    else:
        shown = summed(rows)
    output.show(shown, as_json=as_json, empty=f"no group is behind at {name_server}")
    bad = sorted({f"{row['group']} ({row['verdict']})" for row in rows if row["verdict"] != "ok"})
    if bad:
        raise CommandError(f"unread messages are lost or at risk: {', '.join(bad)}", ExitCode.MISMATCH, HINT)


HINT = "start more members, keep messages longer (fileReservedTime), or archive them before they go"


def save_rows(spark: "SparkSession", behind: Sequence[Behind], rows: Sequence[dict[str, Any]], folder: Any) -> None:
    """Writes a row for each queue as Parquet.

    Args:
        spark: The session.
        behind: Queues with unread messages.
        rows: Rows of the queues.
        folder: Folder to write to.
    """
    schema = (
        "`group` string, topic string, broker_name string, queue_id int, lag bigint, gone bigint, "
        "oldest_unread_at timestamp_ltz, hours_left double, needed_per_hour double, verdict string"
    )
    names = ("lag", "gone", "oldest_unread_at", "hours_left", "needed_per_hour", "verdict")
    values = [
        (one.group, one.queue.topic, one.queue.broker_name, one.queue.queue_id, *(row[name] for name in names))
        for one, row in zip(behind, rows, strict=True)
    ]
    job.save(spark.createDataFrame(values, schema).coalesce(1), folder, "queues")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job from a command line.

    Args:
        arguments: Command line; default: that of the process.

    Returns:
        The exit code.
    """
    return job.run_command("lag_report", lag_report, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
