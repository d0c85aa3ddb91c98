"""Servers in this process: starting, stopping, settings, and every way in which a start can fail."""

import json
import os
import socket
import urllib.request

import pytest

import rocketpy
from rocketpy import Message, Start
from rocketpy.testing import SMALL_FILES, PatientServer, fresh_name
from waiting import start_when_unlocked


def send_and_read(server):
    topic = fresh_name()
    with server.producer("ingest", send_timeout=60) as producer:
        producer.send(Message(topic, b"text"))
    with server.consumer("report", topic, start=Start.EARLIEST, api_timeout=60) as consumer:
        return [message.body for message in consumer.poll(timeout=60)]


def test_a_server_serves_on_free_ports_of_loopback(rocketpy_server_factory):
    server = rocketpy_server_factory()
    for address in (server.name_server, server.broker):
        host, _, port = address.rpartition(":")
        assert host == "127.0.0.1"
        assert int(port) > 1024
    assert send_and_read(server) == [b"text"]
    server.check()


def test_a_server_names_the_address_of_its_metrics_and_keeps_the_port(tmp_path):
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0}
    server = rocketpy.Server(tmp_path / "store", settings=settings)
    with server:
        address = server.metrics
        with urllib.request.urlopen(f"http://{address}/readyz") as ready:
            assert ready.status == 200
    with pytest.raises(rocketpy.ClosedError):
        server.metrics  # noqa: B018
    with server:
        assert server.metrics == address
    with rocketpy.Server(tmp_path / "other") as other:
        assert other.metrics is None


def test_two_servers_do_not_meet(tmp_path, rocketpy_server_factory):
    one, other = (rocketpy_server_factory(tmp_path / name) for name in ("one", "other"))
    assert send_and_read(one) == send_and_read(other) == [b"text"]
    assert not {one.name_server, one.broker} & {other.name_server, other.broker}


def test_messages_are_there_after_a_restart(tmp_path):
    topic = fresh_name()
    with PatientServer(tmp_path / "store", settings=SMALL_FILES) as server, server.producer("ingest") as producer:
        receipts = producer.send_many([Message(topic, b"%d" % n) for n in range(100)])
    with PatientServer(tmp_path / "store", settings=SMALL_FILES) as server:
        with server.consumer("report", topic, start=Start.EARLIEST) as consumer:
            messages = consumer.poll(timeout=60)
            while len(messages) < 100:
                messages += consumer.poll(timeout=60)
        assert {m.msg_id for m in messages} == {receipt.msg_id for receipt in receipts}
        with server.producer("ingest") as producer:
            queue = receipts[0].queue
            assert producer.send(Message(topic, b"new"), queue=queue).queue_offset == sum(
                r.queue == queue for r in receipts
            )


def test_a_server_is_started_once_and_stopped_once(tmp_path):
    server = PatientServer(tmp_path / "store", settings=SMALL_FILES)
    assert server.closed
    for use in (lambda: server.name_server, lambda: server.broker, server.admin, server.check):
        with pytest.raises(rocketpy.ClosedError, match="is not running"):
            use()
    assert server.start() is server.start()
    address = server.broker
    server.stop()
    server.stop()
    server.close()
    assert server.closed
    with pytest.raises(rocketpy.ClosedError):
        server.producer("late")
    with pytest.raises(OSError):
        socket.create_connection(address.split(":"), timeout=1).close()


def test_a_stopped_server_starts_again_on_its_folder(tmp_path):
    topic = fresh_name()
    server = PatientServer(tmp_path / "store", settings=SMALL_FILES)
    with server, server.producer("ingest") as producer:
        producer.send(Message(topic, b"text"))
    for _again in range(2):
        with server:
            assert not server.closed
            with server.consumer(fresh_name(), topic, start=Start.EARLIEST) as consumer:
                assert [message.body for message in consumer.poll(timeout=60)] == [b"text"]
    assert server.start() is server
    assert send_and_read(server) == [b"text"]
    server.stop()
    assert server.closed
    with pytest.raises(rocketpy.ClosedError, match="is not running"):
        server.producer("ingest")
    server.start().stop()


def test_a_server_that_starts_again_is_found_where_it_was(tmp_path):
    server = PatientServer(tmp_path / "store", settings=SMALL_FILES)
    with server:
        before = server.broker, server.name_server
        producer = server.producer("ingest", send_timeout=60)
        producer.send(Message("orders", b"one"))
    with server, producer:
        assert (server.broker, server.name_server) == before
        producer.send(Message("orders", b"two"))
        broker = rocketpy.Broker(
            tmp_path / "other", name_servers=server.name_server, settings=SMALL_FILES | {"brokerName": "b"}
        )
        with broker:
            first = broker.broker
        with broker:
            assert broker.broker == first


