"""`rocketpy user` and `rocketpy acl`: users and policies of broker and name server, and secrets that nothing shows."""

import json
import os
import pty
import re
import select
import subprocess
from pathlib import Path

import pytest
from wire import ScriptedPeer

from closed_server import USERS_ON
from rocketpy import (
    AccessDeniedError,
    Admin,
    Credentials,
    Message,
    NameServer,
    Producer,
    RefusedError,
    RequestTimeoutError,
)
from rocketpy.cli.passwords import Password, saved
from rocketpy.testing import fresh_name

CLOSED = ("--set", "authenticationEnabled=true", "--set", "authorizationEnabled=true")
PEER = {"ROCKETPY_INNER_CLIENT_AUTHENTICATION_CREDENTIALS": '{"accessKey":"servers","secretKey":"of the servers"}'}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("users")


@pytest.fixture(scope="module")
def admin_file(folder: Path, command) -> Path:
    """Credentials of an administrator that was made before the server started."""
    (folder / "store").mkdir()
    path = folder / "admin.credentials"
    command("user", "add", "admin", "--super", "--offline", str(folder / "store"), "--generate", str(path))
    return path


@pytest.fixture(scope="module")
def closed(folder: Path, admin_file: Path, new_server):
    """A server that wants a user and a policy for everything."""
    ports = ("--port", "0", "--name-server-port", "0", "--set", "mappedFileSizeCommitLog=16777216")
    server = new_server(folder, "server", str(folder / "store"), *ports, *CLOSED, env=os.environ | PEER)
    yield server
    assert server.stop() == 0, server.log.read_text()


@pytest.fixture
def as_admin(closed, admin_file: Path, command):
    """Runs a command as the administrator."""

    def run(*arguments: str, **options):
        return command("--credentials", str(admin_file), *arguments, name_server=closed.name_server, **options)

    return run


def credentials_of(path: Path) -> Credentials:
    return Credentials.from_file(path)


def test_a_user_is_made_granted_rotated_and_deleted(closed, as_admin, folder: Path):
    name, topic, file = fresh_name("user"), fresh_name("topic"), folder / "user.credentials"
    (row,) = json.loads(as_admin("user", "add", name, "--generate", str(folder / "dry"), "--dry-run", "--json").stdout)[
        :1
    ]
    assert (row["setting"], row["before"], row["after"]) == (f"user {name}", None, "normal, enabled")
    assert not (folder / "dry").exists()
    assert "no such user" in as_admin("user", "show", name, code=3).stderr

    added = as_admin("user", "add", name, "--generate", str(file), "--json")
    assert {row["state"] for row in json.loads(added.stdout)} == {"changed"}
    assert file.stat().st_mode & 0o777 == 0o600
    user = credentials_of(file)
    assert user.secret_key not in added.stdout + added.stderr
    assert "exists" in as_admin("user", "add", name, "--generate", str(folder / "again"), code=None).stderr
    assert not (folder / "again").exists()

    as_admin("topic", "create", topic, "--queues", "1")
    with Producer("producer", name_servers=closed.name_server, credentials=user, send_timeout=20) as producer:
        with pytest.raises(AccessDeniedError) as denied:
            producer.send(Message(topic, b"text"))
        hint = re.search(r"`rocketpy (acl grant \S+ \S+ \S+)`", denied.value.hint or "")
        assert hint is not None, (str(denied.value), denied.value.hint)
        as_admin("acl", "grant", name, f"Topic:{topic}", "Pub")
        producer.send(Message(topic, b"text"))

    shown = as_admin("user", "show", name).stdout
    assert f"Topic:{topic}" in shown
    assert "allow Pub" in shown
    (policy,) = json.loads(as_admin("acl", "show", name, "--json").stdout)
    assert (policy["resource"], policy["actions"], policy["differs_at"]) == (f"Topic:{topic}", ["Pub"], [])

    second = folder / "second.credentials"
    as_admin("user", "rotate", name, "--generate", str(second))
    for one in (user, credentials_of(second)):
        with Producer("producer", name_servers=closed.name_server, credentials=one) as producer:
            producer.send(Message(topic, b"text"))
    as_admin("user", "finish-rotation", name)
    with Producer("producer", name_servers=closed.name_server, credentials=user, send_timeout=20) as producer:
        with pytest.raises(AccessDeniedError):
            producer.send(Message(topic, b"text"))

    as_admin("acl", "revoke", name, f"Topic:{topic}")
    assert "no policy of" in as_admin("acl", "revoke", name, f"Topic:{topic}", code=3).stderr
    as_admin("user", "update", name, "--disable")
    assert "disabled" in as_admin("user", "list").stdout
    as_admin("user", "delete", name, "--yes")
    assert "no such user" in as_admin("user", "delete", name, "--yes", code=None).stderr


