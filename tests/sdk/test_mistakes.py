"""Mistakes of people who come from other clients: the error names the mistake first, then what to write."""

import asyncio

import pytest

import rocketpy
from rocketpy.testing import fresh_name

SWAPPED = ("mails", b"text")


def in_loop(make, use):
    async def run():
        async with make() as client:
            await use(client)

    asyncio.run(run())


def sending(server, call):
    with server.producer("p") as producer:
        getattr(producer, call)(*SWAPPED)


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
]


@pytest.mark.parametrize(("use", "said"), CALLS)
def test_a_call_of_another_client_is_explained(rocketpy_server, use, said):
    with pytest.raises(TypeError, match=f"^{said}"):
        use(rocketpy_server)


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
