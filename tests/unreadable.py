"""Bodies of other clients that do not decompress: garbage by every compression, and one beyond the limits."""

import contextlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wire import OK, SEND, SEND_MESSAGE, Raw, give_up, request

import rocketpy
from waiting import wait_for_files

COMPRESSED = 1
KEY = "unreadable"
GARBAGE = {
    "zlib": 0x300,
    "lz4": 0x100,
    "zstd": 0x200,
    "zlib_of_old_clients": 0,
    "no_compression_of_that_number": 0x700,
}
"""Compression bits of `sysFlag` by name."""


@dataclass(frozen=True)
class Stored:
    """A message as another client sends it."""

    msg_id: str
    sys_flag: int
    body: bytes

    @property
    def is_readable(self) -> bool:
        return self.sys_flag == 0


def messages() -> list[Stored]:
    """One message for each kind of unreadable body, between two readable ones."""
    garbage = [Stored(f"UNREADABLE-{name}", COMPRESSED | bits, b"not compressed") for name, bits in GARBAGE.items()]
    # 17 MiB of 17 KiB: more than 16 MiB, and more than a hundred times its size.
    large = Stored("UNREADABLE-large", COMPRESSED | 0x300, zlib.compress(bytes(17 << 20)))
    return [Stored("READABLE-first", 0, b"first"), *garbage, large, Stored("READABLE-last", 0, b"last")]


MESSAGES = messages()
READABLE = {one.msg_id for one in MESSAGES if one.is_readable}
UNREADABLE = {one.msg_id for one in MESSAGES if not one.is_readable}
BODIES = {one.msg_id: one.body.decode() if one.is_readable else None for one in MESSAGES}
"""Body of each message as text, None if it is unreadable."""


@dataclass(frozen=True)
class Receipt:
    """Place of a message."""

    msg_id: str
    offset_msg_id: str


def send_unreadable(server: rocketpy.Server, topic: str) -> list[Receipt]:
    """Creates a topic of one queue, sends the messages to it, and waits until the files of the store have them."""
    receipts = []
    with server.admin() as admin, Raw(server.broker) as broker:
        admin.create_topic(topic, queues=1)
        for one in MESSAGES:
            properties = f"UNIQ_KEY\1{one.msg_id}\2KEYS\1{KEY}\2"
            fields = {**SEND, "topic": topic, "sysFlag": str(one.sys_flag), "properties": properties}
            answer = broker.answer(request(SEND_MESSAGE, fields, one.body))
            assert answer is not None, one.msg_id
            assert answer["code"] == OK, (one.msg_id, answer)
            receipts.append(Receipt(one.msg_id, answer["extFields"]["msgId"]))
        wait_for_files(server.path, admin.queues(topic)[0], len(MESSAGES))
    return receipts


@contextlib.contextmanager
def unreadable_server(folder: Path, topic: str, group: str) -> Iterator[rocketpy.Server]:
    """A server with the messages in a topic of one queue, all of them also dead letters of a group."""
    with rocketpy.Server(folder) as server:
        give_up(server.broker, group, *send_unreadable(server, topic))
        with server.admin() as admin:
            wait_for_files(server.path, admin.queues(f"%DLQ%{group}")[0], len(MESSAGES))
        yield server
