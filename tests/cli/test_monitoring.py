"""Alert rules and the Grafana board: their metrics exist, and Prometheus takes rules and expressions."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES, BOARD = ROOT / "deploy/prometheus/alerts.yml", ROOT / "deploy/grafana/rocketpy.json"
METRIC = re.compile(r"\b(?:rocketmq|rocketpy)_\w+")
CASES = """\
rule_files: [alerts.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: up{job="rocketpy"}
        values: 1 1 0 0 0
      - series: rocketmq_consumer_lag_messages{consumer_group="g", topic="t"}
        values: 5 5 5 5 5 5 5 5
      - series: rocketmq_consumer_lag_messages{consumer_group="online", topic="t"}
        values: 5 5 5 5 5 5 5 5
      - series: rocketmq_consumer_connections{consumer_group="online"}
        values: 1 1 1 1 1 1 1 1
      - series: rocketpy_broker_replica_lag_bytes{replica="127.0.0.1:1"}
        values: 0 100000000 100000000 100000000
    alert_rule_test:
      - {eval_time: 3m, alertname: RocketPyBrokerGone, exp_alerts: [{exp_labels: {job: rocketpy, severity: critical},
         exp_annotations: {summary: broker gone, steps: docs/operations/master-dead.md}}]}
      - {eval_time: 1m, alertname: RocketPyBrokerGone, exp_alerts: []}
      - {eval_time: 6m, alertname: RocketPyNoConsumer, exp_alerts: [
         {exp_labels: {consumer_group: g, topic: t, severity: warning},
         exp_annotations: {summary: no consumer, steps: docs/operations/consumer-stuck.md}}]}
      - {eval_time: 3m, alertname: RocketPySlaveBehind, exp_alerts: [
         {exp_labels: {replica: "127.0.0.1:1", severity: warning},
         exp_annotations: {summary: slave behind, steps: docs/operations/slave-behind.md}}]}
"""


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return group["rules"]


def expressions_of_the_board() -> list[str]:
    return [target["expr"] for panel in json.loads(BOARD.read_text())["panels"] for target in panel["targets"]]


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("`promtool` is missing: install prometheus")
    return found


def test_rules_are_those_of_the_runbook():
    text = (ROOT / "docs/operations/alerts.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| `(.+?)` \| (\d+ m) \|", text, re.MULTILINE)
    shipped = [(rule["annotations"]["summary"], rule["expr"], rule["for"].replace("m", " m")) for rule in rules()]
    assert shipped == rows
    for rule in rules():
        steps = rule["annotations"]["steps"]
        assert not steps.startswith("docs/") or (ROOT / steps).is_file()


def test_metrics_of_rules_and_board_are_exported():
    listed = {*METRIC.findall((ROOT / "docs/metrics.md").read_text())}
    expressions = [rule["expr"] for rule in rules()] + expressions_of_the_board()
    used = {re.sub(r"_(?:bucket|sum|count)$", "", name) for one in expressions for name in METRIC.findall(one)}
    assert len(used) > 20
    assert used <= listed


def test_prometheus_fires_the_rules(promtool: str, tmp_path: Path):
    shutil.copy(RULES, tmp_path)
    (tmp_path / "cases.yml").write_text(CASES)
    ended = subprocess.run([promtool, "test", "rules", "cases.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (tmp_path / "cases.yml").write_text(CASES.replace("eval_time: 1m, ", "eval_time: 4m, "))
    assert subprocess.run([promtool, "test", "rules", "cases.yml"], cwd=tmp_path, capture_output=True).returncode == 1


def test_prometheus_parses_the_expressions_of_the_board(promtool: str, tmp_path: Path):
    file = tmp_path / "board.yml"
    records = [
        {"record": f"panel:{number}", "expr": one.replace("$cluster", ".*").replace("$broker", ".*")}
        for number, one in enumerate(expressions_of_the_board())
    ]
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": records}]}))
    ended = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
