"""The protocol spoken by hand, so that tests can say what no client says."""

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import rocketpy

SEND_MESSAGE, PULL_MESSAGE, UPDATE_OFFSET, CONSUMER_SEND_MSG_BACK, GET_ROUTE = 10, 11, 15, 36, 105
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


def code_and_opaque(data: bytes) -> tuple[int, int]:
    """Those of a request, whose header is JSON or binary."""
    header = data[4 : 4 + int.from_bytes(data[1:4])]
    if data[0] == 0:
        fields = json.loads(header)
        return fields["code"], fields["opaque"]
    return int.from_bytes(header[:2]), int.from_bytes(header[5:9])


class ScriptedPeer:
    """A name server and broker that answers the requests it is told to, and is silent to all others.

    Args:
        answers: By request code: makes the fields and the body of the answer, from this peer's address.
        heard: Called with the code of each request, and with None at the end of a connection.
    """

    def __init__(self, answers: dict[int, Callable[[str], tuple[dict, bytes]]], heard: Callable[..., None]) -> None:
        self._answers, self._heard = answers, heard
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "ScriptedPeer":
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(ConnectionError), connection.makefile("rb") as stream:
            while len(length := stream.read(4)) == 4:
                data = stream.read(int.from_bytes(length))
                code, opaque = code_and_opaque(data)
                self._heard(code)
                if code in self._answers:
                    fields, body = self._answers[code](self.address)
                    answer = {"code": OK, "language": "JAVA", "version": 401, "flag": 1, "extFields": fields}
                    connection.sendall(frame(json.dumps({**answer, "opaque": opaque}).encode(), body))
        self._heard(None)


def route(address: str) -> tuple[dict, bytes]:
    """The answer for a topic of one queue, at broker `b`."""
    broker = {"cluster": "c", "brokerName": "b", "brokerAddrs": {"0": address}}
    queues = {"brokerName": "b", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0}
    return {}, json.dumps({"brokerDatas": [broker], "queueDatas": [queues], "filterServerTable": {}}).encode()


def peer_that_passes_over(server: rocketpy.Server, topic: str, missing: set[int]) -> ScriptedPeer:
    """A broker `b` that has ten messages of a topic of one queue but some, as Apache's answers that cannot read them.

    Args:
        server: Makes the messages; its log has no others yet.
        topic: Is created.
        missing: Queue offsets.
    """
    with server.admin() as admin, server.producer("passed-over") as producer:
        admin.create_topic(topic, queues=1)
        producer.send_many([rocketpy.Message(topic, b"%d" % number) for number in range(10)])
    log, records = min(Path(server.path, "commitlog").iterdir()).read_bytes(), []
    while size := int.from_bytes(log[:4]):
        records.append(log[:size])
        log = log[size:]
    body = b"".join(record for number, record in enumerate(records) if number not in missing)
    fields = {"suggestWhichBrokerId": "0", "nextBeginOffset": "10", "minOffset": "0", "maxOffset": "10"}
    return ScriptedPeer({GET_ROUTE: route, PULL_MESSAGE: lambda _: (fields, body)}, lambda _: None)


def give_up(broker: str, group: str, *receipts, error: str | None = None) -> None:
    """Gives messages back so that they die at once, with an error as RocketPy's consumers report it."""
    with Raw(broker) as raw:
        for receipt in receipts:
            offset = str(int(receipt.offset_msg_id[16:], 16))
            fields = {"offset": offset, "group": group, "delayLevel": "-1", "originMsgId": receipt.msg_id}
            if error is not None:
                fields["rocketpyError"] = error
            assert raw.answer(request(CONSUMER_SEND_MSG_BACK, fields))["code"] == OK
