"""Values that another client or broker may have stored: times, tags, keys, doubled properties, charsets, nulls.

`foreign_messages` has one message for each value, `drawn_messages` has combinations from the seed of the run. Readers
are compared with `expected`, by `of_message` and `of_row`.

`send_foreign` sends them to a real broker as raw bytes, because no client of ours would. `patch_times` writes times
into the log of a stopped store, because a broker stores its own clock.
"""

import contextlib
import datetime
import os
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wire import OK, Raw, give_up, request

import rocketpy
from seeds import VARIABLE

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


DRAWN = 24
"""Number of drawn messages in each run."""
NAMES: tuple[str | bytes, ...] = ("p", "q", "r\x00", "ü", " ", "null", b"\xe4", b"\xe5", "", "a\tb", "TAGS", "KEYS")
CHARSETS = ("utf-8", "latin-1", "gb18030", "utf-16-le", "shift-jis", "cp1252")
BYTES = (b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xff\xfe", b"\x00", b"\x1b[2J", b"\r\n", b"\xef\xbb\xbf")
"""A surrogate, a part of a character, an overlong form, a byte order mark, and what terminals obey."""
BODIES = (b" ", b"{}", b"null", b'{"a": 1e400}', b"\xff\x00\n", "grün".encode("latin-1"), b"NaN")


def drawn_messages(seed: str | None = None) -> list[Foreign]:
    """Combinations of the same kinds of values, other ones in each run; names have the seed.

    Args:
        seed: Default: that of the run (`seeds`).
    """
    seed = os.environ[VARIABLE] if seed is None else seed
    chance = random.Random(f"{seed} foreign")
    return [
        Foreign(
            f"drawn_{number}_of_seed_{seed}",
            b"".join(drawn_property(chance) for _ in range(chance.randrange(9))),
            born_at_ms=drawn_time(chance),
            body=chance.choice(BODIES),
            flag=chance.choice((0, 1, -1, 2**31 - 1, -(2**31))),
        )
        for number in range(DRAWN)
    ]


def drawn_time(chance: random.Random) -> int:
    """A time of the table, a neighbour of one, or any number of 64 bits."""
    near = chance.choice([*UNKNOWN_TIMES.values(), *KNOWN_TIMES.values()]) + chance.randrange(-1, 2)
    return max(-(2**63), min(chance.choice((near, chance.getrandbits(64) - 2**63)), 2**63 - 1))


def drawn_property(chance: random.Random) -> bytes:
    """A property as stored, mostly a whole one; the table's values are joined to new ones."""
    name = chance.choice(NAMES)
    whole = pairs((name, drawn_value(chance)))
    return chance.choice((whole, whole, whole, whole, pairs((name, "")), pairs((name, b""))[:-2] + b"\x02", b"\x02"))


def drawn_value(chance: random.Random) -> bytes:
    """Values of the table in some charsets, with separators between them."""
    text = ("null", "None", "a\x01b", "漢 字", *TAGS, *KEYS.values())
    parts = [chance.choice(text).encode(chance.choice(CHARSETS), "ignore") for _ in range(chance.randrange(3))]
    parts.insert(chance.randrange(len(parts) + 1), chance.choice((b"", *BYTES)))
    return chance.choice((b"", b" ", b"\t", b"||")).join(parts).replace(b"\x02", b"")


def moment(at_ms: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=at_ms)


def decoded(text: bytes) -> dict[str, str]:
    """Properties as Apache's clients read them: other bytes than UTF-8 replaced, empty ones left out, the last wins."""
    found = [piece.split("\x01", 1) for piece in text.decode(errors="replace").split("\x02")]
    return {piece[0]: piece[1] for piece in found if len(piece) == 2 and all(piece)}


READ = ("tag", "keys", "properties", "born_at", "born_at_ms", "flag", "body")
COLUMNS = ["msg_id", *READ, "stored_at", "stored_at_ms"]


def expected(one: Foreign) -> dict[str, object]:
    """What every reader finds in a message."""
    properties = decoded(one.properties)
    return {
        "tag": properties.get("TAGS"),
        "keys": [key for key in properties.get("KEYS", "").split(" ") if key],
        "properties": properties,
        "born_at": moment(one.born_at_ms) if 0 <= one.born_at_ms <= KNOWN_TIMES["year_9999"] else None,
        "born_at_ms": one.born_at_ms,
        "flag": one.flag,
        "body": one.body,
    }


SYSTEM = {"UNIQ_KEY", "WAIT", "MSG_REGION", "TRACE_ON", "CLUSTER", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"}
SYSTEM |= {"DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "DLQ_REASON", "DELAY"}


def own(properties: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in SYSTEM}


def of_message(message: rocketpy.ReceivedMessage) -> dict[str, object]:
    """What a message has."""
    repr(message)
    facts = {name: getattr(message, name) for name in READ}
    return facts | {"keys": list(message.keys), "properties": own(message.properties)}


def of_row(row: dict[str, object]) -> dict[str, object]:
    """What a row with `COLUMNS` has."""
    keys = [key for key in (row["keys"] or "").split(" ") if key]
    properties = row["properties"]
    return {name: row[name] for name in READ} | {
        "keys": keys,
        "properties": own(dict(properties)),
        "body": bytes(row["body"]),
    }


def assert_read(found: dict[str, dict[str, object]], facts: dict[str, dict[str, object]]) -> None:
    """Compares the messages that a reader returned with the expected ones, by message id."""
    assert found.keys() == facts.keys()
    for msg_id, one in facts.items():
        assert found[msg_id] == one, msg_id


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
