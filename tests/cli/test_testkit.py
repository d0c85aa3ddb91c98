"""`rocketpy testkit`: a command with a test server of its own."""

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-P", "-m", "rocketpy", "testkit"]
RUN_SECONDS = 300


def kit(*arguments: str, command=COMMAND) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=RUN_SECONDS, check=False)


def test_command_gets_topics_settings_and_a_clock_and_its_exit_code_is_returned():
    source = """
import json, os, rocketpy, sys, urllib.request
with rocketpy.Admin(api_timeout=60) as admin, rocketpy.Producer("p", send_timeout=60, api_timeout=60) as producer:
    (broker,) = admin.brokers()
    size = admin.broker_config(broker.addresses[0])["maxMessageSize"]
    queues = [len(admin.queues(topic)) for topic in ("orders", "reminders")]
    producer.send(rocketpy.Message("reminders", b"pay", delay=3600))
    urllib.request.urlopen(os.environ["ROCKETPY_TEST_CLOCK"], b"3600")
    try:
        producer.send(rocketpy.Message("ordesr", b"x"))
    except rocketpy.TopicNotFoundError:
        unknown = "refused"
with rocketpy.Consumer("mailer", "reminders", api_timeout=60) as consumer:
    (message,) = consumer.poll(timeout=60)
print(json.dumps([queues, size, message.body.decode(), unknown, sys.argv[1:]]))
sys.exit(7)
"""
    topics = ["--topic", "orders:2", "--topic", "reminders"]
    ended = kit(*topics, "--set", "maxMessageSize=65536", "--", sys.executable, "-c", source, "--topic", "--", "x")
    assert ended.returncode == 7, ended.stderr
    assert json.loads(ended.stdout) == [[2, 4], "65536", "pay", "refused", ["--topic", "--", "x"]]


def test_command_can_start_servers_of_its_own(tmp_path):
    (tmp_path / "test_order.py").write_text("""
import rocketpy

def test_order(rocketpy_server, rocketpy_topic, rocketpy_nothing_left):
    with rocketpy_server.admin() as admin:
        assert admin.queues(rocketpy_topic)
        assert len(admin.brokers()) == 1
    with rocketpy.Admin(api_timeout=60) as outer:
        assert rocketpy_topic not in outer.topics()
        assert len(outer.brokers()) == 1
""")
    options = ["-q", "-p", "rocketpy.testing", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    ended = kit("--", sys.executable, "-m", "pytest", *options, str(tmp_path))
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_module_testkit_is_the_same_command():
    command = [sys.executable, "-m", "rocketpy.testkit"]
    ended = kit("--set", "autoCreateTopicEnable=true", "sh", "-c", "echo $NAMESRV_ADDR; exit 9", command=command)
    assert (ended.returncode, ended.stdout[:10]) == (9, "127.0.0.1:"), ended.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["--", "no-such-program"], 127, "no such command: no-such-program\nhint: check the name and PATH"),
        (["--", "/"], 126, "cannot execute /: Permission denied"),
        (["--topic", "orders:", "true"], 2, "--topic: expected NAME or NAME:QUEUES: orders:"),
        (["--topic", "a:1", "--topic", "a:2", "true"], 2, "--topic names a twice"),
        (
            ["--set", "maxMessageSizes=1", "true"],
            2,
            "unknown configuration key",
        ),
        (["sh", "-c", "kill -9 $$"], 128 + 9, ""),
    ],
    ids=["missing", "folder", "queues", "twice", "key", "killed"],
)
def test_failure_has_an_error_and_a_code_of_its_own(arguments, code, error):
    ended = kit(*arguments)
    assert ended.returncode == code, ended.stderr
    assert error in ended.stderr
    assert ended.stderr.startswith("error: ") == bool(error)


TRAPPING = """
import os, signal, sys
reader, writer = os.pipe()
os.set_blocking(writer, False)
signal.set_wakeup_fd(writer)
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: None)
print("ready", flush=True)
got = []
while signal.SIGTERM not in got:
    got += os.read(reader, 1)
    print("got", *got, flush=True)
sys.exit(5)
"""


def test_signals_are_passed_on_and_the_folder_is_removed(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    arguments = [*COMMAND, sys.executable, "-c", TRAPPING]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            assert list(tmp_path.iterdir()) != []
            for number, got in [(1, "got 1\n"), (2, "got 1 2\n"), (10, "got 1 2 10\n"), (15, "got 1 2 10 15\n")]:
                process.send_signal(number)
                assert process.stdout.readline() == got
            assert process.wait(RUN_SECONDS) == 5
        finally:
            process.kill()
    assert list(tmp_path.iterdir()) == []


def test_command_that_a_passed_on_signal_ends_gives_the_code_of_a_shell():
    arguments = [*COMMAND, "sh", "-c", "echo ready; exec sleep 600"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(RUN_SECONDS) == 128 + signal.SIGTERM
        finally:
            process.kill()


def test_ctrl_c_of_a_terminal_is_not_passed_on_because_the_terminal_sends_it_to_the_command_too():
    outside = ["setsid", sys.executable, "-c", TRAPPING]  # no terminal: signals arrive only through testkit
    terminal, end = pty.openpty()
    process = subprocess.Popen(["setsid", "--ctty", *COMMAND, *outside], stdin=end, stdout=end, stderr=end)
    os.close(end)
    with os.fdopen(terminal, "rb", buffering=0) as screen:
        shown = b""

        def wait_for(text: bytes) -> None:
            nonlocal shown
            while text not in shown:
                shown += screen.read(1000)

        try:
            wait_for(b"ready")
            os.write(terminal, b"\x03")
            wait_for(b"^C")
            process.send_signal(signal.SIGUSR1)
            wait_for(b" 10")  # the process has seen SIGINT too
            process.send_signal(signal.SIGTERM)
            wait_for(b" 15\r\n")
            assert process.wait(RUN_SECONDS) == 5
        finally:
            process.kill()
            process.wait()
    assert b"got 10 15\r\n" in shown
