"""Stores that Apache and RocketPy write in turns: the cases, what Apache left behind, and how files are looked at."""

import hashlib
import json
import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path

TOPIC = "kinds"
FLOOD = "flood"
"""Of messages that were on their way when a broker was killed."""
LONG_GROUP = "g" * 150
LONG_TOPIC = f"%RETRY%{LONG_GROUP}"
GROUP = "billing"
VERSION_2 = bytes.fromhex("daa320ab")
OUR_TABLES = {"topics.json", "subscriptionGroup.json", "consumerOffset.json"}


@dataclass(frozen=True)
class Case:
    """Who wrote first, and how each of the two ended."""

    version: str
    clean: bool
    rocketpy_clean: bool
    ipv6: bool = False
    record_check: bool = False
    index_slots: int = 5000
    index_entries: int = 50

    @property
    def is_5(self) -> bool:
        return self.version.startswith("5")

    @property
    def topics(self) -> list[str]:
        return [TOPIC, FLOOD, LONG_TOPIC] if self.is_5 else [TOPIC, FLOOD]

    @property
    def read_topics(self) -> list[str]:
        """Those that are read to the last message."""
        return [topic for topic in self.topics if topic != FLOOD]

    @property
    def kinds(self) -> list[str]:
        """What Apache's broker can do beyond plain messages, and what depends on no clock."""
        return ["delay", "transaction", "long"] if self.is_5 else ["delay", "transaction"]

    @property
    def kinds_for_later(self) -> list[str]:
        """What waits in the store for hours."""
        return ["far-delay", "timer"] if self.is_5 else ["far-delay"]

    @property
    def settings(self) -> dict[str, object]:
        """Small files, so that log, queues and index all roll over; for both brokers.

        Queues roll over in 5.5.0 only: 4.9 looks for a time in the file that it picks by time of change, and what is
        written through a mapping changes a file late.
        """
        settings: dict[str, object] = {
            "mappedFileSizeCommitLog": 6 << 20,
            "maxHashSlotNum": self.index_slots,
            "maxIndexNum": self.index_entries,
            "messageIndexSafe": "true",
            "flushConsumerOffsetInterval": 500,
            "flushDelayOffsetInterval": 500,
        }
        if self.ipv6:
            settings |= {"bindAddress": "::1", "brokerIP1": "::1"}
        if self.is_5:
            settings |= {
                "mappedFileSizeConsumeQueue": 200,
                "enabledAppendPropCRC": str(self.record_check).lower(),
            }
        return settings

    @property
    def name(self) -> str:
        ends = ("stopped" if self.clean else "killed", "stopped" if self.rocketpy_clean else "killed")
        return f"apache-{self.version}-{ends[0]}-rocketpy-{ends[1]}"


CASES = [
    Case("5.5.0", clean=True, rocketpy_clean=False),
    Case("5.5.0", clean=False, rocketpy_clean=True, ipv6=True, record_check=True),
    Case("4.9.7", clean=True, rocketpy_clean=True, ipv6=True, index_slots=5_000_000, index_entries=20_000_000),
    Case("4.9.7", clean=False, rocketpy_clean=False),
]


def write_tables(store: Path, case: Case) -> None:
    """A topic and a group that differ from the defaults in all that a broker keeps; the long name is from long ago."""
    group: dict[str, object] = {
        "groupName": LONG_GROUP,
        "retryMaxTimes": 5,
        "consumeFromMinEnable": False,
        "consumeTimeoutMinute": 15,
    }
    topic: dict[str, object] = {
        "topicName": "typed",
        "readQueueNums": 3,
        "writeQueueNums": 2,
        "perm": 4,
        "order": True,
        "topicFilterType": "MULTI_TAG",
        "topicSysFlag": 1,
    }
    if case.is_5:
        policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 7000, "max": 9000, "multiplier": 3}}
        group |= {"attributes": {"lag.limit": "10"}, "groupRetryPolicy": policy, "groupSysFlag": 2}
        topic["attributes"] = {"message.type": "FIFO"}
    version = {"counter": 1, "timestamp": 1700000000000}
    (store / "config").mkdir(parents=True)
    for name, table in (
        ("topics.json", {"topicConfigTable": {"typed": topic}}),
        (
            "subscriptionGroup.json",
            {"subscriptionGroupTable": {LONG_GROUP: group}, "forbiddenTable": {LONG_GROUP: {"typed": 1}}},
        ),
    ):
        (store / "config" / name).write_text(json.dumps({"dataVersion": version} | table))


