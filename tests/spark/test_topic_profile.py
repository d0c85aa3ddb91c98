"""The job `topic_profile`, on real flights."""

import collections

import pytest

import spark_jobs
from rocketpy.spark import picture
from rocketpy.spark.topic_profile import main
from rocketpy.testing import fresh_name


@pytest.fixture(scope="module")
def flights(rocketpy_server):
    topic = fresh_name("profiled")
    return topic, spark_jobs.send_flights(rocketpy_server, topic)


def test_a_profile_is_that_of_the_flights(spark, flights, rocketpy_server, tmp_path, capsys):
    topic, receipts = flights
    path = str(rocketpy_server.path)
    sent = spark_jobs.flights()
    out = tmp_path / "profile"
    code, (profile,) = spark_jobs.run(main, capsys, "--topic", topic, "--path", path, "--top", 5, "--out", out)
    assert code == 0
    carriers = collections.Counter(sent.carriers)
    aircraft = collections.Counter(sent.aircraft)
    queues = collections.Counter(one.queue.queue_id for one in receipts)
    keys = collections.Counter(key for pair in zip(sent.aircraft, sent.numbers, strict=True) for key in set(pair))
    assert profile["messages"] == spark_jobs.FLIGHTS
    assert (profile["tags"], profile["share_of_top_tag"]) == (
        len(carriers),
        carriers.most_common(1)[0][1] / len(receipts),
    )
    assert profile["order_keys"] == len(aircraft)
    assert profile["top_order_key"] == min(aircraft, key=lambda one: (-aircraft[one], one))
    assert profile["keys"] == len(keys)
    assert profile["largest_queue_to_mean"] == max(queues.values()) * len(queues) / len(receipts)
    assert sum(row["messages"] for row in profile["tables"]["hours"]) == len(receipts)
    sizes = (
        spark.read.format("rocketpy")
        .options(topic=topic, columns="size_bytes", path=path)
        .load()
        .toPandas()["size_bytes"]
    )
    assert profile["bytes"] == sizes.sum()
    assert profile["half_up_to"] == 1 << (int(sizes.quantile(0.5, interpolation="lower")) - 1).bit_length()
    assert profile["largest_bytes"] == sizes.max()
    stored = {row.tag: row.messages for row in spark.read.parquet(str(out / "tags.parquet")).collect()}
    assert stored == carriers
    assert (out / f"{topic}.png").read_bytes().startswith(b"\x89PNG")


def test_without_keys_or_matplotlib_the_rest_is_there(spark, flights, rocketpy_server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(picture, "find_spec", lambda _: None)
    out = tmp_path / "profile"
    assert main(["--topic", flights[0], "--path", str(rocketpy_server.path), "--no-keys", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "largest tags of" in printed.out
    assert "order key" not in printed.out
    assert "no picture" in printed.err
    assert sorted(one.name for one in out.iterdir()) == [
        f"{name}.parquet" for name in ("hours", "queues", "sizes", "tags")
    ]


def test_nothing_to_profile_a_taken_folder_and_a_missing_source_are_named(
    topic, rocketpy_server, tmp_path, capsys, spark
):
    path = str(rocketpy_server.path)
    assert main(["--topic", topic, "--path", path]) == 0
    assert "no messages" in capsys.readouterr().out
    assert main(["--topic", topic, "--path", path, "--out", str(tmp_path)]) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["--topic", topic]) == 2
    assert "--path or --name-server" in capsys.readouterr().err
    assert main(["--topic", "nowhere", "--path", path]) == 3
    assert "error: " in capsys.readouterr().err