def test_dry_runs_of_a_user_change_nothing(as_admin):
    name = fresh_name("dry")
    as_admin("user", "add", name, "--password-file", "-", stdin="first\n")
    as_admin("user", "rotate", name, "--password-file", "-", stdin="second\n")
    as_admin("acl", "grant", name, "Topic:orders", "Pub")
    before = as_admin("user", "show", name, "--json").stdout
    for arguments in (
        ("user", "update", name, "--disable", "--super"),
        ("user", "finish-rotation", name),
        ("user", "rotate", name, "--generate", "-"),
        ("user", "delete", name),
        ("acl", "grant", name, "Topic:orders", "Sub"),
        ("acl", "revoke", name, "Topic:orders"),
    ):
        rows = json.loads(as_admin(*arguments, "--dry-run", "--json").stdout)
        assert {row["state"] for row in rows} == {"would change"}, arguments
    assert as_admin("user", "show", name, "--json").stdout == before


def test_an_administrator_generates_its_own_password_and_continues_with_it(closed, as_admin, command, folder: Path):
    name, files = fresh_name("own"), [folder / f"own-{number}" for number in range(2)]
    as_admin("user", "add", name, "--super", "--generate", str(files[0]))

    def run(file: Path, *arguments: str, code: int = 0):
        return command("--credentials", str(file), *arguments, name_server=closed.name_server, code=code)

    changed = run(files[0], "user", "update", name, "--generate", str(files[1]), "--json")
    assert [row["state"] for row in json.loads(changed.stdout)] == ["changed", "changed"]
    assert str(files[1]) in changed.stderr
    run(files[0], "user", "list", code=5)
    run(files[1], "user", "delete", name, "--yes")


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [
        (RequestTimeoutError("no answer", may_have_been_applied=True), True),
        (KeyboardInterrupt(), True),
        (RequestTimeoutError("not sent"), False),
        (RefusedError("denied"), False),
    ],
)
@pytest.mark.parametrize("target", ["a file", "-"])
def test_a_generated_password_is_lost_only_if_nothing_was_applied(tmp_path, capsys, target, error, is_kept):
    file = tmp_path / "new.credentials" if target == "a file" else Path(target)
    with pytest.raises(type(error)), saved("billing", Password("the new secret", file), as_json=False):
        raise error
    shown = capsys.readouterr()
    if target == "a file":
        assert file.exists() is is_kept
        assert (str(file) in shown.err.replace("\n", "")) is is_kept
    else:
        assert ("secretKey=the new secret" in shown.out) is is_kept
    assert ("may have been changed" in shown.err) is is_kept


def test_commands_without_a_user_or_with_another_secret_are_refused_with_the_way_out(closed, command, folder: Path):
    def refused(*arguments: str) -> str:
        return command(*arguments, "topic", "list", name_server=closed.name_server, code=5).stderr

    assert "--credentials FILE" in refused()
    wrong = folder / "wrong.credentials"
    wrong.write_text("accessKey=admin\nsecretKey=of somebody else\n")
    assert "other users can read" in command("--credentials", str(wrong), "topic", "list", code=2).stderr
    wrong.chmod(0o600)
    text = refused("--credentials", str(wrong))
    assert "secret of the user" in text
    assert "of somebody else" not in text


def test_a_password_comes_from_a_file_standard_input_or_a_terminal(
    closed, as_admin, admin_file, executable, folder: Path
):
    def works(name: str, password: str) -> bool:
        with Admin(closed.name_server, credentials=Credentials(name, password), api_timeout=20) as admin:
            try:
                admin.topics()
            except AccessDeniedError:
                return False
        return True

    name = fresh_name("asked")
    file = folder / "password"
    file.write_text("from a file\n")
    as_admin("user", "add", name, "--super", "--password-file", str(file))
    assert works(name, "from a file")
    as_admin("user", "update", name, "--password-file", "-", stdin="from a pipe\n")
    assert works(name, "from a pipe")
    assert not works(name, "from a file")
    assert "--password-file" in as_admin("user", "update", name, "--password", code=2).stderr

    arguments = [*executable, "--credentials", str(admin_file), "user", "update", name, "--password"]
    output = on_a_terminal([*arguments, "-n", closed.name_server], ["typed", "typed"])
    assert works(name, "typed"), output
    assert "typed" not in output
    assert "passwords differ" in on_a_terminal([*arguments, "-n", closed.name_server], ["typed", "mistyped"])
    as_admin("user", "delete", name, "--yes")


