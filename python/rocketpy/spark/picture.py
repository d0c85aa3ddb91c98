"""Draws the results of jobs, where matplotlib is installed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from rocketpy.commandline import output

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from rocketpy.spark.archive.manifest import ArchiveFile
    from rocketpy.spark.topic_profile import Profile

BLUE, GREY = "#4338ca", "#94a3b8"
COLORS = (BLUE, "#0891b2", "#16a34a", "#d97706", "#dc2626", GREY)
"""Colors of topics, the largest first; the last one is for all further topics."""
MOST_BARS = 12
GREEN, ORANGE, RED = COLORS[2:5]


@dataclass(frozen=True, slots=True)
class Bar:
    """Bar of a bar chart."""

    name: str
    value: float
    color: str = BLUE


def drawn(draw: Callable[[], object]) -> None:
    """Draws where matplotlib is installed. Reports failures on standard error; they do not end the job.

    Args:
        draw: Function that draws one picture or several.
    """
    if find_spec("matplotlib") is None:
        output.STDERR.print('no picture: pip install "rocketpy-mq\\[demo]" brings matplotlib')
        return
    try:
        draw()
    except Exception as error:  # the work is done, and may have been to send messages
        output.STDERR.print(f"no picture: {escape(str(error))}")


def draw_profile(profile: Profile, path: Path) -> None:
    """Draws the profile of a topic as PNG: sizes, hours, queues, and the largest keys or tags.

    Args:
        profile: Profile of the topic.
        path: File to write.
    """
    figure, axes = _figure(2, 2, f"{profile.topic}: {profile.messages:,} messages")
    tables = profile.tables
    sizes = sorted(tables["sizes"], key=lambda row: row["size"])
    _bars(axes[0][0], [_bytes(row["size"]) for row in sizes], [row["messages"] for row in sizes])
    axes[0][0].set_title("messages by size of the record, up to")
    hours = axes[0][1]
    timed = [row for row in tables["hours"] if row["hour"] is not None]
    hours.bar([row["hour"] for row in timed], [row["messages"] for row in timed], 1 / 24, color=BLUE)
    hours.set_title("messages by hour in which they were stored (UTC)")
    hours.tick_params(axis="x", rotation=30)
    queues = axes[1][0]
    counts = [row["messages"] for row in tables["queues"]]
    names = [
        "#".join(str(row[name]) for name in ("broker_name", "queue_id") if row[name] is not None)
        for row in tables["queues"]
    ]
    _bars(queues, names if len(names) <= 2 * MOST_BARS else None, counts)
    queues.axhline(sum(counts) / len(counts), color=GREY, linestyle="--")
    queues.set_title("messages by queue; the dashed line is the mean")
    name = next((one for one in ("order_keys", "keys", "tags") if _named(profile, one)), "tags")
    rows = _named(profile, name)[:MOST_BARS]
    largest = axes[1][1]
    largest.barh(
        [str(row[name[:-1]]) for row in rows], [100 * row["messages"] / profile.messages for row in rows], color=BLUE
    )
    largest.invert_yaxis()
    largest.set_title(f"% of the messages, by the largest {name.replace('_', ' ')}")
    _write(figure, path)


MEASURES = {
    "stored": "born to stored, by two clocks",
    "sent": "sent to acknowledged",
    "delivered": "sent to delivered",
    "worked": "work of the consumer",
}


def draw_latencies(rows: Sequence[Mapping[str, Any]], quantiles: Sequence[float], path: Path) -> None:
    """Draws distributions of latencies as PNG, a panel for each measure.

    Args:
        rows: Result of `rocketpy.spark.trace_latency.latencies`.
        quantiles: Quantiles of the rows.
        path: File to write.
    """
    measures = [name for name in MEASURES if any(row["measure"] == name for row in rows)]
    columns = 1 if len(measures) == 1 else 2
    figure, axes = _figure(-(-len(measures) // columns), columns, "share of the messages that took up to a time")
    for axis in axes.flat[len(measures) :]:
        axis.remove()
    for axis, measure in zip(axes.flat, measures, strict=False):
        of_measure = [row for row in rows if row["measure"] == measure and row["quantiles_ms"]]
        for row in sorted(of_measure, key=lambda row: -row["count"])[:MOST_BARS]:
            name = ", ".join(row[part] for part in ("topic", "group") if row[part])
            axis.plot(row["quantiles_ms"], [100 * one for one in quantiles], label=name)
        axis.set_xscale("symlog", linthresh=1)  # from 1 ms on; clocks that differ give times below 0
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set_xlabel("ms")
        axis.set_ylim(0, 102)
        axis.set_ylabel("%")
        axis.set_title(MEASURES[measure])
        axis.legend(fontsize=8, loc="lower right")
    _write(figure, path)


def draw_bars(title: str, panels: Mapping[str, Sequence[Bar]], path: Path, *, scale: str = "linear") -> None:
    """Draws numbers as PNG, a panel for each kind. Of many bars the longest are drawn.

    Args:
        title: Title of the picture.
        panels: Bars from top to bottom, by title of the panel. Panels without bars are omitted.
        path: File to write.
        scale: Scale of the numbers, as named by matplotlib.
    """
    drawn = {name: bars for name, bars in panels.items() if bars}
    figure, axes = _figure(1, len(drawn), title)
    for axis, (name, bars) in zip(axes[0], drawn.items(), strict=True):
        longest = sorted(range(len(bars)), key=lambda place: -bars[place].value)[: 2 * MOST_BARS]
        shown = [bars[place] for place in sorted(longest)]
        places = range(len(shown))
        axis.barh(places, [bar.value for bar in shown], color=[bar.color for bar in shown])
        axis.set_yticks(places, [bar.name for bar in shown])
        axis.invert_yaxis()
        axis.set_xscale(scale)
        left_out = f"; the {len(shown)} longest of {len(bars)}" if len(shown) < len(bars) else ""
        axis.set_title(f"{name}{left_out}")
    _write(figure, path)


def draw_archive(files: Sequence[ArchiveFile], path: Path) -> None:
    """Draws the contents of an archive as PNG: messages and bytes by day and topic.

    Args:
        files: Files of the archive.
        path: File to write.
    """
    messages, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for one in files:
        messages[one.topic, one.day] += one.rows
        sizes[one.topic, one.day] += one.size_bytes
    days = sorted({one.day for one in files})
    topics = sorted({one.topic for one in files}, key=lambda topic: -sum(messages[topic, day] for day in days))
    shown = [[topic] for topic in topics[: len(COLORS)]]
    if topics[len(COLORS) :]:
        shown[-1] = topics[len(COLORS) - 1 :]
    counts = (output.counted(number, noun) for number, noun in ((len(topics), "topic"), (len(files), "file")))
    figure, axes = _figure(1, 2, f"{messages.total():,} messages: {', '.join(counts)}")
    places = [date.fromisoformat(day) for day in days]
    for axis, values, unit in ((axes[0][0], messages, 1), (axes[0][1], sizes, 1 << 20)):
        below = [0.0] * len(days)
        for together, color in zip(shown, COLORS, strict=False):
            name = together[0] if len(together) == 1 else f"{len(together)} others"
            heights = [sum(values[topic, day] for topic in together) / unit for day in days]
            axis.bar(places, heights, bottom=below, color=color, label=name)
            below = [lower + height for lower, height in zip(below, heights, strict=True)]
        if len(days) <= MOST_BARS:
            axis.set_xticks(places, days)
        axis.tick_params(axis="x", rotation=30)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside right upper")
    axes[0][0].set_title("messages by day (UTC)")
    axes[0][1].set_title("MiB in files by day")
    _write(figure, path)


def _named(profile: Profile, name: str) -> Sequence[Mapping[str, Any]]:
    return [row for row in profile.tables.get(name, []) if row[name[:-1]] is not None]


def _figure(rows: int, columns: int, title: str) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")  # no window
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(rows, columns, figsize=(12, 4 * rows), layout="constrained", squeeze=False)
    figure.suptitle(title)
    for axis in axes.flat:
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    return figure, axes


def _bars(axis: Any, names: Sequence[str] | None, counts: Sequence[int]) -> None:
    axis.bar(range(len(counts)), counts, color=BLUE)
    if names is not None:
        axis.set_xticks(range(len(counts)), names, rotation=30, ha="right")


def _bytes(size: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"


def _write(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
