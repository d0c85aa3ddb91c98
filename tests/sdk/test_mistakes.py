"""Mistakes of people who come from other clients: the error names the mistake first, then what to write."""

import asyncio
import copy
import pickle
import re
from unittest import mock

import pytest

import rocketpy
from rocketpy import schedule
from rocketpy.base.topic_names import TopicNames
from rocketpy.testing import SMALL_FILES, fresh_name

SWAPPED = ("mails", b"text")


def in_loop(make, use):
    async def run():
        async with make() as client:
            await use(client)

    asyncio.run(run())


def sending(server, call):
    with server.producer("p") as producer:
        getattr(producer, call)(*SWAPPED)


def beginning(server, call, message):
    check = {"local": print} if call == "send_in_transaction" else {}
    with server.transaction_producer("p", print, **check) as producer:
        getattr(producer, call)(*message)


def sending_later(server, call):
    in_loop(lambda: rocketpy.AsyncProducer("p", name_servers=server.name_servers), lambda p: getattr(p, call)(*SWAPPED))


CALLS = [
    (
        lambda s: rocketpy.Producer(bootstrap_servers="h:1"),
        r"Producer has no option 'bootstrap_servers' .*name_servers\?",
    ),
    (lambda s: rocketpy.Consumer("t", group_id="g"), r"Consumer has no option 'group_id' \(did you mean group\?\); "),
    (lambda s: rocketpy.Consumer("t", group="g"), r"Consumer\(group, topic\) has group twice: 't' by position, 'g' by"),
    (lambda s: rocketpy.Consumer("t"), r"Consumer\(group, topic\) lacks topic, 't' is the group$"),
    (
        lambda s: rocketpy.Consumer(topics=["t"], group="g"),
        r"Consumer has no option 'topics' \(did you mean topic\?\); ",
    ),
    (lambda s: rocketpy.Producer("g", "h:1"), r"Producer\(group\) takes 1 by position, not 2: pass the others by name"),
    (lambda s: rocketpy.PushConsumer(bootstrap_servers="h:1"), r"PushConsumer has no option .*mean name_servers\?"),
    (lambda s: rocketpy.TransactionProducer("g"), r"TransactionProducer\(group, check\) lacks check, 'g' is the group"),
    (lambda s: rocketpy.Admin(bootstrap_servers="h:1"), r"Admin has no option .* \(did you mean name_servers\?\)"),
    (lambda s: rocketpy.AsyncProducer(bootstrap_servers="h:1"), r"AsyncProducer has no option .*mean name_servers\?"),
    (lambda s: rocketpy.AsyncConsumer("t", group_id="g"), r"AsyncConsumer has no option 'group_id' .*mean group\?"),
    (
        lambda s: rocketpy.Server(".").consumer("t", group_id="g"),
        r"Server\.consumer has no option 'group_id' \(did you mean group\?\); ",
    ),
    (lambda s: rocketpy.Server(".").producer(), r"Server\.producer\(group\) lacks group$"),
    *[
        (
            lambda s, call=call: sending(s, call),
            rf"Producer\.{call}\(message\) .* write {call}\(rocketpy\.Message\(topic",
        )
        for call in ("send", "submit", "send_oneway", "request")
    ],
    *[
        (lambda s, call=call: sending_later(s, call), rf"AsyncProducer\.{call}\(message\) .* write {call}\(rocketpy\.M")
        for call in ("send", "send_oneway", "request")
    ],
    *[
        (lambda s, call=call: beginning(s, call, SWAPPED), rf"TransactionProducer\.{call}\(message\) .* write {call}\(")
        for call in ("transaction", "send_in_transaction")
    ],
]


@pytest.mark.parametrize(("use", "said"), CALLS)
def test_a_call_of_another_client_is_explained(rocketpy_server, use, said):
    with pytest.raises(TypeError, match=f"^{said}"):
        use(rocketpy_server)


def call_of(make, call, arguments, options):
    """Makes a client of a server, and calls one method of it."""

    def use(server):
        with make(server) as client:
            getattr(client, call)(*arguments, **options)

    return use


def later_call_of(make, call, arguments, options):
    async def await_call(client):
        await getattr(client, call)(*arguments, **options)

    return lambda server: in_loop(lambda: make(server), await_call)


def joining(kind):
    return lambda s: kind(fresh_name(), fresh_name(), name_servers=s.name_servers, allow_missing_topic=True)


