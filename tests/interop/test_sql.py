"""SQL92 filters of Python's consumers at Apache's brokers: those that filter, and those that do not."""

from pathlib import Path

import pytest

import rocketpy
from apache_processes import apache_cluster
from peers import Java
from sdk import fresh, messages, send


def test_python_chooses_by_sql_at_a_broker_that_filters(apache_address: str):
    topic = fresh("sql")
    for tag in ("TagA", "TagB"):
        send(apache_address, messages(topic, 5, tag, tag))
    expression = "origin = 'python' AND TAGS <> 'TagB' AND KEYS NOT IN ('TagA-3') AND missing IS NULL"
    with rocketpy.Consumer(
        fresh("choosing"), topic, name_servers=[apache_address], sql=expression, api_timeout=60
    ) as consumer:
        bodies: list[bytes] = []
        while len(bodies) < 4 or any(consumer.lag().values()):
            bodies += [message.body for message in consumer.poll(timeout=0.2)]
    assert sorted(bodies) == [b"TagA-0", b"TagA-1", b"TagA-2", b"TagA-4"]


def test_a_broker_that_does_not_filter_is_named_with_the_way_out(java: Java, home: Path):
    topic = fresh("refused")
    with apache_cluster(java, home / "apache", topics=[topic]) as address:
        with pytest.raises(rocketpy.NotSupportedError, match="does not filter by SQL92") as refused:
            rocketpy.Consumer(fresh("choosing"), topic, name_servers=[address], sql="a > 3", api_timeout=60)
        assert "enablePropertyFilter=true" in (refused.value.hint or "")
        assert not refused.value.retryable
        later = fresh("later")
        with rocketpy.Consumer(
            fresh("choosing"), later, name_servers=[address], sql="a > 3", allow_missing_topic=True
        ) as consumer:
            with rocketpy.Admin(address, api_timeout=60) as admin:
                admin.create_topic(later, queues=1)
            with pytest.raises(rocketpy.NotSupportedError, match="does not filter by SQL92"):
                next(consumer.batches())
