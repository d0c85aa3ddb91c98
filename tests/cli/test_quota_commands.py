"""`rocketpy quota`: limits are set, shown and removed at every master."""

import json

from rocketpy.testing import fresh_name


def test_a_quota_is_set_shown_replaced_and_removed(rocketpy, server):
    def rows() -> list[dict]:
        return [row for row in json.loads(rocketpy("quota", "list", "--json").stdout) if row["name"] == name]

    name = fresh_name()
    limits = ("--send-messages", "100", "--pull-bytes", "2000")
    (row,) = json.loads(rocketpy("quota", "set", "topic", name, *limits, "--dry-run", "--json").stdout)
    assert (row["send_messages"], row["pull_bytes"], row["before"], row["changed"]) == (100, 2000, None, False)
    assert rows() == []
    (row,) = json.loads(rocketpy("quota", "set", "topic", name, *limits, "--json").stdout)
    assert row["changed"] is True
    (row,) = rows()
    assert {key: value for key, value in row.items() if value} == {
        "broker_name": row["broker_name"], "scope": "topic", "name": name, "send_messages": 100, "pull_bytes": 2000,
    }  # fmt: skip
    shown = rocketpy("quota", "set", "topic", name, "--send-bytes", "500", "--broker", row["broker_name"]).stdout
    assert "send_messages 100, pull_bytes 2000" in shown
    assert (rows()[0]["send_messages"], rows()[0]["send_bytes"]) == (None, 500)
    assert "send_bytes 500" in rocketpy("quota", "list").stdout

    (row,) = json.loads(rocketpy("quota", "remove", "topic", name, "--dry-run", "--json").stdout)
    assert row["changed"] is False
    rocketpy("quota", "remove", "topic", name)
    assert f"no quota of topic {name} is set" in rocketpy("quota", "remove", "topic", name, code=None).stderr


def test_wrong_quotas_are_refused_with_the_way_out(rocketpy, server):
    for arguments, error in [
        (("topic", "TBW102", "--send-bytes", "1"), "belongs to the system"),
        (("address", "10.0.0.0/99", "--send-bytes", "1"), "an IP address, a network such as 10.0.0.0/8"),
        (("topic", "orders", "--send-bytes", "1", "--broker", "nowhere"), "no master of this name or address: nowhere"),
    ]:
        assert error in rocketpy("quota", "set", *arguments, code=None).stderr