TEXT = rocketpy.Message("mails", b"text")
ORDER_KEY = r"send has no option 'key' \(write rocketpy\.Message\(topic, body, order_key=\.\.\.\)"
CALLBACK = r"has no option 'on_delivery' \(write submit\(message\)\.add_done_callback\(function\); with asyncio, await"
QUEUE = r"send has no option 'partition' \(a queue is chosen by order_key= of the message, or by send\(message, queue="
OFFSETS = r"commit has no option 'offsets' \(write commit_offsets\(\{queue: offset\}\)\)$"
METHODS = [
    (
        "send",
        ["mails"],
        {"value": b"text"},
        r"send\(message\) takes one message .* write send\(rocketpy\.Message\(topic",
    ),
    ("send", [TEXT], {"key": b"k"}, ORDER_KEY),
    ("send", [TEXT], {"on_delivery": print}, f"send {CALLBACK}"),
    ("send", [TEXT], {"partition": 1}, QUEUE),
    ("send", [TEXT], {"time_out": 1}, r"send has no option 'time_out' \(did you mean timeout\?\)$"),
    ("send_oneway", [TEXT], {"headers": {}}, r"send_oneway has no option 'headers' \(write .*properties="),
    ("request", [TEXT], {"timeout_ms": 1}, r"request has no option 'timeout_ms' \(write timeout=, in seconds\)$"),
    ("poll", [], {"timeout_ms": 1}, r"poll has no option 'timeout_ms' \(write timeout=, in seconds\)$"),
    ("poll", [], {"max_records": 1}, r"poll has no option 'max_records' \(did you mean max_messages\?\)$"),
    ("commit", [], {"asynchronous": True}, r"commit has no option 'asynchronous' \(write wait=False\)$"),
    ("commit", [], {"message": TEXT}, r"commit\(\) takes no message: "),
    ("commit", [], {"offsets": {}}, OFFSETS),
    (
        "create_topic",
        ["mails"],
        {"partitions": 3},
        r"create_topic has no option 'partitions' \(did you mean queues\?\)$",
    ),
    ("create_topic", ["mails"], {"num_partitions": 3, "replication_factor": 1}, r"create_topic .*queues\?\); .*slaves"),
]
KIND = {"poll": "Consumer", "commit": "Consumer", "create_topic": "Admin"}
MAKES = {
    "Producer": lambda s: s.producer("p"),
    "AsyncProducer": lambda s: rocketpy.AsyncProducer("p", name_servers=s.name_servers),
    "Consumer": joining(rocketpy.Consumer),
    "AsyncConsumer": joining(rocketpy.AsyncConsumer),
    "Admin": lambda s: s.admin(),
    "AsyncAdmin": lambda s: rocketpy.AsyncAdmin(s.name_servers),
}


@pytest.mark.parametrize(("call", "arguments", "options", "said"), METHODS)
def test_an_option_of_another_clients_method_is_explained(rocketpy_server, call, arguments, options, said):
    kind = KIND.get(call, "Producer")
    name = "" if kind == "Admin" else rf"{kind}\."  # both kinds of Admin run the same calls
    with pytest.raises(TypeError, match=f"^{name}{said}"):
        call_of(MAKES[kind], call, arguments, options)(rocketpy_server)
    with pytest.raises(TypeError, match=f"^{name and 'Async'}{name}{said}"):
        later_call_of(MAKES[f"Async{kind}"], call, arguments, options)(rocketpy_server)


def test_arguments_that_fit_no_call_of_an_admin_are_explained(rocketpy_server):
    with rocketpy_server.admin() as admin:
        with pytest.raises(TypeError, match=r"^Admin\.create_topic\(topic\) lacks topic$"):
            admin.create_topic()
        with pytest.raises(TypeError, match=r"^Admin\.delete_topic has no option 'topics' \(did you mean topic\?\); "):
            admin.delete_topic(topics=["mails"])


ATTRIBUTES = [
    ("Producer", "produce", r"write send\(rocketpy\.Message\(topic, body\)\)"),
    ("Producer", "poll", r"delivery needs no poll: send\(message\) waits for its receipt"),
    ("AsyncProducer", "produce", r"write send\(rocketpy\.Message\(topic, body\)\)"),
    ("AsyncConsumer", "subscribe", r"the constructor subscribes: Consumer\(group, topic\)"),
    ("Consumer", "subscribe", r"the constructor subscribes: Consumer\(group, topic\)"),
    ("Consumer", "consume", r"did you mean poll\?"),
    ("Consumer", "ack", r"did you mean commit\?"),
    ("Consumer", "position", r"did you mean positions\?"),
    ("Consumer", "seek_to_beginning", r"write seek\(queue, 'earliest'\)"),
    ("Admin", "create_topics", r"did you mean create_topic\?"),
    ("Admin", "list_topics", r"did you mean topics\?"),
    ("AsyncAdmin", "list_topics", r"did you mean topics\?"),
]


