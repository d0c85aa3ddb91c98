"""Spans of sends and of work on messages, as OpenTelemetry's SDK exports them."""

import asyncio

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import rocketpy
from rocketpy.otel import extract, inject, instrument, process_span
from rocketpy.testkit import drain, fresh_name
from waiting import wait_until


class Traces:
    """A provider of tracers, and the spans that ended."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self):
        return self.exporter.get_finished_spans()

    def only(self):
        (span,) = self.spans()
        return span


@pytest.fixture
def traces():
    traces = Traces()
    yield traces
    traces.provider.shutdown()


@pytest.fixture
def traced(producer, traces):
    return instrument(producer, tracer_provider=traces.provider)


@pytest.fixture
def receive(rocketpy_server, rocketpy_topic):
    """Reads what the topic holds."""

    def read():
        with rocketpy_server.consumer(fresh_name("otel"), rocketpy_topic) as consumer:
            return drain(consumer)

    return read


def test_a_send_is_a_span_with_the_attributes_of_the_conventions(traced, traces, rocketpy_topic):
    message = rocketpy.Message(rocketpy_topic, b"12345", tag="paid", keys=["A", "B"], order_key="o")
    receipt = traced.send(message)
    span = traces.only()
    assert (span.name, span.kind, span.status.status_code) == (
        f"send {rocketpy_topic}",
        SpanKind.PRODUCER,
        StatusCode.UNSET,
    )
    assert dict(span.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": rocketpy_topic,
        "messaging.destination.partition.id": str(receipt.queue.queue_id),
        "messaging.client.id": traced.client_id,
        "messaging.message.id": receipt.msg_id,
        "messaging.message.body.size": 5,
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ("A", "B"),
        "messaging.rocketmq.message.group": "o",
    }
    assert message.properties == {}, "the given message is not changed"


def test_the_work_on_a_message_continues_the_trace_of_its_send(traced, traces, rocketpy_server, rocketpy_topic):
    traced.send(rocketpy.Message(rocketpy_topic, b"x", tag="t", keys="k", properties={"mine": "kept"}))
    send = traces.only()
    with rocketpy_server.consumer(fresh_name("otel"), rocketpy_topic) as consumer:
        (message,) = drain(consumer)
        trace_id, span_id = (f"{send.context.trace_id:032x}", f"{send.context.span_id:016x}")
        assert message.properties["traceparent"].startswith(f"00-{trace_id}-{span_id}-")
        assert (message.properties["mine"], message.tag, message.keys) == ("kept", "t", ("k",))
        with process_span(message, consumer=consumer, tracer_provider=traces.provider) as span:
            assert trace.get_current_span() is span
    _, process = traces.spans()
    assert (process.name, process.kind) == (f"process {rocketpy_topic}", SpanKind.CONSUMER)
    assert (process.parent.span_id, process.context.trace_id) == (send.context.span_id, send.context.trace_id)
    assert [link.context.span_id for link in process.links] == [send.context.span_id]
    assert dict(process.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": rocketpy_topic,
        "messaging.destination.partition.id": str(message.queue_id),
        "messaging.consumer.group.name": consumer.group,
        "messaging.client.id": consumer.client_id,
        "messaging.message.id": message.msg_id,
        "messaging.rocketmq.message.tag": "t",
        "messaging.rocketmq.message.keys": ("k",),
    }


def test_inside_another_span_the_work_is_its_child_with_a_link_to_the_send(traced, traces, rocketpy_topic, receive):
    traced.send(rocketpy.Message(rocketpy_topic, b"x"))
    (message,) = receive()
    with trace.get_tracer("app", None, traces.provider).start_as_current_span("loop") as loop:
        with process_span(message, tracer_provider=traces.provider):
            pass
    send, process, _ = traces.spans()
    assert process.parent.span_id == loop.get_span_context().span_id
    assert [link.context.span_id for link in process.links] == [send.context.span_id]


def test_work_on_a_batch_has_a_link_to_each_send(traced, traces, rocketpy_topic, receive):
    for number in range(3):
        traced.send(rocketpy.Message(rocketpy_topic, b"%d" % number))
    messages = receive()
    with process_span(messages, tracer_provider=traces.provider):
        pass
    *sends, process = traces.spans()
    assert process.parent is None
    assert {link.context.span_id for link in process.links} == {send.context.span_id for send in sends}
    assert process.attributes["messaging.batch.message_count"] == 3


def test_send_many_is_one_span_whose_context_every_message_carries(traced, traces, rocketpy_topic, receive):
    traced.send_many(rocketpy.Message(rocketpy_topic, b"%d" % number) for number in range(100))
    span = traces.only()
    assert span.attributes["messaging.batch.message_count"] == 100
    messages = receive()
    assert len(messages) == 100
    assert {trace.get_current_span(extract(message)).get_span_context().span_id for message in messages} == {
        span.context.span_id
    }


def test_the_span_of_a_submit_ends_with_its_outcome(traced, traces, rocketpy_topic, stoppable):
    receipt = traced.submit(rocketpy.Message(rocketpy_topic, b"x")).result(timeout=60)
    wait_until(traces.spans)
    assert traces.only().attributes["messaging.message.id"] == receipt.msg_id
    traces.exporter.clear()
    with rocketpy.Producer(fresh_name("p"), name_servers=[stoppable.name_server], send_timeout=60) as held:
        held.send(rocketpy.Message("t", b"first"))
        stoppable.freeze()
        future = instrument(held, tracer_provider=traces.provider).submit(rocketpy.Message("t", b"x"), timeout=1)
        assert traces.spans() == ()
        with pytest.raises(rocketpy.RequestTimeoutError):
            future.result(timeout=60)
        stoppable.thaw()
    wait_until(traces.spans)
    span = traces.only()
    assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, "RequestTimeoutError")


@pytest.mark.parametrize("call", ["send", "submit", "send_oneway", "send_many"])
def test_a_send_that_fails_is_a_span_with_its_error(traced, traces, call):
    message = rocketpy.Message("x", b"y", properties={"name": "v" * 40_000})
    with pytest.raises(rocketpy.InvalidArgumentError):
        getattr(traced, call)([message] if call == "send_many" else message)
    span = traces.only()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "MessageTooLargeError"
    assert [event.name for event in span.events] == ["exception"]


def test_work_that_fails_is_a_span_with_its_error(traces, producer, rocketpy_topic, receive):
    producer.send(rocketpy.Message(rocketpy_topic, b"without a context"))
    (message,) = receive()
    with pytest.raises(KeyError), process_span(message, tracer_provider=traces.provider):
        raise KeyError("missing")
    span = traces.only()
    assert (span.attributes["error.type"], span.status.status_code) == ("KeyError", StatusCode.ERROR)
    assert (span.parent, span.links) == (None, ())


def test_baggage_travels_too(traced, rocketpy_topic, receive):
    token = context.attach(baggage.set_baggage("tenant", "a;b=ü"))
    try:
        traced.send(rocketpy.Message(rocketpy_topic, b"x"))
    finally:
        context.detach(token)
    (message,) = receive()
    assert baggage.get_baggage("tenant", extract(message)) == "a;b=ü"


def test_a_copy_with_a_context_is_the_same_message_in_all_else(traces):
    fields = {"tag": "t", "keys": ["k"], "order_key": "o", "flag": 7, "wait_store_ok": False, "delay_level": 3}
    message = rocketpy.Message("t", b"x", properties={"traceparent": "old", "mine": "1"}, **fields)
    assert inject(message) is message, "there is nothing to carry"
    with trace.get_tracer("app", None, traces.provider).start_as_current_span("outer"):
        carrying = inject(message)
    expected = {"traceparent": carrying.properties["traceparent"], "mine": "1"}
    assert expected["traceparent"] != "old"
    assert carrying == rocketpy.Message("t", b"x", properties=expected, **fields)


def test_an_instrumented_producer_is_a_producer(traces, rocketpy_server, rocketpy_topic):
    with instrument(rocketpy_server.producer(fresh_name("p")), tracer_provider=traces.provider) as traced:
        assert isinstance(traced, rocketpy.Producer)
        assert traced.queues(rocketpy_topic)
        assert "instrumented <Producer" in repr(traced)
        with pytest.raises(AttributeError, match="transaction"):
            traced.transaction(rocketpy.Message(rocketpy_topic, b"x"))
        with pytest.raises(TypeError, match=r"message must be a rocketpy\.Message, not int"):
            traced.send_many(b"bytes")
    assert traced.closed
    with pytest.raises(TypeError, match="client must be a Producer, an AsyncProducer, a PushConsumer or an AsyncPush"):
        instrument("producer")


def test_messages_of_transactions_carry_their_span(traces, rocketpy_server, rocketpy_topic, receive):
    def check(message):
        return rocketpy.Decision.UNKNOWN

    with rocketpy_server.transaction_producer(fresh_name("p"), check, api_timeout=60, send_timeout=60) as producer:
        with instrument(producer, tracer_provider=traces.provider).transaction(rocketpy.Message(rocketpy_topic, b"x")):
            pass
    messages = []
    wait_until(lambda: messages.extend(receive()) or messages)
    span = traces.only()
    assert trace.get_current_span(extract(messages[0])).get_span_context().span_id == span.context.span_id
    assert span.attributes["messaging.message.id"] == messages[0].msg_id


def test_async_sends_are_spans_of_their_tasks(traces, rocketpy_server, rocketpy_topic, receive):
    tracer = trace.get_tracer("app", None, traces.provider)

    async def one(producer, number):
        with tracer.start_as_current_span(f"task {number}"):
            await producer.send(rocketpy.Message(rocketpy_topic, b"%d" % number))

    async def main():
        plain = rocketpy.AsyncProducer(
            fresh_name("aio"), name_servers=rocketpy_server.name_servers, send_timeout=60, api_timeout=60
        )
        async with instrument(plain, tracer_provider=traces.provider) as producer:
            await asyncio.gather(*(one(producer, number) for number in range(10)))
            await producer.send_many([rocketpy.Message(rocketpy_topic, b"many")])
            await producer.send_oneway(rocketpy.Message(rocketpy_topic, b"oneway"))
            with pytest.raises(rocketpy.InvalidArgumentError):
                await producer.send(rocketpy.Message("x", b"y", properties={"name": "v" * 40_000}))
        assert plain.closed

    asyncio.run(main())
    spans = traces.spans()
    tasks = {span.context.span_id: span for span in spans if span.name.startswith("task ")}
    sends = {span.context.span_id: span for span in spans if span.name == f"send {rocketpy_topic}"}
    assert (len(tasks), len(sends), len(spans)) == (10, 12, 23)
    of_tasks = [send for send in sends.values() if send.parent]
    assert {send.parent.span_id for send in of_tasks} == set(tasks)
    messages = receive()
    carried = {trace.get_current_span(extract(message)).get_span_context().span_id for message in messages}
    assert carried <= set(sends)
    assert len(carried) >= 11


def test_without_the_package_the_error_names_the_extra(child):
    ended = child(
        """
        import sys
        sys.modules["opentelemetry"] = None
        import rocketpy
        try:
            import rocketpy.otel
        except rocketpy.RocketPyError as error:
            print(error, error.hint)
        """
    )
    assert ended.stdout == 'opentelemetry-api is not installed pip install "rocketpy-mq[otel]"\n', ended.stderr


def test_the_handler_of_a_push_consumer_runs_in_a_span_of_its_own(traced, traces, rocketpy_server, rocketpy_topic):
    for body in [b"good", b"bad", b"later"]:
        traced.send(rocketpy.Message(rocketpy_topic, body))
    sends = {span.context.span_id: span.context.trace_id for span in traces.spans()}
    traces.exporter.clear()
    consumer = instrument(rocketpy_server.push_consumer(fresh_name("otel")), tracer_provider=traces.provider)
    assert isinstance(consumer, rocketpy.PushConsumer)

    @consumer.on(rocketpy_topic)
    def handle(message):
        trace.get_current_span().set_attribute("body", message.body)
        if message.reconsume_times == 0 and message.body == b"later":
            raise rocketpy.Retry("the bank sleeps", after=1)
        if message.body == b"bad":
            raise rocketpy.Reject("no such order")

    with consumer:
        wait_until(lambda: consumer.stats().consumed == 2 and consumer.stats().dead == 1)
    spans = [(span.attributes["body"], span.attributes.get("error.type"), span) for span in traces.spans()]
    outcomes = sorted((body, error) for body, error, _ in spans)
    assert outcomes == [(b"bad", "Reject"), (b"good", None), (b"later", None), (b"later", None)]
    for _, _, span in spans:
        assert (span.name, span.kind) == (f"process {rocketpy_topic}", SpanKind.CONSUMER)
        assert sends[span.parent.span_id] == span.context.trace_id, "also of the retry"
        assert span.attributes["messaging.client.id"] == consumer.client_id


@pytest.mark.parametrize("batch", [None, 8])
def test_an_async_handler_runs_in_a_span_too(traced, traces, rocketpy_server, rocketpy_topic, batch):
    traced.send_many([rocketpy.Message(rocketpy_topic, b"%d" % number, order_key="o") for number in range(4)])
    send = traces.only()
    consumer = instrument(rocketpy_server.push_consumer(fresh_name("otel")), tracer_provider=traces.provider)
    current = []

    @consumer.on(rocketpy_topic, batch=batch)
    async def handle(_):
        await asyncio.sleep(0)
        current.append(trace.get_current_span().get_span_context().span_id)

    with consumer:
        wait_until(lambda: consumer.stats().consumed == 4)
    _, *spans = traces.spans()
    assert sorted(current) == sorted(span.context.span_id for span in spans)
    assert all(link.context.span_id == send.context.span_id for span in spans for link in span.links)
    assert sum(span.attributes.get("messaging.batch.message_count", 1) for span in spans) == 4


def test_a_handler_in_the_loop_of_the_application_runs_in_a_span(traced, traces, rocketpy_server, rocketpy_topic):
    traced.send(rocketpy.Message(rocketpy_topic, b"one"))
    send = traces.only()
    current = []

    async def main():
        plain = rocketpy.AsyncPushConsumer(fresh_name("otel"), name_servers=rocketpy_server.name_servers)
        consumer, over = instrument(plain, tracer_provider=traces.provider), asyncio.Event()

        @consumer.on(rocketpy_topic)
        async def handle(_):
            current.append(trace.get_current_span().get_span_context().span_id)
            over.set()

        async with consumer:
            await over.wait()
        assert plain.closed

    asyncio.run(main())
    _, span = traces.spans()
    assert (span.parent.span_id, [span.context.span_id]) == (send.context.span_id, current)
