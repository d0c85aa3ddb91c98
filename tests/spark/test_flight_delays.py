"""The job of the demo, as a function and as a program."""

import io
import json
import runpy
from dataclasses import replace
from pathlib import Path

import pandas
import pytest
from rich.console import Console

from rocketpy.demo import delays
from rocketpy.demo import run as demo
from rocketpy.demo.flights import load
from rocketpy.demo.journal import Journal
from rocketpy.errors import DamagedDataError
from rocketpy.servers.process import ServerProcess
from rocketpy.spark import OptionError, flight_delays

ROOT = Path(__file__).parents[2]


def flight(carrier, hour, delay):
    departed = None if delay is None else 517
    return {
        "carrier": carrier,
        "hour": hour,
        "dep_time": departed,
        "dep_delay": delay,
        "tailnum": "N1",
        "distance": 1400,
    }


FLIGHTS = [
    flight("UA", 5, 2),
    flight("UA", 5, 5),
    flight("UA", 5, None),
    flight("UA", 6, -1),
    flight("AA", 5, None),
]

TABLE = pandas.DataFrame(
    {
        "carrier": ["AA", "UA", "UA"],
        "hour": [5, 5, 6],
        "flights": [1, 3, 1],
        "mean_departure_delay": [None, 3.5, -1.0],
        "cancelled_share": [1.0, 1 / 3, 0.0],
    }
)


@pytest.fixture
def flights(topic, send):
    send(topic, [json.dumps(one).encode() for one in FLIGHTS])
    return topic


def test_all_three_ways_give_the_table_and_it_is_written(spark, flights, rocketpy_server, tmp_path):
    path, name_server = str(rocketpy_server.path), rocketpy_server.name_server
    for table in (
        flight_delays.delays_over_network(spark, name_server, flights),
        flight_delays.delays_from_folder(spark, path, flights),
        flight_delays.delays_by_ranges(spark, path, flights),
    ):
        pandas.testing.assert_frame_equal(table, TABLE, check_dtype=False, check_exact=True)
    out = tmp_path / "out"
    flight_delays.run(spark, str(out), path=path, name_server=name_server, topic=flights)
    stored = spark.read.parquet(str(out / "delays.parquet")).toPandas()
    pandas.testing.assert_frame_equal(stored, TABLE, check_dtype=False, check_exact=True)
    assert (out / "delays.png").read_bytes().startswith(b"\x89PNG")


def test_the_demo_computes_the_delays_of_a_part_of_its_flights_as_pandas_does(spark, tmp_path):
    """As part 6 of the demo, in the session that is there."""
    whole = load()
    flights = replace(whole, frame=whole.frame[::12])
    journal = Journal(Console(file=io.StringIO()))
    with ServerProcess(tmp_path / "store") as server:
        demo.publish(journal, flights, server)
        delays.compute(journal, flights, server, spark, demo.TOPIC, tmp_path)
    notes = {step.what: (step.rows, step.note) for step in journal.steps if step.what.startswith("Spark ")}
    assert len(notes) == 3
    for rows, note in notes.values():
        assert rows == len(flights) == 28_065
        assert note.startswith("equal to pandas")
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")


def test_a_stream_keeps_the_table_up_to_date_and_goes_on_later(spark, flights, send, rocketpy_server, tmp_path):
    out = tmp_path / "out"

    def run_once(wanted):
        query = flight_delays.delays_by_stream(spark, rocketpy_server.name_server, str(out), flights)
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        stored = pandas.read_parquet(out / flight_delays.PARQUET)
        pandas.testing.assert_frame_equal(stored, wanted, check_dtype=False, check_exact=True)

    run_once(TABLE)
    send(flights, [json.dumps(flight("UA", 6, 4)).encode()])
    run_once(TABLE.assign(flights=[1, 3, 2], mean_departure_delay=[None, 3.5, 1.5]))


def test_ways_that_differ_are_an_error(spark, flights, rocketpy_server, tmp_path, monkeypatch):
    monkeypatch.setattr(flight_delays, "delays_by_ranges", lambda *_: TABLE.head(2))
    with pytest.raises(DamagedDataError, match="by ranges of the folder differs from the table from the folder"):
        flight_delays.run(spark, str(tmp_path), path=str(rocketpy_server.path), topic=flights)


def test_a_source_must_be_given(spark, tmp_path):
    with pytest.raises(OptionError, match="name_server"):
        flight_delays.run(spark, str(tmp_path))


@pytest.mark.parametrize("source", [[], ["--path", "data"]], ids=["no source", "a folder"])
def test_a_stream_reads_from_a_cluster_alone(capsys, source):
    with pytest.raises(SystemExit):
        flight_delays.main(["--out", "delays", "--stream", *source])
    assert "--name-server" in capsys.readouterr().err


def test_its_program_runs_in_the_session_that_is_there(spark, flights, rocketpy_server, tmp_path, monkeypatch, capsys):
    """As it is; test_job.py gives one to spark-submit."""
    given = ["--path", rocketpy_server.path, "--topic", flights, "--out", tmp_path / "out"]
    monkeypatch.setattr("sys.argv", ["flight_delays.py", *map(str, given)])
    runpy.run_path(str(ROOT / "spark" / "flight_delays.py"), run_name="__main__")
    assert "mean_departure_delay" in capsys.readouterr().out
    assert (tmp_path / "out" / "delays.parquet" / "_SUCCESS").exists()