@pytest.mark.parametrize(("kind", "name", "said"), ATTRIBUTES)
def test_a_method_of_another_client_is_explained(rocketpy_server, kind, name, said):
    client = MAKES[kind](rocketpy_server)
    with pytest.raises(AttributeError, match=rf"^'{kind}' object has no attribute '{name}' \({said}\)$"):
        getattr(client, name)
    if not kind.startswith("Async"):
        client.close()


def test_a_method_of_another_future_is_explained(rocketpy_server):
    with rocketpy_server.producer("p") as producer:
        future = producer.submit(TEXT)
        with pytest.raises(AttributeError, match=r"no attribute 'get' \(did you mean result\?\)$"):
            future.get()
        with pytest.raises(AttributeError, match=r"no attribute 'add_callback' \(did you mean add_done_callback\?\)$"):
            future.add_callback(print)
        assert future.result().queue.topic == "mails"


KAFKA = {
    "message": {
        "offset": r"\(receipts and received messages have queue_offset\)",
        "partition": r"\(a queue is chosen by order_key= of the message, or by send\(message, queue=\.\.\.\)",
        "key": r"\(did you mean order_key or keys\?\)",
        "value": r"\(did you mean body\?\)",
        "timestamp": r"\(received messages have born_at and stored_at; deliver_at= of rocketpy\.Message sets",
        "headers": r"\(did you mean properties\?\)",
    },
    "received": {
        "offset": r"\(did you mean queue_offset\?\)",
        "partition": r"\(did you mean queue_id\?\)",
        "key": r"\(did you mean order_key or keys\?\)",
        "timestamp": r"\(did you mean born_at_ms or stored_at_ms\?\)",
        "headers": r"\(did you mean properties\?\)",
        "error": r"\(errors are raised, not returned\)",
        "message_id": r"\(did you mean msg_id\?\)",
        "queueoffset": r"\(did you mean queue_offset\?\)",
        "unheard": "",
    },
    "receipt": {
        "offset": r"\(did you mean queue_offset\?\)",
        "partition": r"\(did you mean queue\.queue_id\?\)",
        "topic": r"\(did you mean queue\.topic\?\)",
        "error": r"\(errors are raised, not returned\)",
    },
}


@pytest.fixture(scope="module")
def values(rocketpy_server):
    """A message, its receipt, and the received message."""
    topic = fresh_name("kafka")
    with rocketpy_server.admin() as admin:
        admin.create_topic(topic, queues=1)
    with rocketpy_server.producer("p") as producer, rocketpy_server.consumer(fresh_name(), topic) as consumer:
        message = rocketpy.Message(topic, b"text")
        unread = producer.submit(message).result(60)
        (received,) = consumer.poll(1, 60)
    return {"message": message, "received": received, "receipt": unread}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in KAFKA.items() for name in names])
def test_an_attribute_of_another_clients_message_is_explained(values, kind, name):
    owner = values[kind]
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}' ?{KAFKA[kind][name]}") as error:
        getattr(owner, name)
    assert (error.value.name, error.value.obj is owner) == (name, True)
    assert not hasattr(owner, name)


def test_real_attributes_and_probes_of_python_stay_as_they_are(values):
    received = values["received"]
    assert (received.value, received.text, received.queue_offset) == (b"text", "text", 0)
    for owner in values.values():
        for again in (copy.copy(owner), copy.deepcopy(owner), pickle.loads(pickle.dumps(owner))):
            assert repr(again) == repr(owner)
        with pytest.raises(AttributeError, match=r"has no attribute '__array__'$"):
            _ = owner.__array__


def test_names_of_other_clients_are_not_listed(rocketpy_server):
    with rocketpy_server.producer("p") as producer:
        for listed in (dir(producer), dir(rocketpy.Producer)):
            assert "send" in listed
            assert not {"produce", "poll", "subscribe"} & {*listed}


