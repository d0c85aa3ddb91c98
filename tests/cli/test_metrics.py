"""Metrics and health of a server, as Prometheus, an orchestrator and `rocketpy ping` read them."""

import json
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from rocketpy import Admin, Message, Producer
from waiting import wait_until

PROM = ("--set", "metricsExporterType=PROM", "--set", "metricsPromExporterPort=0")


def get(address: str, path: str, accept: str = "*/*") -> tuple[int, str]:
    host, port = address.rsplit(":", 1)
    with closing(HTTPConnection(host, int(port), timeout=60)) as connection:
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_metrics_are_valid_in_both_formats_and_name_what_was_sent(start, tmp_path: Path):
    server = start("server", str(tmp_path / "store"), "--port", "0", "--name-server-port", "0", *PROM)
    metrics = server.ready["metrics"]
    with Producer("senders", name_servers=server.name_server) as producer:
        producer.send(Message("orders", b"text"))
        status, text = get(metrics, "/metrics", "application/openmetrics-text")
        assert status == 200
        families = {family.name: family for family in open_metrics(text)}
        (sample,) = families["rocketmq_messages_in"].samples
        assert sample.name == "rocketmq_messages_in_total"
        assert (sample.labels["topic"], sample.value) == ("orders", 1)
        (connection,) = families["rocketmq_producer_connections"].samples
        assert connection.labels["protocol_type"] == "remoting"
        plain = {family.name for family in plain_text(get(metrics, "/")[1])}
    assert plain >= {"rocketmq_messages_in", "rocketmq_rpc_latency_milliseconds", "target_info"}


def test_ping_and_readyz_agree_and_name_the_failing_check(start, command, tmp_path: Path):
    names = start("namesrv", "--port", "0").name_server
    pair = f"--name-server {names} --broker-name pair --port 0".split()
    master = start("broker", str(tmp_path / "a"), *pair, *PROM, "--role", "ASYNC_MASTER", "--set", "haListenPort=0")
    slave = start("broker", str(tmp_path / "b"), *pair, *PROM, "--role", "slave", "--broker-id", "1")
    for server in (master, slave):
        wait_until(lambda server=server: get(server.ready["metrics"], "/readyz")[0] == 200, "the broker is ready")
    rows = json.loads(command("ping", "--json", name_server=names).stdout)
    assert [(row["broker"], row["ready"], row["alive"], row["problems"]) for row in rows] == [
        (server.ready["broker"], True, True, None) for server in (master, slave)
    ]

    with Admin(names) as admin:
        admin.update_broker_config(master.ready["broker"], {"brokerPermission": 4})
        (problem,) = admin.ping(master.ready["broker"]).problems
    assert problem.startswith("draining: ")
    assert get(master.ready["metrics"], "/readyz") == (503, f"{problem}\n")
    assert get(master.ready["metrics"], "/livez") == (200, "alive\n")
    failed = command("ping", "--broker", master.ready["broker"], name_server=names, code=4)
    assert "draining" in failed.stdout
    assert "broker not ready" in failed.stderr

    master.process.kill()
    wait_until(lambda: get(slave.ready["metrics"], "/readyz")[0] == 503, "the slave has lost its master")
    assert get(slave.ready["metrics"], "/readyz")[1].startswith("replication: ")
    failed = command("ping", "--broker", master.ready["broker"], name_server=names, code=4)
    assert "broker not ready" in failed.stderr
