"""Apache's clients in Java, Go and C++, and mqadmin, at a server that wants a user and a policy for everything."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from closed_server import ADMIN, USERS_ON, ClosedServer
from peers import Cpp, Drivers, Go, Java, administer, finish, set_up_client_4_9, set_up_java, start
from rocketpy import Consumer, Credentials, Message, Start
from rocketpy.testing import SMALL_FILES
from sdk import fresh

COUNT = 5
DENIED = "has no permission to access"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClosedServer]:
    """A server that clients of Apache can create topics at, if their user may."""
    folder = tmp_path_factory.mktemp("closed")
    settings = {**SMALL_FILES, **USERS_ON, "autoCreateTopicEnable": True}
    with ClosedServer(folder / "store", settings=settings) as server:
        yield server


@pytest.fixture
def topic(server: ClosedServer) -> str:
    topic = fresh("secured")
    with server.admin() as admin:
        admin.create_topic(topic, queues=2)
    return topic


def client_of(server: ClosedServer, topic: str, group: str) -> Credentials:
    """A user that may send to a topic, and read it in a group."""
    return server.new_user((f"Topic:{topic}", "Pub,Sub"), (f"Group:{group}", "Sub"))


def as_user(java: Java, user: Credentials) -> Java:
    """A JVM whose clients are a user."""
    keys = {"accessKey": user.access_key, "secretKey": user.secret_key}
    return replace(java, tuning=(*java.tuning, *(f"-Drocketpy.test.{key}={value}" for key, value in keys.items())))


def bodies(server: ClosedServer, topic: str) -> list[str]:
    """Bodies of all messages of a topic, as the administrator reads them."""
    found: list[str] = []
    options = {"name_servers": server.name_server, "credentials": ADMIN, "start": Start.EARLIEST}
    with Consumer(fresh("reader"), topic, **options) as consumer:
        for batch in consumer.batches(idle_timeout=60):
            found += [message.body.decode() for message in batch]
            if len(found) >= COUNT:
                break
    return sorted(found)


@pytest.mark.parametrize("version", ["5.5.0", "4.9.8"])
def test_java_sends_and_reads_what_its_user_may(server: ClosedServer, home: Path, topic: str, version: str):
    plain = set_up_client_4_9() if version == "4.9.8" else set_up_java()
    group = fresh("java-user")
    java = as_user(plain, client_of(server, topic, group))

    def command(*arguments: str) -> list[dict]:
        return finish(start(java.command("Driver", home, *arguments)))

    sent = command("send", server.name_server, topic, str(COUNT), "signed", "TagA")
    assert [one["status"] for one in sent] == ["SEND_OK"] * COUNT
    read = command("push", server.name_server, topic, str(COUNT), group)
    assert sorted(one["body"] for one in read) == bodies(server, topic) == [f"signed-{i}" for i in range(COUNT)]

    # The client does not tell why a name server denies it the route.
    reader = server.new_user((f"Topic:{topic}", "Sub"))
    for user, says in ((Credentials("nobody", "x"), "No route info of this topic"), (reader, DENIED)):
        refused = as_user(plain, user).command("Driver", home, "send", server.name_server, topic, "1", "x")
        process = start(refused)
        _, errors = process.communicate(timeout=600)
        assert process.returncode != 0
        assert says in errors
    assert len(bodies(server, topic)) == COUNT


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch):
    """Names the user of the drivers in Go and C++."""

    def give(user: Credentials) -> None:
        monkeypatch.setitem(os.environ, "ROCKETPY_TEST_ACCESS_KEY", user.access_key)
        monkeypatch.setitem(os.environ, "ROCKETPY_TEST_SECRET_KEY", user.secret_key)

    return give


@pytest.mark.parametrize("language", ["go", "cpp"])
def test_go_and_cpp_send_and_read_what_their_user_may(
    server: ClosedServer, home: Path, topic: str, language: str, environment, request: pytest.FixtureRequest
):
    peer: Go | Cpp = request.getfixturevalue(language)
    group = fresh(f"{language}-user")
    environment(client_of(server, topic, group))
    assert len(peer.drive(home, "send", server.name_server, topic, str(COUNT), "signed", "TagA")) == COUNT
    read = peer.drive(home, "push", server.name_server, topic, str(COUNT), group, "*")
    assert sorted(one["body"] for one in read) == bodies(server, topic) == [f"signed-{i}" for i in range(COUNT)]

    environment(server.new_user())
    process = peer.start_driver(home, "send", server.name_server, topic, "1", "x", "TagA")
    process.communicate(timeout=600)
    assert process.returncode != 0
    assert len(bodies(server, topic)) == COUNT


@pytest.fixture(scope="module")
def tool(server: ClosedServer, java: Java):
    """Runs a command of mqadmin as the administrator; returns what it prints."""
    own = as_user(java, ADMIN)
    config = Drivers.of(own).home / "conf" / "tools.yml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(f"accessKey: {ADMIN.access_key}\nsecretKey: {ADMIN.secret_key}\n")

    def run(*command: str) -> str:
        return "".join(administer(own, server.name_server, *command))

    return run


def test_mqadmin_makes_users_and_policies(server: ClosedServer, tool, topic: str):
    name, broker = fresh("joe"), server.broker
    assert "success" in tool("createUser", "-b", broker, "-u", name, "-p", "first secret", "-t", "Normal")
    assert name in tool("listUser", "-b", broker)
    assert "first secret" in tool("getUser", "-b", broker, "-u", name)  # an administrator on the machine itself
    resource = f"Topic:{topic}"
    created = tool("createAcl", "-b", broker, "-s", f"User:{name}", "-r", resource, "-a", "Pub", "-d", "Allow")
    assert "success" in created
    with server.producer(fresh("p"), credentials=Credentials(name, "first secret")) as producer:
        producer.send(Message(topic, b"text"))
    assert "Pub" in tool("getAcl", "-b", broker, "-s", f"User:{name}")
    assert "success" in tool(
        "updateAcl", "-b", broker, "-s", f"User:{name}", "-r", resource, "-a", "Sub", "-d", "Allow"
    )
    with server.admin() as admin:
        [policy] = admin.policies(name)
        assert (policy.resource, policy.actions, policy.differs_at) == (resource, ("Sub",), ())
    assert name in tool("listAcl", "-b", broker, "-s", name)
    assert "success" in tool("deleteAcl", "-b", broker, "-s", f"User:{name}", "-r", resource)
    assert "success" in tool("updateUser", "-b", broker, "-u", name, "-p", "second secret")
    assert "success" in tool("deleteUser", "-b", broker, "-u", name)
    with server.admin() as admin:
        assert admin.user(name) is None


def test_mqadmin_copies_users_and_policies_to_another_broker(server: ClosedServer, tool, tmp_path: Path, topic: str):
    user = server.new_user((f"Topic:{topic}", "Pub"))
    with ClosedServer(tmp_path / "other", settings={**SMALL_FILES, **USERS_ON}) as other:
        assert "success" in tool("copyUser", "-f", server.broker, "-t", other.broker, "-u", user.access_key)
        subject = f"User:{user.access_key}"
        assert "success" in tool("copyAcl", "-f", server.broker, "-t", other.broker, "-s", subject)
        with other.admin() as admin:
            [policy] = admin.policies(user.access_key)
            assert (policy.resource, policy.actions) == (f"Topic:{topic}", ("Pub",))


def test_mqadmin_without_its_user_is_refused(server: ClosedServer, java: Java):
    assert "username cannot be null" in "".join(administer(java, server.name_server, "listUser", "-b", server.broker))