def test_missing_attributes_stay_attribute_errors(rocketpy_server):
    with rocketpy_server.producer("p") as producer:
        assert not hasattr(producer, "produce")
        with pytest.raises(AttributeError, match=r"^'Producer' object has no attribute '__closed__'$"):
            _ = producer.__closed__
        with pytest.raises(AttributeError, match=r"^Mock object has no attribute 'produce'$"):
            mock.Mock(spec=producer).produce()


OPTIONS = [
    ("acks", r"the broker's flushDiskType and inSyncReplicas decide"),
    ("value_serializer", "a body is bytes: encode it yourself"),
    ("max_poll_records", r"write poll\(max_messages=\.\.\.\)"),
    ("session_timeout_ms", "brokers notice missed heartbeats by themselves"),
]


@pytest.mark.parametrize(("option", "said"), OPTIONS)
def test_an_option_of_another_client_without_equivalent_has_advice(option, said):
    for make in (
        lambda **options: rocketpy.Producer("g", **options),
        lambda **options: rocketpy.Consumer("g", "t", **options),
    ):
        with pytest.raises(TypeError, match=rf"^\w+ has no option \"{option}\" \({said}"):
            make(name_servers="h:1", **{option: 1})


LATE = [
    (rocketpy.PushConsumer, ("g",)),
    (rocketpy.AsyncPushConsumer, ("g",)),
    (rocketpy.AsyncConsumer, ("g", "t")),
    (rocketpy.AsyncProducer, ("g",)),
    (rocketpy.AsyncAdmin, ()),
]
"""Classes that connect at the start, with arguments."""


@pytest.mark.parametrize(("kind", "arguments"), LATE, ids=lambda one: getattr(one, "__name__", None))
def test_constructors_refuse_wrong_options_before_the_start(kind, arguments):
    said = rf"^{kind.__name__} has no option \"bootstrap_servers\" \(did you mean name_servers\?\); options: .*timeout"
    with pytest.raises(TypeError, match=said):
        kind(*arguments, bootstrap_servers="h:1")
    with pytest.raises(TypeError, match=r"^option api_timeout must be a number of seconds"):
        kind(*arguments, api_timeout="3 s")
    with pytest.raises(rocketpy.InvalidArgumentError, match=r"^option connect_timeout must be from 0 s"):
        kind(*arguments, connect_timeout=-1)
    with pytest.raises(rocketpy.InvalidArgumentError, match="not valid Unicode"):
        kind(*arguments, instance_name="\udcff")


@pytest.mark.parametrize("kind", [rocketpy.PushConsumer, rocketpy.AsyncPushConsumer])
def test_push_consumers_name_their_own_options(kind):
    for misspelt, option in [("concurency", "concurrency"), ("stop_timout", "stop_timeout")]:
        said = rf"^{kind.__name__} has no option \"{misspelt}\" \(did you mean {option}\?\)"
        with pytest.raises(TypeError, match=said):
            kind("g", **{misspelt: 3})
    with pytest.raises(rocketpy.InvalidArgumentError, match=r"^option max_retries is out of range: -1"):
        kind("g", max_retries=-1)
    with pytest.raises(TypeError, match=r"^balance must be a function of group, client_id, .* and takes \(queues\)"):
        kind("g", balance=lambda queues: queues)
    assert "not started" in repr(kind("g", balance=lambda group, client_id, queues, members: queues))


SCHEDULE = [
    (
        lambda: schedule.add("a", topic="jobs", at="x"),
        r'^schedule\.add has no option "at"; options: topic, body, cron, ',
    ),
    (lambda: schedule.add("a", topic="jobs", timezon="x"), r'^schedule\.add has no option "timezon" .*timezone\?'),
    (
        lambda: schedule.add(every=1, topc="x"),
        r"^schedule\.add has no option 'topc' .*topic\?\); schedule\.add\(name\)",
    ),
    (
        lambda: schedule.remove("a", name_server="h:1"),
        r'^schedule\.remove has no option "name_server" .*name_servers\?',
    ),
    (lambda: schedule.Scheduler(name_server="h:1"), r'^Scheduler has no option "name_server" .*name_servers\?'),
]


@pytest.mark.parametrize(("call", "said"), SCHEDULE)
def test_schedules_name_their_own_options(call, said):
    with pytest.raises(TypeError, match=said):
        call()


@pytest.mark.parametrize("kind", [rocketpy.PushConsumer, rocketpy.AsyncPushConsumer])
def test_handlers_with_a_misspelt_option_get_a_suggestion(kind):
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\.on has no option 'bacth' \(did you mean batch\?\)$"):
        kind("g").on("orders", bacth=3)


