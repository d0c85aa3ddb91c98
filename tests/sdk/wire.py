"""The protocol spoken by hand, so that tests can say what no client says."""

import json
import socket
import struct

SEND_MESSAGE, PULL_MESSAGE, UPDATE_OFFSET, CONSUMER_SEND_MSG_BACK = 10, 11, 15, 36
OK, MESSAGE_ILLEGAL = 0, 13

SEND = {
    "producerGroup": "raw",
    "topic": "raw",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "1700000000000",
    "flag": "0",
    "properties": "",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "maxReconsumeTimes": "0",
    "batch": "false",
}


def frame(
    header: bytes, body: bytes = b"", *, kind: int = 0, length: int | None = None, header_length: int | None = None
) -> bytes:
    """A frame of the protocol; lengths may lie."""
    header_length = len(header) if header_length is None else header_length
    length = 4 + len(header) + len(body) if length is None else length
    return struct.pack(">iI", length, kind << 24 | header_length) + header + body


def request(code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> bytes:
    header = {"code": code, "language": "OTHER", "version": 401, "opaque": 7, "flag": 0, "extFields": fields or {}}
    return frame(json.dumps(header).encode(), body)


class Raw:
    """A connection that sends any bytes."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.body = b""

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def answer(self, data: bytes) -> dict | None:
        """Sends bytes and reads one answer, whose body is in `body`; None when the connection was closed instead."""
        try:
            self.socket.sendall(data)
            length = struct.unpack(">i", self.exactly(4))[0]
            answer = self.exactly(length)
        except (ConnectionError, EOFError):
            return None
        header_length = struct.unpack(">I", answer[:4])[0] & 0xFFFFFF
        self.body = answer[4 + header_length :]
        return json.loads(answer[4 : 4 + header_length])

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data


def give_up(broker: str, group: str, *receipts) -> None:
    """Gives messages back so that they die at once."""
    with Raw(broker) as raw:
        for receipt in receipts:
            offset = str(int(receipt.offset_msg_id[16:], 16))
            fields = {"offset": offset, "group": group, "delayLevel": "-1", "originMsgId": receipt.msg_id}
            assert raw.answer(request(CONSUMER_SEND_MSG_BACK, fields))["code"] == OK
