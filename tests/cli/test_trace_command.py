"""`rocketpy message trace` against a real server."""

import json

from rocketpy import Message, Producer


def test_the_trace_of_a_message_is_shown_and_its_absence_explained(server, rocketpy, topic: str):
    with Producer("cli-tracer", name_servers=server.name_server, trace=True, api_timeout=60) as producer:
        msg_id = producer.send(Message(topic, b"x")).msg_id
    shown = rocketpy("message", "trace", msg_id).stdout
    assert "stored" in shown
    assert "cli-tracer" in shown
    told = json.loads(rocketpy("message", "trace", msg_id, "--json").stdout)
    assert [(one["group"], one["topic"], one["success"]) for one in told["sends"]] == [("cli-tracer", topic, True)]
    assert (told["msg_id"], told["deliveries"]) == (msg_id, [])
    missing = rocketpy("message", "trace", "0" * 32, code=3).stderr
    assert "no trace of message" in missing
    assert "trace=True" in missing
    nowhere = rocketpy("message", "trace", msg_id, "--trace-topic", "no-traces", code=3).stderr
    assert "trace topic no-traces does not exist" in nowhere
