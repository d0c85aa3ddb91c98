"""Push consumers whose handler threads never return: counted, logged once, and a problem of the health check."""

import logging
import threading

import pytest
from prometheus_client import CollectorRegistry
from pushing import Seen, send

import rocketpy.prometheus
from rocketpy.consuming import workers
from rocketpy.health import check
from waiting import wait_until


@pytest.fixture
def turns(monkeypatch):
    """Numbers of hung threads in each check of the watch, which runs often."""
    seen, report = [], workers.Workers._report_hung
    monkeypatch.setattr(workers, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(workers.Workers, "_report_hung", lambda self, hung: (report(self, hung), seen.append(hung)))
    return seen


def test_hung_handlers_are_counted_and_reported_until_they_return(server, topic, group, caplog, turns, monkeypatch):
    go_on, seen = threading.Event(), Seen()
    consumer = server.push_consumer(group, concurrency=2, handler_timeout=0.3, stop_timeout=60)

    @consumer.on(topic)
    def handle(message):
        seen.note(message)
        go_on.wait()

    def gauge():
        registry = CollectorRegistry()
        registry.register(rocketpy.prometheus.collector(consumer))
        return registry.get_sample_value("rocketpy_handler_hung_calls", {"group": group})

    def reports():
        return [record for record in caplog.records if "handler threads do not return" in record.getMessage()]

    with caplog.at_level(logging.WARNING, "rocketpy.client"), consumer:
        assert (gauge(), consumer.stats().stalled, check(consumer).ok) == (0, False, True)
        try:
            send(server, topic, 24)
            wait_until(lambda: 4 in turns)
            assert (gauge(), consumer.stats().hung, consumer.stats().stalled) == (4, 4, True)
            (problem,) = check(consumer).problems
            assert problem.startswith(f"PushConsumer of group {group} takes no more messages: ")
            assert "4 calls do not return" in problem
            checks = len(turns)
            wait_until(lambda: len(turns) > checks + 20)
            assert len(seen.calls) == 4, "each of the two threads is replaced once"
            stalls = [record for record in reports() if record.levelno == logging.ERROR]
            assert len(stalls) == 1
            assert f"push consumer of group {group}: 4 of 4 handler threads do not return: takes no" in caplog.text
            assert len(reports()) <= 2, "a warning when only the replacements are left"
            monkeypatch.setattr(workers, "REPORT_SECONDS", 0.0)
            consumer._member.workers._report_at = 0.0  # a minute later
            wait_until(lambda: len(reports()) > 4, "reports while it lasts")
        finally:
            go_on.set()
        wait_until(lambda: (consumer.stats().hung, consumer.stats().stalled) == (0, False))
        assert check(consumer).ok
        wait_until(lambda: len(seen.counts()) == 24, "the member takes messages again")
