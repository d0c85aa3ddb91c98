"""What a newcomer writes, or meets, first: the error says what was wrong and what to write."""

import pytest

import rocketpy
from rocketpy.testing import fresh_name


@pytest.mark.parametrize(
    ("client", "option", "name"),
    [
        ("consumer", "auto_offset_reset", "start"),
        ("consumer", "enable_auto_commit", "auto_commit"),
        ("producer", "bootstrap_servers", "name_servers"),
        ("producer", "linger_ms", "linger"),
    ],
)
def test_an_option_of_another_client_names_the_one_here(client, option, name):
    make = {"consumer": lambda **options: rocketpy.Consumer("g", "t", **options), "producer": rocketpy.Producer}
    arguments = {"consumer": (), "producer": ("g",)}[client]
    with pytest.raises(TypeError, match=rf"did you mean {name}\?"):
        make[client](*arguments, name_servers="127.0.0.1:1", **{option: 1})


def test_bytes_where_text_belongs_are_called_bytes(rocketpy_server, rocketpy_topic):
    with pytest.raises(TypeError, match=r"keys must be .* not bytes"):
        rocketpy.Message("t", b"text", keys=b"k")
    with pytest.raises(TypeError, match=r"tags must be .* not bytes"):
        rocketpy_server.consumer("g", rocketpy_topic, tags=b"a")


def test_settings_that_are_no_dict_are_named(tmp_path):
    with pytest.raises(TypeError, match="settings must be a dict by key, not list"):
        rocketpy.Server(tmp_path, settings=["a"])


def test_an_sql_expression_is_said_to_be_one(rocketpy_server, rocketpy_topic):
    with pytest.raises(rocketpy.InvalidArgumentError) as refused:
        rocketpy_server.consumer("g", rocketpy_topic, tags="a IS NOT NULL")
    assert "SQL expressions are an option of consumers, sql" in refused.value.hint


def test_an_offset_outside_the_queue_is_said_in_words(rocketpy_server, rocketpy_topic):
    with rocketpy_server.producer("p") as producer:
        queue = producer.send(rocketpy.Message(rocketpy_topic, b"text")).queue
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic) as consumer:
        assert consumer.poll(timeout=60)
        with pytest.raises(rocketpy.OffsetError, match="offset 1000000 is outside 0 to 1,") as outside:
            consumer.seek(queue, 1_000_000)
        assert "0 to 1" in outside.value.hint
        elsewhere = rocketpy.MessageQueue(rocketpy_topic, "elsewhere", 0)
        with pytest.raises(rocketpy.OffsetError) as other:
            consumer.seek(elsewhere, 0)
        assert other.value.hint
    with pytest.raises(rocketpy.ClosedError) as closed:
        consumer.poll()
    assert "make a new one" in closed.value.hint


def test_a_folder_that_is_no_store_and_a_port_that_is_taken_have_a_way_out(rocketpy_server, tmp_path):
    with pytest.raises(rocketpy.NotAStoreError) as no_store:
        rocketpy.StoreReader(tmp_path)
    assert "rocketpy server DIR" in no_store.value.hint
    port = int(rocketpy_server.broker.rpartition(":")[2])
    with pytest.raises(rocketpy.PortInUseError) as taken:
        rocketpy.Server(tmp_path / "store", port=port).start()
    assert "0 for a free one" in taken.value.hint


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("path", lambda admin: rocketpy.Server(None)),
        ("config", lambda admin: rocketpy.NameServer(config=5)),
        ("path", lambda admin: rocketpy.StoreReader(5)),
        ("target", lambda admin: rocketpy.store.snapshot("data", 5)),
        ("readable", lambda admin: admin.create_topic("t", readable="no")),
        ("attributes", lambda admin: admin.create_topic("t", attributes="x")),
        ("group", lambda admin: admin.dead_letters(5)),
        ("which", lambda admin: admin.dead_letters("g", "since")),
        ("rate", lambda admin: admin.resend_dead_letters([], rate="5")),
    ],
)
def test_an_argument_of_another_type_is_named(rocketpy_server, name, use):
    with rocketpy_server.admin() as admin, pytest.raises(TypeError, match=f"^{name} must be "):
        use(admin)
