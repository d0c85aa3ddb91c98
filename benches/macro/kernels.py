"""What the criterion kernels and the long bench have left in ``target``, as figures beside their targets."""

import json
from pathlib import Path

Figure = dict[str, float | str]

CRITERION = Path("target/criterion")
LONG = Path("target/figures/store.json")


def times() -> dict[tuple[str, str], float]:
    """Mean time of one iteration in nanoseconds, by group and function."""
    found = {}
    for path in CRITERION.glob("**/new/benchmark.json"):
        name = json.loads(path.read_text())
        mean = json.loads(path.with_name("estimates.json").read_text())["mean"]["point_estimate"]
        found[name["group_id"], name["function_id"]] = mean
    return found


def figures() -> dict[str, Figure]:
    """Every figure of this page, by name."""
    return appends() | flushes() | checks() | dispatches() | scans() | long_ones()


def figure(value: float, unit: str, target: str = "", **more: float) -> Figure:
    return {"value": value, "unit": unit, "target": target, **more}


def appends() -> dict[str, Figure]:
    found, result = times(), {}
    for size in (128, 1024):
        group = f"append {size} B"
        bare = found[group, "bare copy"]
        for name in ("store", "two threads"):
            for check in ("off", "on"):
                took = found[group, f"{name}, record check {check}"]
                ratio_counts = size == 1024 and name == "store" and check == "off"
                result[f"append {size} B, {name}, record check {check}, against a bare copy"] = figure(
                    bare / took, "of the copy", ">= 0.5" if ratio_counts else "", records_per_s=2e5 / took * 1e9
                )
        rate = 2e5 / found[group, "store, record check off"] * 1e9
        result[f"append {size} B, record check off"] = figure(rate, "records/s", ">= 4e6" if size == 128 else "")
    return result


def flushes() -> dict[str, Figure]:
    """A run is 1,024 records of every writer; held writers wait as sends do in the broker, without a thread each."""
    found, result = times(), {}
    for size in (128, 1024):
        group = f"synchronous flush {size} B"
        bare = found[group, "bare, flush after 1 record"]
        for name, records, target in (
            ("1 threads", 1, ">= 0.8"),
            ("8 threads", 8, ""),
            ("64 threads", 64, ""),
            ("8 held", 8, ""),
            ("64 held", 64, ">= 40"),
            ("bare, flush after 64 records", 64, ""),
        ):
            took = found[group, name]
            result[f"{group}, {name}, against a bare loop"] = figure(
                records * bare / took, "of the bare rate", target, acknowledged_per_s=1024e9 * records / took
            )
    return result


def checks() -> dict[str, Figure]:
    """What the record's checksum adds, where the body's own is a part of both ways."""
    found, result = times(), {}
    for size in (128, 1024, 16384):
        group = f"record check {size} B"
        alone = found[group, "checksum alone"]
        for place, part, without in (
            ("append", "encode with", "encode without"),
            ("recovery", "check at recovery", "layout at recovery"),
        ):
            added = found[group, part] - found[group, without]
            result[f"record check at {place}, {size} B, against the checksum of the bytes"] = figure(
                added / alone, "times the checksum", "<= 1.2", added_ns=added, checksum_ns=alone
            )
    return result


def dispatches() -> dict[str, Figure]:
    found, group, records = times(), "dispatch-128-two-keys", 5e5
    alone = records / found[group, "append alone"] * 1e9
    return {
        f"dispatch of 128 B with two keys, {name}": figure(
            records / found[group, name] * 1e9, "records/s", ">= 1e6", appends_alone_per_s=alone
        )
        for name in ("queue", "queue and index")
    }


def scans() -> dict[str, Figure]:
    found, group, bytes_read = times(), "scan of 1 KiB bodies", 200_000 * 1024
    return {
        f"scan of 1 KiB bodies to Arrow, {name}": figure(
            bytes_read / found[group, name],
            "GB/s a core",
            target,
            of_reading=found[group, "baseline: read the log"] / found[group, name],
        )
        for name, target in {
            "twelve columns": ">= 3",
            "twelve columns, checksums not compared": "",
            "body alone": "",
        }.items()
    }


def long_ones() -> dict[str, Figure]:
    targets = {"append through": ">= 0.9", "recovery": "<= 1", "queues": ">= 0.9"}
    units = {
        "append through": "of the rate without",
        "recovery": "s",
        "queues": "of the rate with 16",
    }
    result = {}
    for name, values in json.loads(LONG.read_text()).items():
        kind = next(kind for kind in targets if kind in name)
        value = values.pop("value")
        result[name] = figure(value, units[kind], targets[kind], **values)
    return result