@pytest.mark.parametrize("kind", ["Producer", "Consumer", "Admin", "AsyncProducer", "AsyncConsumer"])
def test_options_in_a_dict_are_refused(kind):
    said = rf"^{kind} takes options by name, not as a dict: write {kind}\(\.\.\., name_servers='host:9876'\)"
    with pytest.raises(TypeError, match=said):
        getattr(rocketpy, kind)({"bootstrap.servers": "h:1"})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("KafkaProducer", "did you mean Producer"),
        ("KafkaConsumer", "did you mean Consumer"),
        ("AIOKafkaConsumer", "did you mean AsyncConsumer"),
        ("Producr", "did you mean Producer"),
    ],
)
def test_the_module_names_its_classes_for_those_of_other_clients(name, said):
    with pytest.raises(AttributeError, match=rf"^module 'rocketpy' has no attribute '{name}' \({said}\?\)$"):
        getattr(rocketpy, name)
    assert not hasattr(rocketpy, "__wrapped__")


ATTRIBUTES = [
    ("AsyncProducer", "submit", "write await send(message)"),
    ("AsyncProducer", "basic_publish", "write send(rocketpy.Message(topic, body))"),
    ("AsyncConsumer", "basic_ack", "did you mean commit?"),
    ("AsyncConsumer", "commitSync", "did you mean commit?"),
    ("AsyncConsumer", "getmany", "did you mean poll?"),
    ("PushConsumer", "nack", "a handler that raises has its message redelivered"),
    ("PushConsumer", "basic_consume", "did you mean on?"),
]


@pytest.mark.parametrize(("kind", "name", "said"), ATTRIBUTES)
def test_methods_of_other_clients_are_explained(kind, name, said):
    made = getattr(rocketpy, kind)("g", *["t"] * (kind == "AsyncConsumer"))
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}' \({re.escape(said)}"):
        getattr(made, name)


@pytest.mark.parametrize(("kind", "arguments"), LATE[1:], ids=lambda one: getattr(one, "__name__", None))
def test_clients_of_a_loop_ask_for_async_with(kind, arguments):
    with pytest.raises(TypeError, match=rf"^{kind.__name__} needs `async with`, not `with`$"), kind(*arguments):
        pass


@pytest.mark.parametrize("client", ["Admin", "AsyncAdmin"])
def test_a_description_of_a_missing_topic_suggests_similar_names(strict_server, client):
    def described():
        with strict_server.admin() as admin:
            admin.describe_topic("mial")

    def later():
        servers = strict_server.name_servers
        in_loop(lambda: rocketpy.AsyncAdmin(servers), lambda admin: admin.describe_topic("mial"))

    with pytest.raises(rocketpy.TopicNotFoundError) as missing:
        described() if client == "Admin" else later()
    assert missing.value.hint.startswith("did you mean mails? If not, ")


def test_a_message_names_the_place_of_its_body():
    with pytest.raises(TypeError, match=r"\(the body is the second argument: rocketpy\.Message\(topic, body\)\)"):
        rocketpy.Message("mails", b"text", value=b"text")


COMMIT = r"Consumer\.commit\(\) takes no message: .* commit_offsets\(\{message\.queue: message\.queue_offset \+ 1\}\)"


def test_a_commit_of_a_message_names_the_call_for_it(rocketpy_server, rocketpy_topic):
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic) as consumer:
        with pytest.raises(TypeError, match=f"^{COMMIT}"):
            consumer.commit("message")

    def joins():
        return rocketpy.AsyncConsumer(fresh_name(), rocketpy_topic, name_servers=rocketpy_server.name_servers)

    with pytest.raises(TypeError, match=f"^Async{COMMIT}"):
        in_loop(joins, lambda consumer: consumer.commit("message"))


def test_an_error_inside_a_constructor_stays_as_it_is():
    with pytest.raises(TypeError, match=r"^group must be a str, not int$"):
        rocketpy.Consumer(5, "t")
    with pytest.raises(TypeError, match=r"^Producer has no option .*; options: send_timeout, "):
        rocketpy.Producer("g", name_servers="h:1", bootstrap_servers="h:1")


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory):
    """A server that creates no topic by itself, with the topic `mails` and the consumer group `mailer`."""
    settings = SMALL_FILES | {"autoCreateTopicEnable": False}
    with rocketpy.Server(tmp_path_factory.mktemp("strict") / "store", settings=settings) as server:
        with server.admin() as admin:
            admin.create_topic("mails", queues=1)
            admin.create_group("mailer")
        with server.consumer("mailer", "mails"):
            yield server


