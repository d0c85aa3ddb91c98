"""The job `topic_profile`: sizes and rates of messages, and their distribution over queues, tags and keys.

`spark-submit spark/topic_profile.py --path data --topic flights --out profile` runs it by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketpy.commandline import output
from rocketpy.spark import job
from rocketpy.spark.aggregation import MEASURES, aggregate_all
from rocketpy.spark.picture import draw_profile, drawn

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

GROUPINGS: dict[str, tuple[str, ...]] = {
    "queues": ("topic", "broker_name", "queue_id"),
    "sizes": ("topic", "size"),
    "hours": ("topic", "hour"),
    "tags": ("topic", "tag"),
    "keys": ("topic", "key"),
    "order_keys": ("topic", "order_key"),
}
"""The tables of a profile and what each is grouped by."""
WITH_MANY = ("tags", "keys", "order_keys")
"""Tables that may be as long as the topic: only their largest groups are collected from Spark."""

Top = Annotated[int, typer.Option("--top", min=1, max=1000, help="Number of tags and keys to list.")]
Keys = Annotated[
    bool, typer.Option("--keys/--no-keys", help="Count keys and order keys too: the costliest part where each is rare.")
]


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a topic.

    Attributes:
        topic: The topic.
        tables: Rows by table; of tags and keys only the largest, in that order.
        distinct: Number of different tags, keys and order keys.
    """

    topic: str
    tables: dict[str, list[dict[str, Any]]] = field(repr=False)
    distinct: dict[str, int]

    @property
    def messages(self) -> int:
        """Number of messages."""
        return sum(row["messages"] for row in self.tables["queues"])

    def facts(self) -> dict[str, Any]:
        """The profile in one row."""
        queues, hours = self.tables["queues"], self.tables["hours"]
        size = sum(row["bytes"] for row in queues)
        busiest = max(hours, key=lambda row: row["messages"])
        facts: dict[str, Any] = {
            "topic": self.topic,
            "messages": self.messages,
            "bytes": size,
            "mean_bytes": size / self.messages,
            "half_up_to": self.size_of_share(0.5),
            "99_percent_up_to": self.size_of_share(0.99),
            "largest_bytes": max(row["largest_bytes"] for row in queues),
            "first_stored_at": min((row["first_stored_at"] for row in queues if row["first_stored_at"]), default=None),
            "last_stored_at": max((row["last_stored_at"] for row in queues if row["last_stored_at"]), default=None),
            "busiest_hour": busiest["hour"],
            "messages_in_it": busiest["messages"],
            "queues": len(queues),
            "largest_queue_to_mean": max(row["messages"] for row in queues) * len(queues) / self.messages,
        }
        for table, name in (("tags", "tag"), ("keys", "key"), ("order_keys", "order_key")):
            if table in self.tables:
                named = [row for row in self.tables[table] if row[name] is not None]
                facts[table] = self.distinct.get(table, 0)
                facts[f"top_{name}"] = named[0][name] if named else None
                facts[f"share_of_top_{name}"] = named[0]["messages"] / self.messages if named else None
        return facts

    def size_of_share(self, share: float) -> int:
        """Returns the size that this share of the messages does not exceed, as a power of two."""
        seen = 0
        for row in sorted(self.tables["sizes"], key=lambda row: row["size"]):
            seen += row["messages"]
            if seen >= share * self.messages:
                return int(row["size"])
        raise AssertionError("every message has a size")


def run(
    spark: "SparkSession", source: dict[str, object], *, top: int = 20, keys: bool = True, out: "Path | None" = None
) -> list[Profile]:
    """Profiles topics in one pass over their messages, without their bodies.

    Args:
        spark: The session.
        source: Options of the data source.
        top: Number of tags and keys to list.
        keys: Whether keys and order keys are counted.
        out: Folder for the tables as Parquet and a picture of each topic as PNG.

    Returns:
        The profiles of the topics that have messages, by name.
    """
    tables = [name for name in GROUPINGS if keys or not name.endswith("keys")]
    with job.progress(spark, "profile"):
        sums = aggregate_all(spark, [GROUPINGS[name] for name in tables], source).cache()
        narrow = {
            name: sums.where(f"grouping = {number}").select(*GROUPINGS[name], *MEASURES)
            for number, name in enumerate(tables)
        }
        rows = {name: _rows(table, name, top) for name, table in narrow.items()}
        distinct = {name: _distinct(table, name) for name, table in narrow.items() if name in WITH_MANY}
    profiles = [
        Profile(
            topic,
            {name: [row for row in of_table if row["topic"] == topic] for name, of_table in rows.items()},
            {name: counts.get(topic, 0) for name, counts in distinct.items()},
        )
        for topic in sorted({row["topic"] for row in rows["queues"]})
    ]
    if out is not None:
        for name, table in narrow.items():
            job.save(table.orderBy(*GROUPINGS[name]).coalesce(1), out, name)

        def draw() -> None:
            for profile in profiles:
                draw_profile(profile, out / f"{profile.topic.replace('%', '_')}.png")

        drawn(draw)
    sums.unpersist()
    return profiles


def _rows(table: "DataFrame", name: str, top: int) -> list[dict[str, Any]]:
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    if name not in WITH_MANY:
        return job.rows_of(table.orderBy(*GROUPINGS[name]))
    group = GROUPINGS[name][-1]
    rank = sql.row_number().over(Window.partitionBy("topic").orderBy(sql.desc("messages"), group))
    # One more: messages without a key are a group as well, which is not one of the top.
    return job.rows_of(table.withColumn("rank", rank).where(f"rank <= {top + 1}").orderBy("topic", "rank").drop("rank"))


def _distinct(table: "DataFrame", name: str) -> dict[str, int]:
    counts = table.where(f"{GROUPINGS[name][-1]} is not null").groupBy("topic").count()
    return {row["topic"]: row["count"] for row in counts.collect()}


def topic_profile(
    topics: job.Topics = [],  # noqa: B006  # typer reads it
    path: job.StorePath = None,
    name_server: job.NameServer = None,
    since: job.Since = None,
    until: job.Until = None,
    top: Top = 20,
    keys: Keys = True,
    out: job.OutWithPicture = None,
    dry_run: job.DryRun = False,
    as_json: job.Json = False,
) -> None:
    """Profile topics: sizes, rate, and how evenly queues, tags and keys share the messages."""
    source = job.source_of(path, name_server, topics, since, until)
    folder = job.new_folder(out)
    if dry_run:
        job.show_plan("profile", source, as_json=as_json)
        return
    with job.session("topic profile") as spark:
        profiles = run(spark, source, top=top, keys=keys, out=folder)
    if as_json or not profiles:
        where = f"at {name_server}" if path is None else f"in {path}"
        rows = [{**profile.facts(), "tables": profile.tables} for profile in profiles]
        output.show(rows, as_json=as_json, empty=f"no messages {where}")
        return
    for profile in profiles:
        output.show_one(profile.facts(), as_json=False)
        for name in ("tags", "keys", "order_keys"):
            rows = profile.tables.get(name, [])[:top]
            shown = [{key: row[key] for key in (GROUPINGS[name][-1], "messages", "bytes")} for row in rows]
            if shown:
                title = f"{name.replace('_', ' ')} of {profile.topic}"
                output.show(shown, as_json=False, title=f"largest {title}", empty=f"no {title}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job from a command line.

    Args:
        arguments: Command line; default: that of the process.

    Returns:
        The exit code.
    """
    return job.run_command("topic_profile", topic_profile, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
