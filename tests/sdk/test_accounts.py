"""Users and policies by `Admin`: at brokers and name servers, compared, and denied with the way out."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

import rocketpy
from closed_server import ADMIN, USERS_ON
from rocketpy.testing import SMALL_FILES, fresh_name
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from closed_server import ClosedServer

USER_NOT_EXIST = 3001


@pytest.fixture
def admin(closed_server: ClosedServer) -> Iterator[rocketpy.Admin]:
    with closed_server.admin() as admin:
        yield admin


@pytest.fixture
def name() -> str:
    return fresh_name("user")


def found(admin: rocketpy.Admin, name: str) -> rocketpy.User:
    user = admin.user(name)
    assert user is not None
    return user


def test_users_are_changed_and_a_dry_run_changes_nothing(admin: rocketpy.Admin, name: str):
    servers = [one.name for one in admin.account_servers()]
    assert len(servers) == 2

    def states(changes: list[rocketpy.SettingChange]) -> list[tuple[Any, ...]]:
        assert [one.broker_name for one in changes] == servers
        return sorted({(one.before, one.after, one.error) for one in changes})

    planned = admin.create_user(name, "secret", dry_run=True)
    assert states(planned) == [(None, "normal, enabled", None)]
    assert admin.user(name) is None
    assert states(admin.create_user(name, "secret")) == [(None, "normal, enabled", None)]
    assert admin.user(name) == rocketpy.User(name, False, True, False, tuple(servers))
    changed = admin.update_user(name, is_super=True, is_enabled=False)
    assert states(changed) == [("normal, enabled", "super, disabled", None)]
    assert admin.update_user(name, is_super=True) == []
    assert states(admin.delete_user(name, dry_run=True)) == [("super, disabled", None, None)]
    assert admin.user(name) is not None
    admin.delete_user(name)
    assert admin.user(name) is None


def test_policies_are_replaced_by_resource_and_revoked(admin: rocketpy.Admin, name: str):
    admin.create_user(name, "secret")
    admin.grant(name, "topic:orders", "pub", sources=["10.0.0.0/8"])
    assert admin.grant(name, "Topic:orders", ["Pub"], sources=["10.0.0.0/8"]) == []
    [change, *_] = admin.grant(name, "Topic:orders", ["Pub", "Sub"], is_allowed=False)
    assert (change.before, change.after) == ("allow Pub from 10.0.0.0/8", "deny Pub,Sub")
    admin.grant(name, "Topic:*", "All", is_default=True)
    policies = {(one.resource, one.actions, one.is_allowed, one.is_default) for one in admin.policies(name)}
    assert policies == {("Topic:orders", ("Pub", "Sub"), False, False), ("Topic:*", ("All",), True, True)}
    assert admin.revoke(name, "Topic:*") == []
    assert len(admin.revoke(name, "Topic:*", is_default=True)) == 2
    assert len(admin.revoke(name, dry_run=True)) == 2
    admin.revoke(name)
    assert admin.policies(name) == []


def test_unknown_and_existing_users_are_told_apart_from_denials(admin: rocketpy.Admin, name: str):
    for change in (
        lambda: admin.update_user(name, is_enabled=False),
        lambda: admin.rotate_user(name, "second"),
        lambda: admin.delete_user(name),
        lambda: admin.grant(name, "*", "All"),
        lambda: admin.revoke(name),
    ):
        with pytest.raises(rocketpy.RefusedError, match=f"no such user: {name}") as caught:
            change()
        assert caught.value.code == USER_NOT_EXIST
    admin.create_user(name, "secret")
    with pytest.raises(rocketpy.RefusedError, match=f"user exists: {name}") as caught:
        admin.create_user(name, "another")
    assert not isinstance(caught.value, rocketpy.AccessDeniedError)


def test_a_denial_names_user_resource_and_the_command_that_grants_it(closed_server: ClosedServer):
    topic = fresh_name("orders")
    with closed_server.admin() as admin:
        admin.create_topic(topic, queues=1)
    user = closed_server.new_user()
    with (
        closed_server.producer(fresh_name("shop"), credentials=user) as producer,
        pytest.raises(rocketpy.AccessDeniedError) as caught,
    ):
        producer.send(rocketpy.Message(topic, b"text"))
    assert f"User:{user.access_key} has no permission to access Topic:{topic}" in str(caught.value)
    assert f"`rocketpy acl grant {user.access_key} Topic:{topic} " in str(caught.value.hint)
    assert not caught.value.retryable
    assert user.secret_key not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize(
    ("credentials", "says", "way_out"),
    [
        (False, "username cannot be null", "--credentials FILE"),
        (rocketpy.Credentials("nobody", "of nobody"), "is not found", "check the access key"),
        (rocketpy.Credentials(ADMIN.access_key, "of nobody"), "check signature failed", "secret of the user"),
    ],
    ids=["none", "unknown", "wrong secret"],
)
def test_strangers_are_told_why(closed_server: ClosedServer, credentials: Any, says: str, way_out: str):
    with (
        closed_server.admin(credentials=credentials) as admin,
        pytest.raises(rocketpy.AccessDeniedError, match=says) as caught,
    ):
        admin.topics()
    assert way_out in str(caught.value.hint)


def test_users_without_the_right_neither_read_nor_make_users(closed_server: ClosedServer, name: str):
    with closed_server.admin(credentials=closed_server.new_user()) as admin:
        for call in (admin.users, admin.policies, lambda: admin.create_user(name, "secret")):
            with pytest.raises(rocketpy.AccessDeniedError):
                call()
    manager = closed_server.new_user(("Cluster:*", "All"))
    with closed_server.admin(credentials=manager) as admin:
        admin.create_user(name, "secret")
        with pytest.raises(rocketpy.RocketPyError, match="super user"):
            admin.create_user(f"{name}-super", "secret", is_super=True)
        assert admin.user(f"{name}-super") is None


def test_every_client_works_with_its_user(closed_server: ClosedServer):
    topic, group = fresh_name("orders"), fresh_name("billing")
    with closed_server.admin() as admin:
        admin.create_topic(topic, queues=1)
    user = closed_server.new_user((f"Topic:{topic}", "Pub,Sub"), (f"Group:{group}", "Sub"))
    options: dict[str, Any] = {"name_servers": closed_server.name_servers, "credentials": user}
    with rocketpy.Producer(group, **options) as producer:
        producer.send(rocketpy.Message(topic, b"by poll"))
        with rocketpy.Consumer(group, topic, **options) as consumer:
            [message] = consumer.poll(timeout=60)
            consumer.commit()
        assert message.body == b"by poll"
        received: list[bytes] = []
        with rocketpy.PushConsumer(group, **options) as pushed:

            @pushed.on(topic)
            def handle(message: rocketpy.ReceivedMessage[bytes]) -> None:
                received.append(message.body)
                pushed.stop()

            producer.send(rocketpy.Message(topic, b"by push"))
            pushed.run()
    assert received == [b"by push"]

    async def by_asyncio() -> list[str]:
        async with rocketpy.AsyncProducer(group, **options) as producer:
            await producer.send(rocketpy.Message(topic, b"by asyncio"))
        async with rocketpy.AsyncAdmin(closed_server.name_servers, credentials=ADMIN) as admin:
            return [one.name for one in await admin.users()]

    assert user.access_key in asyncio.run(by_asyncio())


@contextlib.contextmanager
def cluster(folder: Path, *of_name_servers: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """A broker with users that is registered at name servers with these settings: its name, and their addresses."""
    with contextlib.ExitStack() as stack:
        names = [stack.enter_context(rocketpy.NameServer(settings=one)).name_server for one in of_name_servers]
        settings = {**SMALL_FILES, **USERS_ON}
        stack.enter_context(rocketpy.Broker(folder / "store", name_servers=names, settings=settings))
        for name in names:
            with rocketpy.Admin(name, credentials=ADMIN) as admin:
                wait_until(admin.brokers, "the registration")
        yield "broker-a", names


def with_users(folder: Path, name: str) -> dict[str, Any]:
    """Settings of a name server with users of its own."""
    return {**USERS_ON, "authConfigPath": str(folder / name / "users.json")}


def test_a_name_server_without_users_is_left_out(name: str, tmp_path: Path):
    with (
        cluster(tmp_path, with_users(tmp_path, "one"), {}) as (_, names),
        rocketpy.Admin(names, credentials=ADMIN) as admin,
    ):
        assert [one.keeps_users for one in admin.account_servers()] == [True, True, False]
        admin.create_user(name, "secret")
        assert found(admin, name).differs_at == ()


def test_a_server_that_lacks_a_user_is_named_and_gets_it(name: str, tmp_path: Path):
    settings = [with_users(tmp_path, each) for each in ("one", "two")]
    with cluster(tmp_path, *settings) as (broker, names):
        with rocketpy.Admin(names[0], credentials=ADMIN) as admin:
            admin.create_user(name, "secret")
            admin.grant(name, "Topic:orders", "Pub")
        with rocketpy.Admin(names, credentials=ADMIN) as admin:
            assert found(admin, name).servers == (broker, names[0])
            assert found(admin, name).differs_at == (names[1],)
            [change] = admin.create_user(name, "secret")
            assert change.broker_name == names[1]
            [change] = admin.grant(name, "Topic:orders", "Pub")
            assert change.broker_name == names[1]
            assert {one.differs_at for one in admin.policies(name)} == {()}
            assert len(admin.delete_user(name)) == 3


def test_a_caller_changes_and_deletes_its_own_user(closed_server: ClosedServer):
    own = closed_server.new_user(is_super=True)
    with closed_server.admin(credentials=own) as admin:
        changes = admin.update_user(own.access_key, password="the second secret")
        assert [one.error for one in changes] == [None, None]
        with pytest.raises(rocketpy.AccessDeniedError):
            admin.users()
    with closed_server.admin(credentials=rocketpy.Credentials(own.access_key, "the second secret")) as admin:
        assert found(admin, own.access_key).is_super
        assert [one.error for one in admin.delete_user(own.access_key)] == [None, None]


def test_a_server_that_denies_a_change_and_answers_reads_is_not_changed(tmp_path: Path):
    reader = rocketpy.Credentials("reader", "secret")
    settings = [with_users(tmp_path, each) for each in ("one", "two")]
    with cluster(tmp_path, *settings) as (_, names):
        with rocketpy.Admin(names, credentials=ADMIN) as admin:
            admin.create_user(reader.access_key, reader.secret_key)
            admin.grant(reader.access_key, "Cluster:*", "Get")
        with rocketpy.Admin(names[0], credentials=ADMIN) as admin:
            admin.grant(reader.access_key, "Cluster:*", "All")
        with rocketpy.Admin(names, credentials=reader) as admin:
            changes = admin.update_user(reader.access_key, password="another")
        assert [one.broker_name for one in changes if one.error is not None] == [names[1]]


def test_masters_that_one_name_server_knows_are_changed_and_a_silent_one_is_an_error(name: str, tmp_path: Path):
    settings = [with_users(tmp_path, each) for each in ("one", "two")]
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(rocketpy.NameServer(settings=one)) for one in settings]
        names = [one.name_server for one in servers]
        for number, names_of_broker in enumerate(names):
            users = {**SMALL_FILES, **USERS_ON, "brokerName": f"broker-{number}"}
            folder = tmp_path / f"store-{number}"
            stack.enter_context(rocketpy.Broker(folder, name_servers=[names_of_broker], settings=users))
            with rocketpy.Admin(names_of_broker, credentials=ADMIN) as admin:
                wait_until(admin.brokers, "the registration")
        with rocketpy.Admin(names, credentials=ADMIN, api_timeout=5) as admin:
            changes = admin.create_user(name, "secret")
            assert [one.broker_name for one in changes] == ["broker-0", "broker-1", *names]
            assert found(admin, name).differs_at == ()
            servers[1].close()
            changes = admin.update_user(name, is_enabled=False)
            assert [one.broker_name for one in changes] == ["broker-0", *names]
            assert [one.error is None for one in changes] == [True, True, False]
            with pytest.raises(rocketpy.RocketPyError):
                admin.users()


def test_a_broker_name_without_a_master_is_an_error_of_its_own(name: str, tmp_path: Path):
    settings = {**SMALL_FILES, **USERS_ON, "brokerName": "pair"}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(rocketpy.NameServer(settings=with_users(tmp_path, "names")))
        names = [server.name_server]
        master = stack.enter_context(
            rocketpy.Broker(tmp_path / "master", name_servers=names, settings={**settings, "haListenPort": 0})
        )
        of_slave = {**settings, "brokerId": 1, "brokerRole": "SLAVE"}
        stack.enter_context(rocketpy.Broker(tmp_path / "slave", name_servers=names, settings=of_slave))
        with rocketpy.Admin(names, credentials=ADMIN) as admin:
            wait_until(lambda: any(len(one.addresses) == 2 for one in admin.brokers()), "the registration of the slave")
            admin.create_user(name, "secret")
            master.close()
            wait_until(lambda: all(0 not in one.addresses for one in admin.brokers()), "the end of the master")
            changes = admin.delete_user(name)
            assert [(one.broker_name, one.error is None) for one in changes] == [(names[0], True), ("pair", False)]
            assert "no master of broker pair is registered" in str(changes[1].error)
            assert [one.name for one in admin.account_servers()] == names
            assert admin.user(name) is None