def sent(server, call, message):
    with server.producer("p") as producer:
        getattr(producer, call)(message)


def sent_later(server, call, message):
    in_loop(lambda: rocketpy.AsyncProducer("p", name_servers=server.name_servers), lambda p: getattr(p, call)(message))


def joined(server, *place, **options):
    server.consumer(*place, **options)


def joined_later(server, *place):
    async def nothing(_consumer): ...

    in_loop(lambda: rocketpy.AsyncConsumer(*place, name_servers=server.name_servers), nothing)


def handled(server, group, topic):
    consumer = server.push_consumer(group)
    consumer.on(topic)(print)
    consumer.start()


MISSPELT = "did you mean mails? If not, create it with `rocketpy topic create mials`"
SWAPPED_NAMES = "group and topic look swapped: mails is a topic, and mailer is a consumer group; the group comes first"
MESSAGE = rocketpy.Message("mials", b"text")
MISSING = [
    (lambda s: joined(s, "g", "mials"), MISSPELT),
    (lambda s: joined(s, "g", ["mails", "Mials"]), MISSPELT.replace("mials", "Mials")),
    (lambda s: joined_later(s, "g", "mials"), MISSPELT),
    (lambda s: handled(s, "g", "mials"), MISSPELT),
    *[(lambda s, call=call: sent(s, call, MESSAGE), MISSPELT) for call in ("send", "submit", "send_oneway", "request")],
    *[(lambda s, call=call: sent_later(s, call, MESSAGE), MISSPELT) for call in ("send", "send_oneway", "request")],
    (lambda s: beginning(s, "transaction", [MESSAGE]), MISSPELT),
    (lambda s: sent(s, "send_many", [MESSAGE]), MISSPELT),
    (lambda s: sent_later(s, "send_many", [MESSAGE]), MISSPELT),
    (lambda s: sent(s, "queues", "mials"), MISSPELT),
    (lambda s: sent_later(s, "queues", "mials"), MISSPELT),
    (lambda s: joined(s, "mails", "mailer"), SWAPPED_NAMES),
    (lambda s: joined_later(s, "mails", "mailer"), SWAPPED_NAMES),
    (lambda s: handled(s, "mails", "mailer"), SWAPPED_NAMES),
    (lambda s: joined(s, "mails", "other"), "group and topic look swapped: mails is a topic; the group comes first"),
    (lambda s: joined(s, "g", "mailer"), "mailer is a consumer group: give the name of a topic; `rocketpy topic list`"),
    (lambda s: joined(s, "g", "orders"), "check its name, or create it with `rocketpy topic create orders`"),
    (lambda s: joined(s, "g", ["mails", "orders"]), "check its name, or create it with `rocketpy topic create orders`"),
    (lambda s: joined(s, "g", "mials", namespace="n"), "check its name, or create it with `rocketpy topic create n%mi"),
]


@pytest.mark.parametrize(("use", "hint"), MISSING)
def test_a_missing_topic_has_the_hint_of_its_cause(strict_server, use, hint):
    with pytest.raises(rocketpy.TopicNotFoundError) as missing:
        use(strict_server)
    assert missing.value.hint.startswith(hint)
    assert missing.value.__notes__ == [f"hint: {missing.value.hint}"]


def test_names_of_topics_are_requested_once_and_only_after_a_failure(strict_server, monkeypatch):
    requests = []
    requested = TopicNames._requested
    monkeypatch.setattr(TopicNames, "_requested", lambda names: requests.append(1) or requested(names))
    monkeypatch.setattr(TopicNames, "_kept", ([], 0.0, []))
    with strict_server.producer("p") as producer, strict_server.consumer("g", "mails"):
        producer.send(rocketpy.Message("mails", b"text"))
        assert not requests
        for _ in range(3):
            with pytest.raises(rocketpy.TopicNotFoundError):
                producer.send(MESSAGE)
    assert len(requests) == 1


def test_the_error_stays_as_it_is_if_no_name_server_has_names():
    error = rocketpy.TopicNotFoundError("no route for topic: mials", hint="check its name")
    TopicNames(["127.0.0.1:1"], {}).explain(error, ["mials"])
    assert error.hint == "check its name"