def test_a_stop_that_is_cut_off_is_an_error_and_the_next_start_recovers(tmp_path):
    server = PatientServer(tmp_path / "store", settings=SMALL_FILES).start()
    with server.producer("ingest") as producer:
        producer.send(Message("orders", b"text"))
    with pytest.raises(rocketpy.ServerError, match="timed out before everything was closed, after 0 s") as cut_off:
        server.stop(timeout=0)
    assert cut_off.value.hint
    assert server.closed
    server.stop()
    # The flush that was under way still ends in the background.
    again = start_when_unlocked(PatientServer(tmp_path / "store", settings=SMALL_FILES))
    with again, again.admin() as admin:
        assert "orders" in admin.topics()


def test_the_ports_are_free_again_after_a_stop(tmp_path):
    server = PatientServer(tmp_path / "store", settings=SMALL_FILES).start()
    ports = {"port": int(server.broker.split(":")[1]), "name_server_port": int(server.name_server.split(":")[1])}
    server.stop()
    with PatientServer(tmp_path / "store", settings=SMALL_FILES, **ports) as again:
        assert int(again.broker.split(":")[1]) == ports["port"]


def test_a_broker_and_a_name_server_work_apart(tmp_path):
    with rocketpy.NameServer() as names:
        with rocketpy.Broker(tmp_path / "store", name_servers=names.name_server, settings=SMALL_FILES) as broker:
            assert send_and_read(broker) == [b"text"]
            assert send_and_read(names) == [b"text"]
            with names.admin(api_timeout=60) as admin:
                assert [one.addresses for one in admin.brokers()] == [{0: broker.broker}]


def test_two_brokers_of_one_cluster_share_a_topic(tmp_path):
    topic = fresh_name()
    with rocketpy.NameServer() as names:
        brokers = [
            rocketpy.Broker(
                tmp_path / name,
                name_servers=names.name_server,
                settings={**SMALL_FILES, "brokerName": name},
            ).start()
            for name in ("broker-a", "broker-b")
        ]
        with names.admin(api_timeout=60) as admin:
            admin.create_topic(topic, queues=2)
            assert {queue.broker_name for queue in admin.queues(topic)} == {"broker-a", "broker-b"}
        with names.producer("ingest", api_timeout=60, send_timeout=60) as producer:
            receipts = [producer.send(Message(topic, b"%d" % n)) for n in range(8)]
            assert {receipt.queue.broker_name for receipt in receipts} == {"broker-a", "broker-b"}
            brokers[0].stop()
            for n in range(10):
                assert producer.send(Message(topic, b"%d" % n)).queue.broker_name == "broker-b"
        brokers[1].stop()


