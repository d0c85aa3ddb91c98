"""Mistakes of people who come from other command lines: the error names the option or the topic that was meant."""

from pathlib import Path

import pytest


def test_a_text_on_the_command_line_is_one_message(rocketpy, topic: str):
    rocketpy("produce", topic, "a book\nand a pen", "--tag", "paid")
    assert rocketpy("consume", topic, "--tags", "paid", "--limit", "1").stdout == "a book\nand a pen\n"


def test_a_text_that_is_too_long_for_the_name_of_a_file_is_sent(rocketpy, topic: str):
    text = "word " * 1000
    rocketpy("produce", topic, text)
    assert rocketpy("consume", topic, "--limit", "1").stdout == f"{text}\n"


def test_limit_ends_the_output(rocketpy, topic: str):
    rocketpy("produce", topic, "--order-key", "k", stdin="one\ntwo\nthree\n")
    assert rocketpy("consume", topic, "--limit", "2").stdout == "one\ntwo\n"


def test_a_text_that_is_no_message_is_refused(rocketpy, topic: str, tmp_path: Path):
    (tmp_path / "lines").write_text("one\n")
    refused = rocketpy("produce", topic, "lines", cwd=tmp_path, code=2).stderr
    assert refused.startswith("error: TEXT is the name of a file: lines\nhint: --file lines sends its lines")
    assert "TEXT must not be empty" in rocketpy("produce", topic, "", code=2).stderr
    assert "exclude each other" in rocketpy("produce", topic, "text", "--file", "lines", cwd=tmp_path, code=2).stderr
    assert rocketpy("consume", topic).stdout == ""


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("topic create x --partitions 3", "--partitions (did you mean --queues?)"),
        ("topic create x --queue 3", "--queue (did you mean --queues?)"),
        ("topic list --bootstrap-server x", "--bootstrap-server (did you mean --name-server?)"),
        ("consume x --bootstrap-server x", "--bootstrap-server (did you mean --name-server?)"),
        ("consume x --max-messages 3", "--max-messages (did you mean --count?)"),
        ("consume x --unlike 3", "--unlike"),
        ("--bootstrap-server x topic list", "--bootstrap-server (did you mean --name-server after the command?)"),
        ("--name-server x topic list", "--name-server (did you mean --name-server after the command?)"),
        ("--timeouts 3 topic list", "--timeouts (did you mean --timeout?)"),
        ("produce --topic T", "--topic (did you mean `rocketpy produce TOPIC`?)"),
        ("group reset g --to-earliest", "--to-earliest (did you mean --to earliest?)"),
        ("group reset g --to-datetime x", "--to-datetime (did you mean --to?)"),
        ("topic --list", "--list (did you mean `rocketpy topic list`?)"),
    ],
)
def test_an_option_of_another_command_line_names_the_one_here(command, line: str, meant: str):
    assert command(*line.split(), code=2).stderr.splitlines()[0] == f"error: no such option: {meant}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("topic alter x", "no such command 'alter' (create also changes a topic that exists)"),
        ("consume orders -n 2", "2 is not HOST:PORT; --count 2 limits the messages"),
        ("topic list -n 2", "2 is not HOST:PORT"),
    ],
)
def test_a_command_line_of_another_tool_is_explained(command, line: str, said: str):
    assert command(*line.split(), code=2).stderr.splitlines()[0].endswith(said)


def test_a_topic_that_a_send_creates_names_a_similar_topic(rocketpy, topic: str):
    rocketpy("produce", topic, "text")
    assert f"a topic of a similar name exists: {topic}\n" in rocketpy("produce", f"{topic}s", "text").stderr
    assert "exists" not in rocketpy("produce", "unlike-all-others", "text").stderr


def test_a_misspelt_topic_names_the_one_that_was_meant(rocketpy, topic: str):
    for verb in (["consume"], ["consume", "--group", "g"], ["topic", "describe"], ["topic", "delete", "--yes"]):
        error, hint = rocketpy(*verb, f"{topic}s", code=3).stderr.splitlines()
        assert f"{topic}s" in error
        assert hint.startswith(f"hint: did you mean {topic}? If not, `rocketpy topic list` shows the topics")


def test_a_name_after_list_names_the_command_that_shows_one(command):
    lines = command("dlq", "list", "billing", code=2).stderr.splitlines()
    assert lines[1] == "hint: `rocketpy dlq show billing` shows one"
    assert "schedule list --help" in command("schedule", "list", "report", code=2).stderr
