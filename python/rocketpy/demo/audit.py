"""Compares the messages of a server with the acknowledged ones, message by message."""

from typing import TYPE_CHECKING

from rocketpy import Admin, Consumer, Start
from rocketpy.admin.cluster import message_count
from rocketpy.config import PATIENT
from rocketpy.demo.departures import Mismatch
from rocketpy.demo.publish import Acknowledged

if TYPE_CHECKING:
    import pandas

MAX_ROWS = 100_000
TIMEOUT_SECONDS = 60.0
COLUMNS = ["queue_id", "queue_offset", "msg_id"]


def stored(topic: str, name_server: str) -> "pandas.DataFrame":
    """Reads the position of each message of a topic over the network, as Arrow.

    Args:
        topic: Topic to read.
        name_server: Address of the name server.

    Returns:
        Columns queue_id, queue_offset and msg_id.

    Raises:
        Mismatch: The server returns fewer messages than its offsets promise.
    """
    import pandas

    with Admin(name_servers=name_server, **PATIENT) as admin:
        rows = message_count(admin.describe_topic(topic).queues)
    parts: list[pandas.DataFrame] = []
    left = rows
    with Consumer("audit", topic, name_servers=name_server, start=Start.EARLIEST, **PATIENT) as consumer:
        while left > 0:
            batch = consumer.fetch_arrow(MAX_ROWS, TIMEOUT_SECONDS, columns=COLUMNS)
            if not batch.num_rows:
                raise Mismatch(f"{topic}: {left:,} of {rows:,} messages do not arrive")
            left -= batch.num_rows
            parts.append(batch.to_pandas())
    return pandas.concat(parts)


def check_acknowledged(topic: str, name_server: str, acknowledged: Acknowledged) -> int:
    """Checks that every acknowledged message is at the position in its receipt.

    Args:
        topic: Topic to check.
        name_server: Address of the name server.
        acknowledged: Receipts of the topic.

    Returns:
        Number of compared messages.

    Raises:
        Mismatch: A message is missing, or another one is at its position.
    """
    import pandas

    promised = pandas.DataFrame(
        {"queue_id": acknowledged.queue_ids, "queue_offset": acknowledged.offsets, "msg_id": acknowledged.msg_ids}
    )
    both = promised.merge(stored(topic, name_server), on=COLUMNS)
    if len(both) != len(promised):
        raise Mismatch(
            f"{topic}: {len(promised) - len(both):,} acknowledged messages are not at the positions in their receipts"
        )
    return len(both)