def test_a_broker_without_name_server_says_how_to_name_one(tmp_path, monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(rocketpy.ConfigError, match="name server") as missing:
        rocketpy.Broker(tmp_path / "store").start()
    assert missing.value.hint


@pytest.mark.parametrize("place", ["file", "settings", "environment"])
def test_clients_of_a_broker_go_where_it_registers(tmp_path, monkeypatch, place):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with rocketpy.NameServer() as names:
        options = {"settings": dict(SMALL_FILES)}
        if place == "file":
            options["config"] = tmp_path / "broker.conf"
            options["config"].write_text(f"namesrvAddr={names.name_server}\n")
        elif place == "settings":
            monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")  # weaker
            options["settings"]["namesrvAddr"] = names.name_server
        else:
            monkeypatch.setenv("NAMESRV_ADDR", names.name_server)
        with rocketpy.Broker(tmp_path / "store", **options) as broker:
            assert broker.name_servers == names.name_servers == [names.name_server]
            assert send_and_read(broker) == [b"text"]


def test_an_argument_wins_over_its_key_in_the_settings(tmp_path, free_port):
    other = tmp_path / "other"
    settings = {**SMALL_FILES, "storePathRootDir": str(other), "LISTEN_PORT": 1, "nameServerPort": free_port}
    with PatientServer(tmp_path / "store", port=0, settings=settings) as server:
        assert server.broker.rpartition(":")[2] != "1"
        assert server.name_server == f"127.0.0.1:{free_port}", "a port that was not given is a default"
        assert (tmp_path / "store" / "commitlog").is_dir()
    assert not other.exists()


def test_settings_reach_the_server(rocketpy_server_factory):
    server = rocketpy_server_factory(
        settings={"brokerName": "mine", "defaultTopicQueueNums": 2, "flushDiskType": "SYNC_FLUSH"}
    )
    with server.producer("ingest") as producer:
        receipt = producer.send(Message("automatic", b"text"))
    assert receipt.queue.broker_name == "mine"
    with server.admin() as admin:
        assert len(admin.queues("automatic")) == 2


def test_booleans_are_settings_too(rocketpy_server_factory):
    server = rocketpy_server_factory(settings={"autoCreateTopicEnable": False})
    with server.producer("ingest") as producer, pytest.raises(rocketpy.TopicNotFoundError, match="missing"):
        producer.send(Message("missing", b"text"))


@pytest.mark.parametrize(
    ("name", "text"), [("broker.conf", "brokerName=filed\n"), ("rocketpy.toml", 'brokerName = "filed"\n')]
)
def test_a_configuration_file_is_read_and_arguments_win(tmp_path, rocketpy_server_factory, name, text):
    config = tmp_path / name
    config.write_text(text + ("listenPort=1\n" if name.endswith("conf") else "listenPort = 1\n"))
    server = rocketpy_server_factory(config=config)
    with server.admin() as admin:
        assert [one.broker_name for one in admin.brokers()] == ["filed"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"flushDiskTyp": "SYNC_FLUSH"}, "flushDiskType"),
        ({"flushDiskType": "SOMETIMES"}, "SYNC_FLUSH"),
        ({"listenPort": 99999}, "listenPort"),
        ({"mappedFileSizeCommitLog": 1}, "mappedFileSizeCommitLog"),
        ({"brokerRole": "SLAVE"}, "brokerRole"),
    ],
)
def test_a_bad_setting_is_named_with_the_way_out(tmp_path, settings, says):
    with pytest.raises(rocketpy.ConfigError, match=says):
        rocketpy.Server(tmp_path / "store", settings=settings).start()
    assert not (tmp_path / "store").exists()


def test_a_configuration_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(rocketpy.ConfigError, match="nowhere"):
        rocketpy.Server(tmp_path / "store", config=tmp_path / "nowhere.conf").start()


def test_the_ready_file_has_the_addresses_and_goes_with_the_server(tmp_path):
    ready = tmp_path / "ready.json"
    with PatientServer(tmp_path / "store", settings=SMALL_FILES, ready_file=ready) as server:
        assert json.loads(ready.read_text()) == {
            "pid": os.getpid(),
            "name_server": server.name_server,
            "broker": server.broker,
        }
    assert not ready.exists()


def test_a_port_in_use_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for ports in ({"port": port}, {"name_server_port": port}):
            with pytest.raises(rocketpy.PortInUseError, match=str(port)) as in_use:
                rocketpy.Server(tmp_path / "store", settings=SMALL_FILES, **ports).start()
            assert in_use.value.retryable
        with pytest.raises(rocketpy.PortInUseError, match=str(port)):
            rocketpy.NameServer(port=port).start()
    with PatientServer(tmp_path / "store", settings=SMALL_FILES) as server:
        assert send_and_read(server) == [b"text"]


def test_a_host_that_is_not_ours_is_named(tmp_path):
    with pytest.raises(rocketpy.RocketPyError, match=r"192\.0\.2\.1"):
        rocketpy.Server(tmp_path / "store", host="192.0.2.1").start()


def test_a_store_in_use_here_is_locked(tmp_path, rocketpy_server_factory):
    server = rocketpy_server_factory(tmp_path / "store")
    with pytest.raises(rocketpy.StoreLockedError, match="store") as locked:
        rocketpy.Server(tmp_path / "store", settings=SMALL_FILES).start()
    assert locked.value.hint
    assert locked.value.retryable
    assert send_and_read(server) == [b"text"]


def test_a_store_in_use_elsewhere_names_the_process(tmp_path, stoppable):
    with pytest.raises(rocketpy.StoreLockedError, match=str(stoppable.process.pid)):
        rocketpy.Server(tmp_path / "stoppable", settings=SMALL_FILES).start()


