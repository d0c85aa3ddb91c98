"""What a newcomer writes, or meets, first: the error says what was wrong and what to write."""

import contextlib
import dataclasses
import functools
import socket
import sqlite3
import threading
from types import SimpleNamespace

import pytest

import rocketpy
from rocketpy.codec import JsonCodec, decoded
from rocketpy.dedup import Dedup, TransactionStore
from rocketpy.testing import drain, fresh_name


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
    assert "for an SQL expression use the consumer option sql" in refused.value.hint


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


@dataclasses.dataclass
class Order:
    item: str


def yields(message):
    yield message


async def yields_later(message):
    yield message


@pytest.mark.parametrize(
    ("give", "said"),
    [
        (lambda s: s.push_consumer("g").on("t")(lambda: None), r"the handler of topic t .* takes \(\)"),
        (lambda s: s.push_consumer("g").on("t", batch=2)(lambda a, b: None), r"a list of messages, and takes \(a, b\)"),
        (lambda s: s.push_consumer("g").on("t")(yields), "topic t .* not a generator"),
        (lambda s: s.push_consumer("g").on("t")(yields_later), "topic t .* not a generator"),
        (lambda s: s.consumer("g", "t", on_assigned=lambda queues: None), r"on_assigned .* takes \(queues\)"),
        (lambda s: s.push_consumer("g", on_revoked=lambda queues: None), r"on_revoked .* takes \(queues\)"),
        (lambda s: s.consumer("g", "t", balance=lambda queues: queues), r"balance .* takes \(queues\)"),
        (lambda s: s.producer("g", selector=lambda queues: queues[0]), r"selector .* takes \(queues\)"),
        (lambda s: s.transaction_producer("g", lambda: None), r"check .* takes \(\)"),
        (lambda s: s.transaction_producer("g", print, local=lambda: None), r"local .* takes \(\)"),
        (lambda s: Dedup("g", {}, key=lambda: "k"), r"key .* takes \(\)"),
        (lambda s: decoded([], JsonCodec(), on_error=lambda error: None), r"on_error .* takes \(error\)"),
        (lambda s: JsonCodec(Order("book")), r"Order\(item='book'\) is a value, not a type: give Order"),
        (lambda s: s.consumer("g", "t", codec=JsonCodec), "codec must be an object"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_where_it_is_given(rocketpy_server, give, said):
    with pytest.raises(TypeError, match=said):
        give(rocketpy_server)


def used(client, use):
    with client:
        return use(client)


QUEUE = rocketpy.MessageQueue("t", "broker-a", 0)


@pytest.mark.parametrize(
    ("give", "said"),
    [
        (lambda s: rocketpy.Message("t", b"x", tag=["a"]), "tag must be a str, not list"),
        (lambda s: rocketpy.Message(None, b"x"), "topic must be a str, not NoneType"),
        (lambda s: rocketpy.Message("t", b"x", order_key=5), "order_key must be a str, not int"),
        (lambda s: rocketpy.Message("t", b"x", properties=["a"]), "properties must be a dict of str by name, not list"),
        (lambda s: s.producer(["g"]), "group must be a str, not list"),
        (lambda s: s.consumer(5, "t"), "group must be a str, not int"),
        (lambda s: s.push_consumer(None), "group must be a str, not NoneType"),
        (lambda s: rocketpy.AsyncProducer(5), "group must be a str, not int"),
        (lambda s: rocketpy.AsyncConsumer(5, "t"), "group must be a str, not int"),
        (lambda s: s.producer("g", retries="2"), "option retries must be an int, not str"),
        (lambda s: s.producer("g", trace="yes"), "option trace must be True or False, not str"),
        (lambda s: s.producer("g", namespace=5), "option namespace must be a str, not int"),
        (lambda s: s.producer("g", linger="5ms"), "option linger must be a number of seconds or a timedelta, not str"),
        (lambda s: s.producer("g", compression=9), 'option compression must be "zlib", .* or None, not int'),
        (lambda s: s.producer("g", backoff=0.5), r"option backoff must be a rocketpy\.Backoff, not float"),
        (lambda s: rocketpy.Backoff(first="1s"), "first must be a number of seconds or a timedelta, not str"),
        (lambda s: s.consumer("g", "t", tags=5), r'option tags must be "UA \|\| AA" or a list of tags, not int'),
        (lambda s: s.consumer("g", "t", tags={5: "a"}), "option tags: a dict of tags has topics as its keys, .*: 5"),
        (lambda s: s.consumer("g", "t", sql=5), "option sql must be an expression such as .*, not int"),
        (lambda s: s.consumer("g", "t", max_body_bytes="1M"), "option max_body_bytes must be an int or None, not str"),
        (lambda s: rocketpy.Consumer.assign("g", "t"), r"each of queues must be a rocketpy\.MessageQueue, not str"),
        (lambda s: rocketpy.Consumer.assign("g", QUEUE), r"queues must be a list of rocketpy\.MessageQueue, not"),
        (lambda s: s.push_consumer("g", tags="a"), "PushConsumer has no option tags: pass it to the decorator on"),
        (lambda s: s.push_consumer("g").on("t", tags=5), r'tags must be "UA \|\| AA" or a list of tags, not int'),
        (lambda s: rocketpy.Retry(delay_level="3"), "delay_level must be an int, not str"),
        (lambda s: used(s.admin(), lambda a: a.create_topic("t", attributes={"a": 5})), "a value of attributes must"),
        (lambda s: used(s.admin(), lambda a: a.update_broker_config("a:1", ["a"])), "changes must be a dict by name"),
        (lambda s: used(s.admin(), lambda a: next(a.resend_dead_letters("abc"))), "each of letters must be a rocketpy"),
        (lambda s: rocketpy.Server(".", settings={5: 1}), "a key of settings must be a str, not int"),
        (lambda s: rocketpy.Server(".").consumer("g"), r"Server\.consumer\(group, topic\) lacks topic"),
        (lambda s: rocketpy.Server(".").stop(1, 2), r"Server\.stop\(\) takes from 1 to 2 positional arguments"),
        (lambda s: Dedup("g", 5), "store must be a path, not int"),
    ],
)
def test_one_sentence_names_the_argument_what_came_and_what_is_wanted(rocketpy_server, give, said):
    with pytest.raises(TypeError, match=f"^{said}"):
        give(rocketpy_server)


def test_a_queue_number_is_no_queue_also_when_it_is_zero(rocketpy_server, rocketpy_topic):
    with rocketpy_server.producer("p") as producer:
        for send in (producer.send, producer.submit, producer.send_oneway):
            with pytest.raises(TypeError, match=r"a queue must be a rocketpy\.MessageQueue, not int"):
                send(rocketpy.Message(rocketpy_topic, b"text"), queue=0)


def test_names_of_columns_are_a_list(rocketpy_server, rocketpy_topic):
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic) as consumer:
        with pytest.raises(TypeError, match="columns must be a list of names, not: 'body'"):
            consumer.fetch_columns(columns="body")


def test_a_name_that_breaks_the_rules_is_said_once(rocketpy_server):
    with pytest.raises(rocketpy.InvalidArgumentError) as refused:
        rocketpy_server.producer("a b")
    assert str(refused.value).count("a b") == 1
    with rocketpy_server.admin() as admin, pytest.raises(rocketpy.InvalidArgumentError) as refused:
        admin.create_topic("a/b")
    assert str(refused.value).count("a/b") == 1


def test_a_broker_is_named_by_its_address_or_its_name(rocketpy_server, rocketpy_topic):
    with rocketpy_server.admin() as admin:
        with pytest.raises(rocketpy.InvalidArgumentError, match=r"not a server address \(host:port\): broker-a:"):
            admin.broker_figures("broker-a:")
        with pytest.raises(rocketpy.RefusedError, match="unknown configuration key") as refused:
            admin.update_broker_config(rocketpy_server.broker, {"flushDisk": "SYNC_FLUSH"})
        assert "rocketpy config show" in refused.value.hint
    elsewhere = rocketpy.MessageQueue(rocketpy_topic, "elsewhere", 0)
    with rocketpy_server.producer("p", retries=0) as producer:
        with pytest.raises(rocketpy.BrokerNotFoundError) as unknown:
            producer.send(rocketpy.Message(rocketpy_topic, b"text"), queue=elsewhere)
    assert "rocketpy cluster list" in unknown.value.hint


def test_a_closed_client_is_refused_by_with(rocketpy_server):
    with rocketpy_server.producer("p") as producer:
        pass
    with pytest.raises(rocketpy.ClosedError, match="cannot reopen a closed object: <Producer"), producer:
        pass


def test_a_level_that_no_compression_has_is_refused(rocketpy_server):
    with pytest.raises(rocketpy.InvalidArgumentError, match=r"compression_level \(from 0 to 22, given: 99\)"):
        rocketpy_server.producer("p", compression_level=99)


def test_functions_of_every_kind_are_taken(rocketpy_server):
    class Mailer:
        def mail(self, message): ...

        def __call__(self, message, *more): ...

    consumer = rocketpy_server.push_consumer("g")
    kinds = (
        Mailer().mail,
        Mailer(),
        print,
        [].append,
        functools.partial(print, "mail"),
        lambda message, log=print: None,
    )
    for number, function in enumerate(kinds):
        assert consumer.on(f"t{number}")(function) is function


def test_a_time_in_the_place_of_a_count_names_the_argument_for_it(rocketpy_server, rocketpy_topic):
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic) as consumer:
        with pytest.raises(TypeError, match=r"max_messages must be an int \(give seconds as timeout=\), not float"):
            consumer.poll(5.0)


def test_a_key_that_is_no_text_is_named():
    with pytest.raises(TypeError, match="a key must be str, not int"):
        rocketpy.Message("t", b"text", keys=[17])


def test_a_server_that_never_answers_may_be_of_another_kind():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with rocketpy.Producer("g", name_servers=address, api_timeout=0.1) as producer:
            with pytest.raises(rocketpy.RequestTimeoutError) as unanswered:
                producer.send(rocketpy.Message("t", b"text"))
    assert "another kind of server" in unanswered.value.hint


def test_a_setting_that_is_wrong_is_not_said_to_be_on_a_command_line(tmp_path):
    with pytest.raises(rocketpy.ConfigError, match="flushDiskType in the flags or settings must be"):
        rocketpy.Server(tmp_path, settings={"flushDiskType": "SYNC"}).start()


def test_drain_says_what_it_reads():
    consumer = rocketpy.AsyncConsumer("g", "t", name_servers="127.0.0.1:1")
    with pytest.raises(TypeError, match=r"drain reads a rocketpy\.Consumer, not <AsyncConsumer"):
        drain(consumer)


def test_a_handler_whose_generator_nobody_runs_has_not_done_its_work(rocketpy_server, rocketpy_topic, caplog):
    with rocketpy_server.producer("p") as producer:
        producer.send(rocketpy.Message(rocketpy_topic, b"text"))
    consumer, called = rocketpy_server.push_consumer(fresh_name()), threading.Event()

    @consumer.on(rocketpy_topic)
    def handle(message):
        called.set()
        return yields(message)

    with consumer:
        assert called.wait(60)
    assert (consumer.stats().consumed, consumer.stats().failed) == (0, 1)
    assert "write it without `yield`" in caplog.text


def test_a_table_of_marks_that_is_missing_has_a_way_out():
    with contextlib.closing(sqlite3.connect(":memory:")) as books:
        once = Dedup("g", TransactionStore(books))
        with pytest.raises(sqlite3.OperationalError) as missing:
            once.claim(SimpleNamespace(msg_id="A", properties={})).__enter__()
    assert missing.value.__notes__ == [
        "hint: if the table rocketpy_done is missing, create it with TransactionStore.create_table()"
    ]
