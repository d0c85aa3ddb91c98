"""What a Spark worker does with messages, in Rust and by pyarrow: JSON to columns, and sums by group."""

import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

import rocketpy
from rocketpy.spark.bodies import json_columns

ROWS = 200_000
ROUNDS = 7
TOPIC = "bench"
FLIGHT = pa.struct(
    [
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("dep_delay", pa.float64()),
        ("time", pa.timestamp("us", "UTC")),
    ]
)
"""Taken of bodies that have twice as many fields."""


def flight(rng: random.Random) -> bytes:
    fields = {
        "carrier": rng.choice(["UA", "AA", "DL", "B6"]),
        "flight": rng.randrange(10_000),
        "tailnum": f"N{rng.randrange(100_000)}",
        "origin": rng.choice(["JFK", "LGA", "EWR"]),
        "dest": rng.choice(["LAX", "SFO", "BOS", "MIA"]),
        "dep_delay": rng.randrange(-200, 3000) / 10,
        "arr_delay": None,
        "distance": rng.randrange(100, 5000),
        "air_time": rng.randrange(30, 600),
        "time": f"2013-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}T{rng.randrange(24):02}:00:00Z",
    }
    return json.dumps(fields).encode()


def json_by_pyarrow(bodies: pa.Array) -> pa.Array:
    """Each body on a line, in an object around it, so that a body of two lines cannot shift the others."""
    head, tail = (pa.scalar(text, bodies.type) for text in (b'{"v":', b"}"))
    lines = pc.binary_join_element_wise(head, bodies, tail, pa.scalar(b"", bodies.type))
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    text = pc.binary_join(whole, pa.scalar(b"\n", bodies.type))[0].as_buffer()
    table = pyarrow.json.read_json(
        pa.BufferReader(text),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=text.size + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([("v", FLIGHT)]), unexpected_field_behavior="ignore"
        ),
    )
    return table.column("v").combine_chunks()


def json_in_rust(bodies: pa.Array) -> pa.Array:
    return json_columns(bodies, FLIGHT)[0]


def sums_by_pyarrow(reader: rocketpy.StoreReader) -> pa.Table:
    """The columns of each batch are added up, then the sums of all batches."""
    measures = [("messages", "sum"), ("size_bytes", "sum"), ("size_bytes", "max"), ("stored_at", "min_max")]
    parts = []
    for native in reader.scan(TOPIC, columns=["queue_id", "tag", "size_bytes", "stored_at"]):
        batch = pa.record_batch(native)
        table = pa.Table.from_batches([batch]).append_column("messages", pa.repeat(1, batch.num_rows))
        parts.append(table.group_by(["queue_id", "tag"], use_threads=False).aggregate(measures))
    return pa.concat_tables(parts).group_by(["queue_id", "tag"]).aggregate([("messages_sum", "sum")])


def sums_in_rust(reader: rocketpy.StoreReader) -> pa.Table:
    return pa.table(reader.scan(TOPIC, groupings=[["queue_id", "tag"]]))


def fill(store: str, bodies: list[bytes]) -> None:
    with rocketpy.Server(store) as server:
        with server.admin() as admin:
            admin.create_topic(TOPIC, queues=2)
        with server.producer("bench") as producer:
            for start in range(0, len(bodies), 10_000):
                tagged = enumerate(bodies[start : start + 10_000])
                producer.send_many([rocketpy.Message(TOPIC, body, tag=f"t{n % 8}", keys=["k"]) for n, body in tagged])


def compare(name: str, ours: Callable[[], object], baseline: Callable[[], object]) -> None:
    """The two take turns. Processor time of all threads counts: other processes may share the machine."""
    pairs = []
    for _ in range(ROUNDS + 1):  # the first ones read the store into the page cache
        started_at = time.process_time()
        ours()
        between = time.process_time()
        baseline()
        pairs.append((between - started_at, time.process_time() - between))
    pairs = pairs[1:]
    ratio = statistics.median(other / one for one, other in pairs)
    rates = [ROWS / statistics.median(taken) for taken in zip(*pairs, strict=True)]
    print(f"{name}: {ratio:.2f} times what pyarrow does, {rates[0]:,.0f} and {rates[1]:,.0f} messages a CPU second")


def main() -> None:
    rng = random.Random(1)
    bodies = [flight(rng) for _ in range(ROWS)]
    batches = [pa.array(bodies[start : start + 4096], pa.binary()) for start in range(0, ROWS, 4096)]
    if not all(json_in_rust(batch).equals(json_by_pyarrow(batch)) for batch in batches):
        raise RuntimeError("the two ways differ")
    compare(
        "JSON to columns",
        lambda: [json_in_rust(batch) for batch in batches],
        lambda: [json_by_pyarrow(batch) for batch in batches],
    )
    with tempfile.TemporaryDirectory(prefix="rocketpy-bench-") as folder:
        store = str(Path(folder, "store"))
        fill(store, bodies)
        reader = rocketpy.StoreReader(store)
        compare("sums by queue and tag", lambda: sums_in_rust(reader), lambda: sums_by_pyarrow(reader))


if __name__ == "__main__":
    main()
