"""`rocketpy.prometheus`: metrics of every kind of client, as prometheus_client prints and parses them."""

import asyncio
import re

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import rocketpy
from rocketpy.prometheus import FAMILIES, collector
from rocketpy.testing import fresh_name
from waiting import wait_until

UNITS = ("_messages", "_bytes", "_seconds", "_ratio", "_pulls", "_callbacks", "_calls", "_queues")


def scrape(*clients):
    """Samples by name and labels, parsed from the page."""
    registry = CollectorRegistry(auto_describe=True)
    registry.register(collector(*clients))
    page = generate_latest(registry).decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def labelled(name, **labels):
    return (name, *sorted(labels.items()))


def test_names_end_in_units_and_counters_in_total(rocketpy_server):
    registry = CollectorRegistry(auto_describe=True)
    registry.register(collector(rocketpy_server.push_consumer("unstarted")))
    names = re.findall(r"^# TYPE (\w+) (\w+)$", generate_latest(registry).decode(), re.MULTILINE)
    assert dict(names) == {name: kind for name, (kind, _) in FAMILIES.items()}
    assert not [name for name in FAMILIES if not name.endswith(UNITS)]


def test_producers_of_a_group_are_added_up(rocketpy_server, rocketpy_topic):
    group = fresh_name("scraped")

    async def main():
        waiting = rocketpy.AsyncProducer(group, name_servers=rocketpy_server.name_servers)
        with rocketpy_server.producer(group) as producer:
            producer.send_many([rocketpy.Message(rocketpy_topic, b"12345")] * 3)
            producer.send_oneway(rocketpy.Message(rocketpy_topic, b"12"))
            before = scrape(producer, waiting)  # one that was not started has no metrics
            async with waiting:
                await waiting.send(rocketpy.Message(rocketpy_topic, b"1"))
                return before, scrape(producer, waiting), producer.stats(), waiting.stats()

    before, after, *stats = asyncio.run(main())
    messages = "rocketpy_producer_messages_total"
    assert before[labelled(messages, group=group, outcome="sent")] == 3
    assert after[labelled(messages, group=group, outcome="sent")] == 4
    assert after[labelled("rocketpy_producer_bytes_total", group=group, outcome="sent")] == 16
    assert after[labelled(messages, group=group, outcome="oneway")] == 1
    times = [one.latency for one in stats]
    name = "rocketpy_producer_request_seconds"
    assert after[labelled(f"{name}_count", group=group)] == sum(one.count for one in times)
    assert after[labelled(f"{name}_sum", group=group)] == sum(one.total for one in times)
    assert after[labelled(name, group=group, quantile="0.99")] == max(one.p99 for one in times)


def test_consumers_show_the_lag_of_each_queue(rocketpy_server, producer, rocketpy_topic):
    group, other = fresh_name("scraped"), fresh_name("scraped")
    queue = producer.queues(rocketpy_topic)[0]
    producer.send_many([rocketpy.Message(rocketpy_topic, b"12345")] * 10, queue=queue)

    async def main():
        servers = {"name_servers": rocketpy_server.name_servers}
        async with rocketpy.AsyncConsumer(other, rocketpy_topic, **servers) as waiting:
            assert len(await waiting.poll(10, timeout=60)) == 10
            with rocketpy_server.consumer(group, rocketpy_topic) as consumer:
                assert len(consumer.poll(4, timeout=60)) == 4
                return scrape(consumer, waiting)

    page = asyncio.run(main())
    labels = {"topic": queue.topic, "broker": queue.broker_name, "queue": str(queue.queue_id)}
    assert page[labelled("rocketpy_consumer_lag_messages", group=group, **labels)] == 6
    assert page[labelled("rocketpy_consumer_lag_messages", group=other, **labels)] == 0
    assert page[labelled("rocketpy_consumer_received_messages_total", group=group)] == 4
    assert page[labelled("rocketpy_consumer_received_messages_total", group=other)] == 10
    assert page[labelled("rocketpy_consumer_assigned_queues", group=group)] == 4


def test_a_push_consumer_shows_outcomes_and_times_of_handlers(rocketpy_server, producer, rocketpy_topic):
    group = fresh_name("scraped")
    producer.send_many([rocketpy.Message(rocketpy_topic, b"%d" % number) for number in range(4)])
    consumer = rocketpy_server.push_consumer(group)

    @consumer.on(rocketpy_topic)
    def handle(message):
        if message.body == b"3":
            raise rocketpy.Reject

    with consumer:
        wait_until(lambda: consumer.stats().dead == 1 and consumer.stats().lag == 0)
        wait_until(lambda: len(consumer.stats().queues) == 5, "the queue of the retry topic too")
        page = scrape(consumer)
    handled = "rocketpy_handler_messages_total"
    assert page[labelled(handled, group=group, outcome="consumed")] == 3
    assert page[labelled(handled, group=group, outcome="failed")] == 1
    assert page[labelled("rocketpy_handler_dead_messages_total", group=group)] == 1
    assert page[labelled("rocketpy_consumer_assigned_queues", group=group)] == 4, "none of the retry topic"
    assert page[labelled("rocketpy_handler_seconds_count", group=group)] == 4
    times = consumer.stats().handling
    assert page[labelled("rocketpy_handler_seconds", group=group, quantile="0.9")] == times.p90
    assert scrape(consumer)[labelled(handled, group=group, outcome="consumed")] == 3, "after the stop too"


def test_objects_without_statistics_are_refused(rocketpy_server, producer):
    for other in (rocketpy_server, rocketpy_server.admin(), rocketpy.AsyncAdmin()):
        with pytest.raises(TypeError, match=f"^{type(other).__name__} has no metrics .* pass producers and consumers"):
            collector(producer, other)
    with pytest.raises(TypeError, match="Producer is a class"):
        collector(rocketpy.Producer)


def test_a_client_that_is_given_twice_counts_once(producer, rocketpy_topic):
    producer.send(rocketpy.Message(rocketpy_topic, b"A-17"))
    assert (
        scrape(producer, producer)[labelled("rocketpy_producer_messages_total", group=producer.group, outcome="sent")]
        == 1
    )


def test_a_registry_takes_one_collector(producer):
    registry = CollectorRegistry(auto_describe=True)
    registry.register(collector(producer))
    with pytest.raises(ValueError, match="rocketpy_producer_messages_total"):
        registry.register(collector(producer))
