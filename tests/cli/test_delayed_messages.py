"""Messages that consumers get later, from the command line."""

import json


def bodies_of(lines: str) -> list[str]:
    return [json.loads(line)["body"] for line in lines.splitlines()]


def test_messages_are_delayed_by_an_option_or_by_their_line(rocketpy, topic: str):
    rocketpy("produce", topic, "--delay-level", "1", stdin="later")
    lines = [json.dumps({"body": "soon", "delay_level": 1}), json.dumps({"body": "sooner"})]
    rocketpy("produce", topic, "--format", "json", "--delay-level", "2", stdin="\n".join(lines))
    consumed = rocketpy("consume", topic, "--format", "json", "--follow", "--count", "3").stdout
    assert sorted(bodies_of(consumed)) == ["later", "soon", "sooner"]
    copy = f"{topic}-copy"
    rocketpy("topic", "create", copy)
    rocketpy("produce", copy, "--format", "json", stdin=consumed)
    assert len(bodies_of(rocketpy("consume", copy, "--format", "json").stdout)) == 3, "sent at once"


def test_messages_are_timed_by_an_option_or_by_their_line(rocketpy, topic: str):
    rocketpy("produce", topic, "--delay", "1.5", stdin="later")
    lines = [json.dumps({"body": "soon", "delay": 0.2}), json.dumps({"body": "sooner"})]
    rocketpy("produce", topic, "--format", "json", stdin="\n".join(lines))
    consumed = rocketpy("consume", topic, "--format", "json", "--follow", "--count", "3").stdout
    assert sorted(bodies_of(consumed)) == ["later", "soon", "sooner"]
    copy = f"{topic}-copy"
    rocketpy("topic", "create", copy)
    rocketpy("produce", copy, "--format", "json", stdin=consumed)
    assert len(bodies_of(rocketpy("consume", copy, "--format", "json").stdout)) == 3, "sent at once"


def test_a_message_has_at_most_one_delay(rocketpy, topic: str):
    result = rocketpy("produce", topic, "--delay-level", "1", "--delay", "5", stdin="later", code=2)
    assert "--delay-level, --delay and --deliver-at exclude each other" in result.stderr
    result = rocketpy("produce", topic, "--deliver-at", "2099-01-01T00:00:00Z", stdin="later", code=5)
    assert "TIMER_DELIVER_MS" in result.stderr
    assert "timerMaxDelaySec" in result.stderr
