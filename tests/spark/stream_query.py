"""A stream of its own process, to be killed: writes each batch to a file of its number, and ends when asked to.

python stream_query.py DOOR ADDRESS TOPIC FOLDER, with name_server or path as the door
"""

import sys
from pathlib import Path

from rocketpy.spark import local_session
from rocketpy.spark.session import QUICK_JVM


def main(door: str, address: str, topic: str, folder: Path) -> None:
    """Runs until the file `end` is in the folder, and then until nothing is left to read."""
    (folder / "batches").mkdir(parents=True, exist_ok=True)
    config = {
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    }
    spark = local_session("killed", folder, memory="1g", config=config)
    spark.sparkContext.setLogLevel("OFF")

    def write(frame, batch_id):  # a repeated batch replaces its file
        rows = [f"{row.queue_id} {row.queue_offset} {bytes(row.body).decode()}" for row in frame.collect()]
        new = folder / "batches" / f".{batch_id}"
        new.write_text("\n".join(rows))
        new.rename(new.with_name(str(batch_id)))

    stream = (
        spark.readStream.format("rocketpy")
        .options(**{door: address}, topic=topic, columns="queue_id,queue_offset,body", max_offsets_per_trigger=100)
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    query = stream.start()
    while not (folder / "end").exists():
        query.awaitTermination(0.1)  # raises what the query failed with
    query.stop()
    stream.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]))
