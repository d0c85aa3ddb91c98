"""Samples of processes over a run, and whether they grew."""

import os
import statistics
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

MIB = 1 << 20
STORE = "store"
SECONDS_PER_HOUR = 3600
MARGINS: dict[str, tuple[float, float]] = {
    "anonymous_bytes": (0.10, 16 * MIB),
    "mapped_files": (0.10, 10),
    "store_descriptors": (0.10, 10),
    "other_descriptors": (0.0, 5),
    "threads": (0.0, 10),  # a pool keeps the threads of its busiest moment, such as a stall of the disk
    "store_files": (0.10, 20),
    "store_bytes": (0.10, 16 * MIB),
    "series": (0.05, 20),
    "topics": (0.0, 5),
    "groups": (0.0, 5),
}
"""Growth that a run may show, as a share and as a number: the larger one counts. Other figures are shown only."""


def _numbers(file: Path, *names: str) -> list[int]:
    """Values of `name: number kB` lines, in their unit, in the order of the names."""
    found = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
    return [int(found[name].split()[0]) for name in names]


def _kinds(folder: Path, store: Path | None) -> Counter[str]:
    """Open descriptors by kind: socket, pipe, anon_inode, store, or the folder of another file."""
    kinds: Counter[str] = Counter()
    for descriptor in folder.iterdir():
        try:
            target, links = str(descriptor.readlink()), descriptor.stat().st_nlink
        except FileNotFoundError:  # closed meanwhile
            continue
        if store and target.startswith(f"{store}/"):
            kind = STORE
        else:
            kind = f"file in {Path(target).parent.name}" if target.startswith("/") else target.partition(":")[0]
        kinds[f"{kind}, deleted" if links == 0 and target.startswith("/") else kind] += 1
    return kinds


def _thread_names(folder: Path) -> Counter[str]:
    """Threads by name, without numbers."""
    names: Counter[str] = Counter()
    for thread in folder.iterdir():
        try:
            names[(thread / "comm").read_text().strip().rstrip("0123456789-_#")] += 1
        except (FileNotFoundError, ProcessLookupError):  # ended meanwhile
            continue
    return names


def _mapped_files(maps: str) -> int:
    return len({line.split(None, 5)[5] for line in maps.splitlines() if "/" in line})


def of_process(pid: int, store: Path | None = None) -> tuple[dict[str, float], dict[str, dict[str, int]]]:
    """Figures of a process, and its descriptors and threads by kind.

    Raises:
        OSError: The process has ended.
    """
    folder = Path(f"/proc/{pid}")
    rss, anonymous, threads = _numbers(folder / "status", "VmRSS", "RssAnon", "Threads")
    (pss,) = _numbers(folder / "smaps_rollup", "Pss")
    descriptors = _kinds(folder / "fd", store)
    in_store = sum(count for kind, count in descriptors.items() if kind.startswith(STORE))
    fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
    figures: dict[str, float] = {
        "resident_bytes": rss << 10,
        "anonymous_bytes": anonymous << 10,
        "proportional_bytes": pss << 10,
        "mapped_files": _mapped_files((folder / "maps").read_text()),
        "store_descriptors": in_store,
        "other_descriptors": descriptors.total() - in_store,
        "threads": threads,
        "cpu_seconds": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
    }
    return figures, {"descriptors": dict(descriptors), "threads": dict(_thread_names(folder / "task"))}


def of_store(folder: Path) -> dict[str, float]:
    """Files of a store and the bytes that they take on disk."""
    files = used = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                used += (Path(parent) / name).stat().st_blocks * 512
            except FileNotFoundError:  # removed by retention
                continue
            files += 1
    return {"store_files": files, "store_bytes": used}


def series_of(url: str) -> Counter[str] | None:
    """Number of series of each metric of a broker; None if the broker does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    except (OSError, urllib.error.URLError):
        return None
    return Counter(line.partition("{")[0].partition(" ")[0] for line in lines if line and not line.startswith("#"))


@dataclass(frozen=True)
class Row:
    """One figure of one process over the run."""

    process: str
    figure: str
    start: float
    warm: float
    """Median of the second sixth."""
    end: float
    """Median of the last sixth."""
    maximum: float
    per_hour: float
    """Slope since the second sixth."""
    allowed: float | None
    """Value of `end` above which the figure grew; None if it is not judged."""

    @property
    def has_grown(self) -> bool:
        return self.allowed is not None and self.end > self.allowed


@dataclass
class Series:
    """Samples of all processes by time."""

    samples: list[dict[str, float | str]] = field(default_factory=list)
    details: dict[str, dict[str, dict[str, dict[str, int]]]] = field(default_factory=dict)
    """Descriptors, threads and series of each process by kind: at the end of warm-up, and the latest."""

    def add(self, seconds: float, process: str, figures: dict[str, float]) -> None:
        self.samples.append({"seconds": round(seconds, 1), "process": process, **figures})

    def note(self, process: str, is_warm: bool, kinds: dict[str, dict[str, int]]) -> None:
        kept = self.details.setdefault(process, {})
        if is_warm:
            kept.setdefault("warm", kinds)
        kept["latest"] = kinds

    def points(self, process: str, figure: str) -> list[tuple[float, float]]:
        return [
            (float(sample["seconds"]), float(sample[figure]))
            for sample in self.samples
            if sample["process"] == process and figure in sample
        ]

    def rows(self, seconds: float, is_judged: bool) -> list[Row]:
        """A row for each process and figure of a run of some seconds."""
        names = dict.fromkeys(
            (str(sample["process"]), figure)
            for sample in self.samples
            for figure in sample
            if figure not in ("seconds", "process")
        )
        return [row_of(process, figure, self.points(process, figure), seconds, is_judged) for process, figure in names]

    def as_json(self, rows: Iterable[Row]) -> dict[str, object]:
        return {
            "rows": [asdict(row) | {"has_grown": row.has_grown} for row in rows],
            "samples": self.samples,
            "details": self.details,
        }


def row_of(process: str, figure: str, points: list[tuple[float, float]], seconds: float, is_judged: bool) -> Row:
    """Compares the second sixth of a run with its last sixth."""
    values = [value for _, value in points]
    warm = [value for at, value in points if seconds / 6 <= at < seconds / 3] or values
    end = [value for at, value in points if at >= seconds * 5 / 6] or values
    since = [(at, value) for at, value in points if at >= seconds / 6]
    is_line = len({at for at, _ in since}) > 1
    slope = statistics.linear_regression(*zip(*since, strict=True)).slope if is_line else 0.0
    allowed = None
    if is_judged and figure in MARGINS:
        share, number = MARGINS[figure]
        allowed = statistics.median(warm) + max(share * statistics.median(warm), number)
    return Row(
        process,
        figure,
        values[0],
        statistics.median(warm),
        statistics.median(end),
        max(values),
        slope * SECONDS_PER_HOUR,
        allowed,
    )