def table(store: Path, name: str) -> dict:
    """A file of `config`; fastjson writes numbers as keys without quotes.

    Apache takes the file away before it puts the new one there: a kill in between leaves the former one, as `.bak`.
    """
    path = store / "config" / name
    text = (path if path.exists() else path.with_name(f"{name}.bak")).read_text()
    return json.loads(re.sub(r"([{,]\s*)(\d+)(\s*:)", r'\1"\2"\3', text))


def tables(store: Path) -> dict[str, dict]:
    return {name: table(store, name) for name in OUR_TABLES}


def committed(store: Path) -> int:
    """Sum of the group's offsets in the file."""
    return sum(group_offsets(store).values())


def group_offsets(store: Path) -> dict[str, int]:
    """The group's offsets in the file, by the number of the queue."""
    return offsets(store, "consumerOffset.json").get(f"{TOPIC}@{GROUP}", {})


def delivered(store: Path) -> int:
    """How many messages of the first delay level are delivered, by the file."""
    return offsets(store, "delayOffset.json").get("1", 0)


def offsets(store: Path, name: str) -> dict:
    try:
        return table(store, name)["offsetTable"]
    except (FileNotFoundError, json.JSONDecodeError):  # Apache is writing it
        return {}


def files(root: Path) -> dict[str, Path]:
    return {str(path.relative_to(root)): path for path in sorted(root.rglob("*")) if path.is_file()}


def copy_sparse(source: str, target: str) -> None:
    """Copies what is written of a file: a store of Apache's is some hundred megabytes of holes."""
    with Path(source).open("rb") as read, Path(target).open("wb") as write:
        size_bytes, at = os.fstat(read.fileno()).st_size, 0
        while at < size_bytes:
            try:
                at = os.lseek(read.fileno(), at, os.SEEK_DATA)
            except OSError:  # no data any more
                break
            end = os.lseek(read.fileno(), at, os.SEEK_HOLE)
            os.pwrite(write.fileno(), os.pread(read.fileno(), end - at, at), at)
            at = end
        write.truncate(size_bytes)


def is_state_of_apache(name: str) -> bool:
    """Whether a file belongs to what RocketPy leaves alone while nothing of it is due: delays, timers and so on."""
    first, _, rest = name.partition("/")
    match first:
        case "commitlog" | "index" | "checkpoint" | "abort" | "lock":
            return False
        case "timerwheel":  # made anew at each start
            return False
        case "config":
            ours = {"timercheck", "delayLevels.json", "replication.json", "topicCreations.json"}
            return rest.removesuffix(".bak") not in OUR_TABLES | ours
        case "consumequeue":
            return not rest.startswith((f"{TOPIC}/", f"{FLOOD}/", f"{LONG_TOPIC}/"))
        case _:
            return True


def state_of_apache(store: Path) -> dict[str, str]:
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in files(store).items()
        if is_state_of_apache(name)
    }


def log(store: Path) -> bytes:
    """All bytes of the log but the zeros at its end."""
    return b"".join(path.read_bytes() for path in files(store / "commitlog").values()).rstrip(b"\0")


def queue_files(store: Path) -> dict[str, bytes]:
    """Without those of the messages that were on their way."""
    found = files(store / "consumequeue")
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith(f"{FLOOD}/")}


def key_hash(text: str) -> int:
    units = text.encode("utf-16-be")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + high * 256 + low) & 0xFFFFFFFF
    return abs(value - (1 << 32) if value >= 1 << 31 else value)


TAG_HASHES = {
    key_hash(f"{topic}#T#{tag}")
    for topic in (TOPIC, FLOOD, "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC")
    for tag in ("TagA", "d")
}
"""Index entries of tags, which Apache writes since 5.4."""


def index_entries(store: Path, case: Case) -> list[tuple[int, int]]:
    """Key hash and physical offset of every index entry, in the order of writing."""
    found = []
    for path in files(store / "index").values():
        with path.open("rb") as file:
            (following,) = struct.unpack(">36xi", file.read(40))
            file.seek(case.index_slots * 4 + 20, 1)  # entry 0 is never used
            found += [struct.unpack(">iq8x", file.read(20)) for _ in range(1, following)]
    return found
