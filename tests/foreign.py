"""Values that another client or broker may have stored: times, tags, keys, doubled properties, charsets, nulls.

`send_foreign` sends them to a real broker as raw bytes, because no client of ours would. `patch_times` writes times
into the log of a stopped store, because a broker stores its own clock.
"""

import contextlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wire import OK, Raw, give_up, request

import rocketpy

SEND_BATCH = 320
UNKNOWN_TIMES = {
    "microseconds": 1_700_000_000_000_000,
    "largest": 2**63 - 1,
    "negative": -1,
    "least": -(2**63),
    "last_day": 253_402_300_799_999,
}
"""Numbers that are not times for every reader."""
KNOWN_TIMES = {"epoch": 0, "usual": 1_700_000_000_000, "year_9999": 253_402_214_399_999}
TAGS = ("a||b", "*", " x ", "\t", "grün", "plain")
KEYS = {
    "tab": "a\tb c",
    "no_break_space": "a\u00a0b c",
    "ideographic_space": "a\u3000b c",
    "line_break": "a\nb c",
    "several_spaces": "  a   b ",
}


@dataclass(frozen=True)
class Foreign:
    """A message of another client."""

    name: str
    properties: bytes = b""
    """As stored: `name 0x01 value 0x02` for each."""
    born_at_ms: int = KNOWN_TIMES["usual"]
    body: bytes = b"{}"
    flag: int = 0

    @property
    def msg_id(self) -> str:
        """Its unique key."""
        return f"FOREIGN-{self.name}"


def pairs(*properties: tuple[str | bytes, str | bytes]) -> bytes:
    """Stored text of properties; nothing is checked."""
    text = b""
    for name, value in properties:
        text += b"\x01".join(part if isinstance(part, bytes) else part.encode() for part in (name, value)) + b"\x02"
    return text


def foreign_messages() -> list[Foreign]:
    """One message for each kind of foreign value."""
    found = [Foreign(f"born_{name}", born_at_ms=at_ms) for name, at_ms in (UNKNOWN_TIMES | KNOWN_TIMES).items()]
    found += [Foreign(f"tag_{place}", pairs(("TAGS", tag))) for place, tag in enumerate(TAGS)]
    found += [Foreign(f"keys_{name}", pairs(("KEYS", keys))) for name, keys in KEYS.items()]
    found += [
        Foreign("separator", pairs(("p", "with\x01separator"), ("KEYS", "k\x01l m"))),
        Foreign("double", pairs(("p", "first"), ("q", "1"), ("p", "last"), ("TAGS", "first"), ("TAGS", "last"))),
        Foreign("latin_1", pairs(("p", b"gr\xfcn"), ("TAGS", b"gr\xfcn"), ("KEYS", b"gr\xfcn b"))),
        Foreign("latin_1_names", pairs((b"\xe4", "1"), (b"\xe5", "2"))),
        Foreign("empty_value", b"p\x01\x02q\x011\x02"),
        Foreign("no_value", b"p\x02\x02q\x011\x02"),
        Foreign("text_null", pairs(("p", "null"), ("TAGS", "null"), ("KEYS", "None NaN"))),
        Foreign("binary_body", body=bytes(range(256)), flag=-1),
    ]
    return found


@dataclass(frozen=True)
class Stored:
    """Place of a message."""

    msg_id: str
    offset_msg_id: str


def send_foreign(server: rocketpy.Server, topic: str, messages: Sequence[Foreign]) -> list[Stored]:
    """Sends messages to queue 0 of a topic, each as a batch of one: the properties of a batch may be any bytes."""
    stored = []
    with Raw(server.broker) as broker:
        for one in messages:
            properties = pairs(("UNIQ_KEY", one.msg_id)) + one.properties
            rest = struct.pack(">iiiI", 0, 0, one.flag, len(one.body)) + one.body
            rest += struct.pack(">H", len(properties)) + properties
            fields = {
                "a": "foreign", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": str(one.born_at_ms),
                "h": "0", "i": "", "j": "0", "k": "false", "l": "0", "m": "true", "n": "",
            }  # fmt: skip
            answer = broker.answer(request(SEND_BATCH, fields, struct.pack(">I", len(rest) + 4) + rest))
            assert answer is not None, one
            assert answer["code"] == OK, (one, answer)
            stored.append(Stored(one.msg_id, answer["extFields"]["msgId"]))
    return stored


def patch_times(store: Path, offsets_and_times: Sequence[tuple[int, int]]) -> None:
    """Writes born and store times into records of a log with one file.

    Args:
        store: Folder of a store that no server has open.
        offsets_and_times: Physical offset of each record, and its time in milliseconds.
    """
    (log,) = [path for path in sorted((store / "commitlog").iterdir()) if path.name == "0" * 20]
    with log.open("r+b") as file:
        for offset, at_ms in offsets_and_times:
            for place in (40, 56):
                file.seek(offset + place)
                file.write(struct.pack(">q", at_ms))


@contextlib.contextmanager
def foreign_server(folder: Path, topic: str, group: str, messages: Sequence[Foreign]) -> Iterator[rocketpy.Server]:
    """A server with foreign messages in a topic of one queue, all of them also dead letters of a group."""
    with rocketpy.Server(folder) as server:
        with server.admin() as admin:
            admin.create_topic(topic, queues=1)
        give_up(server.broker, group, *send_foreign(server, topic, messages))
        yield server