def on_a_terminal(arguments: list[str], answers: list[str]) -> str:
    """Runs a command on a terminal that answers each question for a password. Returns its output."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(arguments, stdin=follower, stdout=follower, stderr=follower, start_new_session=True)
    os.close(follower)
    shown, asked = b"", 0
    try:
        while select.select([leader], [], [], 120)[0]:
            try:
                shown += os.read(leader, 4096)
            except OSError:  # the command has ended
                break
            questions = shown.count(b"password: ") + shown.count(b"again: ")
            if questions > asked and asked < len(answers):
                os.write(leader, answers[asked].encode() + b"\n")
                asked += 1
    finally:
        os.close(leader)
        process.kill()
        process.wait()
    return shown.decode(errors="replace")


def test_a_lock_out_is_undone_while_the_server_is_stopped(folder: Path, admin_file: Path, closed, command):
    store = str(folder / "store")
    running = command("user", "add", "admin", "--super", "--offline", store, "--generate", "-", code=None)
    assert running.returncode != 0
    assert "secretKey" not in running.stdout
    other = folder / "other"
    other.mkdir()

    def add(place: Path, password: str, *options: str, code: int = 0):
        arguments = ("user", "add", "root", "--offline", str(place), "--password-file", "-", "--json", *options)
        return command(*arguments, stdin=f"{password}\n", code=code)

    add(other, "first", "--super")
    (change,) = json.loads(add(other, "second").stdout)
    assert (change["before"], change["after"]) == ("former password", "normal, enabled")
    users = other / "config" / "users.json"
    assert users.stat().st_mode & 0o777 == 0o600
    (change,) = json.loads(add(users, "third").stdout)
    assert (change["server"], change["before"]) == (str(users), "former password")
    assert "no such store or users file" in add(other / "none", "x", code=3).stderr


def test_a_user_is_made_offline_in_the_file_of_a_name_server(folder: Path, command):
    users = folder / "new.json"
    command("user", "add", "root", "--super", "--offline", str(users), "--password-file", "-", stdin="first\n")
    with NameServer(port=0, settings={**USERS_ON, "authConfigPath": str(users)}) as server:
        with Admin(server.name_server, credentials=Credentials("root", "first")) as admin:
            assert admin.brokers() == []
        with Admin(server.name_server, credentials=Credentials("root", "another")) as stranger:
            with pytest.raises(AccessDeniedError):
                stranger.brokers()


def test_hostile_names_are_refused_and_never_printed(as_admin):
    for arguments in (
        ("user", "add", "a\x1b[2J"),
        ("acl", "grant", "admin", "Topic:a\x1b[2J", "Pub"),
        ("acl", "grant", "x\ny", "*", "All"),
    ):
        options = ("--password-file", "-") if arguments[0] == "user" else ()
        refused = as_admin(*arguments, *options, stdin="password\n", code=None)
        assert refused.returncode != 0
        assert "\x1b" not in refused.stdout + refused.stderr
    assert "the actions are" in as_admin("acl", "grant", "admin", "*", "Publish", code=2).stderr
    assert "not a resource" in as_admin("acl", "grant", "admin", "orders", "Pub", code=2).stderr


HOSTILE = "a\x1b[2J\n\u202eb\x9b"
"""Text that clears a terminal, breaks lines and turns the direction of text."""
CLUSTER_INFO, LIST_USERS, LIST_POLICIES = 106, 3005, 3010


def hostile_cluster(address: str) -> tuple[dict, bytes]:
    broker = {"cluster": HOSTILE, "brokerName": HOSTILE, "brokerAddrs": {"0": address}}
    return {}, json.dumps({"brokerAddrTable": {HOSTILE: broker}, "clusterAddrTable": {HOSTILE: [HOSTILE]}}).encode()


def hostile_users(_: str) -> tuple[dict, bytes]:
    user = {"username": HOSTILE, "password": HOSTILE, "userType": HOSTILE, "userStatus": HOSTILE}
    return {}, json.dumps([user]).encode()


def hostile_policies(_: str) -> tuple[dict, bytes]:
    entry = {"resource": HOSTILE, "actions": [HOSTILE], "decision": HOSTILE, "sourceIps": [HOSTILE]}
    policies = [{"policyType": HOSTILE, "entries": [entry]}]
    return {}, json.dumps([{"subject": f"User:{HOSTILE}", "policies": policies}]).encode()


def test_hostile_names_of_a_server_do_not_reach_the_terminal(executable):
    answers = {CLUSTER_INFO: hostile_cluster, LIST_USERS: hostile_users, LIST_POLICIES: hostile_policies}
    with ScriptedPeer(answers, lambda _: None) as peer:
        for arguments in (("user", "list"), ("user", "show", HOSTILE), ("acl", "list"), ("acl", "show", HOSTILE)):
            shown = on_a_terminal([*executable, *arguments, "-n", peer.address], [])
            plain = re.sub(r"\x1b\[[0-9;]*m|\r\n", "", shown)  # colours, and ends of lines
            assert re.search(r"a\\x1b\[2J\\n\\u202eb\\x9b", plain), (arguments, plain)
            assert plain.isprintable(), (arguments, plain)


def test_unknown_user_has_one_exit_code_in_all_commands(as_admin):
    name = fresh_name("nobody")
    for arguments in (
        ("user", "show", name),
        ("user", "update", name, "--disable"),
        ("user", "delete", name, "--yes"),
        ("user", "finish-rotation", name),
        ("acl", "show", name),
        ("acl", "grant", name, "Topic:orders", "Pub"),
        ("acl", "revoke", name, "--all"),
    ):
        assert f"no such user: {name}" in as_admin(*arguments, code=3).stderr, arguments