def test_a_folder_with_other_things_is_not_a_store(tmp_path):
    (tmp_path / "thesis.txt").write_text("two years of work")
    with pytest.raises(rocketpy.NotAStoreError, match=r"thesis\.txt") as other:
        rocketpy.Server(tmp_path, settings=SMALL_FILES).start()
    assert other.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_is_not_a_store(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(rocketpy.StoreError, match="file"):
        rocketpy.Server(tmp_path / "file", settings=SMALL_FILES).start()


def test_a_folder_that_cannot_be_written_is_named(tmp_path, child):
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0o555)
    ended = child(
        """
        import os, sys
        import rocketpy, rocketpy.errors, rocketpy.servers.server
        if os.geteuid() == 0:
            os.seteuid(65534)  # nobody: root may write anywhere
        try:
            rocketpy.Server(sys.argv[1]).start()
        except rocketpy.StoreError as error:
            print(error)
            print(error.hint)
        """,
        str(folder / "store"),
    )
    message, hint = ended.stdout.splitlines()
    assert "closed" in message
    assert "permission denied" in message
    assert hint != "None"


def test_a_damaged_store_is_refused_and_left_as_it_is(tmp_path):
    store = tmp_path / "store"
    with PatientServer(store, settings={**SMALL_FILES, "flushDiskType": "SYNC_FLUSH"}) as server:
        with server.producer("ingest") as producer:
            for n in range(200):
                producer.send(Message("topic", b"%d" % n * 100))
    (store / "abort").touch()  # as after a crash: recovery reads the log
    (log,) = (path for path in (store / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(5000)
        file.write(bytes(300))
    before = log.read_bytes()
    with pytest.raises(rocketpy.DamagedDataError, match="damaged at physical offset") as damaged:
        rocketpy.Server(store, settings=SMALL_FILES).start()
    assert damaged.value.hint
    assert log.read_bytes() == before


def test_a_message_whose_body_is_damaged_is_not_given_by_a_look_up(tmp_path):
    store = tmp_path / "store"
    with PatientServer(store, settings=SMALL_FILES) as server, server.producer("ingest") as producer:
        sound = producer.send(Message("topic", b"sound", keys=["one"]))
        damaged = producer.send(Message("topic", b"a body to be damaged", keys=["two"]))
        (log,) = (path for path in (store / "commitlog").iterdir() if path.name.endswith("0" * 20))
        at = log.read_bytes().index(b"to be damaged")
        with log.open("r+b") as file:
            file.seek(at)
            file.write(b"T")
        with server.admin() as admin:
            assert [found.body for found in admin.query_messages("topic", "one")] == [b"sound"]
            assert admin.view_message(sound.offset_msg_id).body == b"sound"
            with pytest.raises(rocketpy.DamagedDataError, match="is damaged"):
                admin.query_messages("topic", "two")
            with pytest.raises(rocketpy.DamagedDataError, match="is damaged"):
                admin.view_message(damaged.offset_msg_id)


def test_an_embedded_server_of_a_killed_process_recovers(tmp_path, child):
    ended = child(
        """
        import os, rocketpy, sys
        from rocketpy.testing import SMALL_FILES, PatientServer
        server = PatientServer(sys.argv[1], settings=SMALL_FILES).start()
        producer = server.producer("ingest")
        receipts = producer.send_many([rocketpy.Message("killed", b"%d" % n) for n in range(500)])
        print(len(receipts), flush=True)
        os.kill(os.getpid(), 9)
        """,
        str(tmp_path / "store"),
    )
    assert (ended.returncode, ended.stdout) == (-9, "500\n"), ended.stderr
    with PatientServer(tmp_path / "store", settings=SMALL_FILES) as server:
        with server.consumer("report", "killed", start=Start.EARLIEST) as consumer:
            bodies = []
            while len(bodies) < 500:
                bodies += [message.body for message in consumer.poll(timeout=60)]
            bodies += [message.body for message in consumer.poll(timeout=0.2)]
    assert sorted(map(int, bodies)) == list(range(500))


def test_stopping_a_server_with_waiting_clients_is_quick(tmp_path):
    server = PatientServer(tmp_path / "store", settings=SMALL_FILES).start()
    with server.admin() as admin:
        admin.create_topic("topic", queues=4)
    longer = {"suspend": 120, "pull_timeout": 150}  # than the stop may take
    consumers = [server.consumer(f"group-{n}", "topic", **longer) for n in range(4)]
    for consumer in consumers:
        assert consumer.poll(timeout=0.1) == []
    server.stop()  # raises when it takes longer than a stop may
    for consumer in consumers:
        consumer.close()


def test_a_path_may_be_of_any_kind(tmp_path):
    for path in (tmp_path / "one", str(tmp_path / "two")):
        server = rocketpy.Server(path, settings=SMALL_FILES)
        assert server.path == str(path)
        with server:
            pass
    with pytest.raises(TypeError):
        rocketpy.Server(3)
