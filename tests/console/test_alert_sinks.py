"""Webhook and mail against receivers on loopback that refuse, fail, hang, redirect, or have a wrong certificate."""

from __future__ import annotations

import asyncio
import email
import email.policy
import json
import time
from typing import TYPE_CHECKING

import pytest

import ports
import waiting
from alert_sinks import HttpSink, SmtpSink, listening, trusting
from rocketpy.console.alerts.delivery import MAX_PAUSE, Delivery, pause_after
from rocketpy.console.alerts.engine import Step
from rocketpy.console.alerts.records import Channel, Notice
from rocketpy.console.alerts.smtp import Mail, MailServer, addresses, mail_server, mail_server_of
from rocketpy.console.alerts.store import AlertStore
from rocketpy.console.alerts.webhook import DeliveryError, Webhook, check_address, literal_address, parsed, shown_url
from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import Path


def notice(number: int = 1, channel: str = "hook", kind: str = "firing", subject: str = "mailer") -> Notice:
    text = f"Group {subject} has {number} messages of lag."
    return Notice(f"id{number}", 1_700_000_000_000, kind, channel, "r", "Lag", "lag", subject, number, 1, 0, text)  # type: ignore[arg-type]


def test_webhook_posts_json_with_names_and_figures() -> None:
    sink = HttpSink()
    with listening(sink.serve) as port:
        Webhook(f"http://127.0.0.1:{port}/in?a=b").send([notice(1), notice(2)], "shop")
    head, body = sink.requests[0]
    assert head.startswith(b"POST /in?a=b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % port)
    found = json.loads(body)
    assert (found["cluster"], found["text"]) == (
        "shop",
        "Group mailer has 1 messages of lag.\nGroup mailer has 2 messages of lag.",
    )
    assert found["alerts"][0] == {
        "id": "id1",
        "kind": "firing",
        "time": "2023-11-14T22:13:20.000Z",
        "rule": "Lag",
        "condition": "lag",
        "group": "mailer",
        "value": 1,
        "threshold": 1,
        "unit": "messages",
        "since": "1970-01-01T00:00:00.000Z",
        "text": "Group mailer has 1 messages of lag.",
    }


def test_webhook_over_tls_verifies_the_certificate() -> None:
    sink = HttpSink(tls=True)
    with listening(sink.serve) as port:
        Webhook(f"https://127.0.0.1:{port}/", context=trusting()).send([notice()], "shop")
        for context in (trusting("other-ca"), None):
            with pytest.raises(DeliveryError, match="certificate of the webhook is not valid"):
                Webhook(f"https://127.0.0.1:{port}/", context=context).send([notice()], "shop")
    assert len(sink.requests) == 1


def test_webhook_over_tls_verifies_the_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = HttpSink(tls=True)
    with listening(sink.serve) as port:
        found = [(2, 1, 6, "", ("127.0.0.1", port))]
        monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found)
        with pytest.raises(DeliveryError, match=r"certificate of the webhook is not valid: Hostname mismatch"):
            Webhook(f"https://hooks.example.com:{port}/", context=trusting()).send([notice()], "shop")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 500 Oops\r\n\r\n", "webhook answered 500"),
        (b"HTTP/1.1 404 No\r\n\r\n", "webhook answered 404"),
        (
            b"HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
            "webhook answered 302: redirects are not followed",
        ),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "cannot reach the webhook: the answer is not HTTP"),
        (b"", "cannot reach the webhook: the connection was closed without an answer"),
        (b"HTTP/1.1 2", "cannot reach the webhook: the answer is not HTTP"),
        (b"x" * 100_000, "cannot reach the webhook: the answer is not HTTP"),
    ],
)
def test_webhook_with_a_wrong_answer_fails(answer: bytes, text: str) -> None:
    sink = HttpSink(answer)
    with listening(sink.serve) as port, pytest.raises(DeliveryError) as caught:
        Webhook(f"http://127.0.0.1:{port}/").send([notice()], "shop")
    assert str(caught.value) == text


def test_webhook_that_refuses_the_connection_fails() -> None:
    with pytest.raises(DeliveryError, match="cannot reach the webhook: Connection refused"):
        Webhook(f"http://127.0.0.1:{ports.free_port()}/").send([notice()], "shop")


def test_webhook_that_hangs_fails_after_the_timeout() -> None:
    with listening(HttpSink(None).serve) as port, pytest.raises(DeliveryError, match=r"did not answer in 0\.2 s"):
        Webhook(f"http://127.0.0.1:{port}/", timeout=0.2).send([notice()], "shop")


def test_webhook_that_answers_byte_by_byte_fails_after_the_timeout() -> None:
    def drip(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.settimeout(0.02)
        while True:
            connection.sendall(b"H")
            try:
                if not connection.recv(1):
                    return
            except TimeoutError:
                continue

    with listening(drip) as port, pytest.raises(DeliveryError, match=r"did not answer in 0\.3 s|is not HTTP"):
        Webhook(f"http://127.0.0.1:{port}/", timeout=0.3).send([notice()], "shop")


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "https://",
        "https://ada:secret@example.com/",
        "https://example.com/#a",
        "https://example.com:99999/",
        "https://exa mple.com/",
        "https://example.com/\r\nX: y",
        "https://example.com/" + "a" * 3000,
        "https://169.254.169.254/latest/meta-data",
        "https://[fe80::1]/",
        "https://[fe80::1%25eth0]/",
        "https://[::ffff:169.254.169.254]/",
        "https://[fd00:ec2::254]/",
        "https://[64:ff9b::a9fe:a9fe]/",
        "https://[2002:a9fe:a9fe::1]/",
        "https://100.100.100.200/",
        "https://0.0.0.0/",
        "https://224.0.0.1/",
        "https://[::]/",
        "http://[::ffff:10.0.0.1]/",
    ],
)
def test_webhook_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parsed(url)


@pytest.mark.parametrize(
    "url", ["https://example.com", "http://localhost:80/x", "http://[::1]:8080/", "https://10.0.0.7/"]
)
def test_webhook_url_is_accepted(url: str) -> None:
    assert parsed(url).port


def test_webhook_name_that_resolves_to_metadata_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for host, text in (
        ("169.254.169.254", "must not connect to address"),
        ("10.0.0.1", "must not use http to address"),
    ):
        monkeypatch.setattr("socket.getaddrinfo", lambda *_, host=host, **__: [(2, 1, 6, "", (host, 80))])
        with pytest.raises(DeliveryError, match=text):
            Webhook("http://localhost/").send([notice()], "shop")


def test_public_address_may_be_reached() -> None:
    address = literal_address("93.184.215.14")
    assert address is not None
    check_address(address)


def test_shown_url_hides_the_path() -> None:
    assert shown_url("https://hooks.example.com:8443/T0/secret?token=x") == "https://hooks.example.com:8443/•••"


def server(port: int, *, implicit: bool = False, password: str | None = None) -> MailServer:
    return MailServer("localhost", port, implicit, "ada" if password else None, "console@example.com", password)


@pytest.mark.parametrize("implicit", [True, False])
def test_mail_is_sent_over_tls_with_a_login(implicit: bool) -> None:
    sink = SmtpSink(implicit=implicit, password="secret words")
    with listening(sink.serve) as port:
        given = server(port, implicit=implicit, password="secret words")
        Mail(given, "ops@example.com, dev@example.com", context=trusting()).send([notice(1), notice(2)], "shop")
    mail = email.message_from_bytes(sink.mails[0], policy=email.policy.default)
    assert mail["Subject"] == "[shop] Group mailer has 1 messages of lag. (+1 more)"
    assert (mail["From"], mail["To"]) == ("console@example.com", "ops@example.com, dev@example.com")
    assert "firing  Group mailer has 2 messages of lag.  (rule: Lag)" in mail.get_content()
    commands = [line.split()[0].upper() for line in sink.lines]
    assert implicit or commands.index(b"STARTTLS") < commands.index(b"AUTH")


def test_mail_with_hostile_names_has_no_further_headers() -> None:
    sink = SmtpSink()
    with listening(sink.serve) as port:
        hostile = notice(subject="a\r\nBcc: mallory@example.com\r\n\r\n\u202e\x1b[31m" + "é" * 300)
        Mail(server(port), "ops@example.com", context=trusting()).send([hostile], "sh\nop")
    mail = email.message_from_bytes(sink.mails[0], policy=email.policy.default)
    assert mail["Bcc"] is None
    assert "\n" not in mail["Subject"]
    assert "\x1b" not in mail.get_content()


def test_mail_server_without_starttls_gets_no_mail() -> None:
    sink = SmtpSink(starttls=False, password="secret words")
    with listening(sink.serve) as port, pytest.raises(DeliveryError, match="does not offer STARTTLS"):
        Mail(server(port, password="secret words"), "ops@example.com", context=trusting()).send([notice()], "shop")
    assert {line.split()[0] for line in sink.lines} == {b"ehlo"}


@pytest.mark.parametrize("implicit", [True, False])
def test_mail_server_with_a_wrong_certificate_gets_no_login(implicit: bool) -> None:
    sink = SmtpSink(implicit=implicit, password="secret words")
    with listening(sink.serve) as port:
        mail = Mail(
            server(port, implicit=implicit, password="secret words"), "a@example.com", context=trusting("other-ca")
        )
        with pytest.raises(DeliveryError, match="certificate of the mail server is not valid"):
            mail.send([notice()], "shop")
    assert not any(line.startswith(b"AUTH") for line in sink.lines)


def test_mail_error_of_a_login_does_not_show_the_password() -> None:
    with listening(SmtpSink(password="other").serve) as port, pytest.raises(DeliveryError) as caught:
        Mail(server(port, password="secret words"), "a@example.com", context=trusting()).send([notice()], "shop")
    assert str(caught.value) == "mail server refused the login of ada: 535"
    assert "secret words" not in repr(server(1, password="secret words"))


def test_mail_server_that_refuses_fails() -> None:
    sink = SmtpSink(data="451 later")
    with listening(sink.serve) as port:
        with pytest.raises(DeliveryError, match="mail server answered 451"):
            Mail(server(port), "a@example.com", context=trusting()).send([notice()], "shop")
        sink.data, sink.refused_recipients = "250 stored", {b"dev"}
        with pytest.raises(DeliveryError, match="mail server refused 1 of 2 recipients"):
            Mail(server(port), "a@example.com,dev@example.com", context=trusting()).send([notice()], "shop")
    with pytest.raises(DeliveryError, match="cannot reach the mail server: Connection refused"):
        Mail(server(ports.free_port()), "a@example.com", context=trusting()).send([notice()], "shop")


def test_mail_server_that_hangs_fails_after_the_timeout() -> None:
    with listening(lambda connection: connection.recv(1) and None) as port:
        with pytest.raises(DeliveryError, match=r"mail server closed the connection or did not answer in 0\.2 s"):
            Mail(server(port), "a@example.com", context=trusting(), timeout=0.2).send([notice()], "shop")


def test_mail_server_that_drips_its_greeting_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketpy.console.alerts.smtp.SESSION_SECONDS", 0.3)

    def drip(connection: socket.socket) -> None:
        connection.settimeout(0.02)
        while True:
            connection.sendall(b"2")
            try:
                if not connection.recv(1):
                    return
            except TimeoutError:
                continue

    began = time.monotonic()
    with listening(drip) as port, pytest.raises(DeliveryError, match="mail server"):
        Mail(server(port), "a@example.com", context=trusting(), timeout=5).send([notice()], "shop")
    assert time.monotonic() - began < 60, "the session ended by the maximum length of a line"


def test_mail_server_of_the_environment_reads_the_password_from_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret words\n")
    file.chmod(0o600)
    names = {
        "ROCKETPY_CONSOLE_SMTP": "smtp://ada%40shop@mail.example.com",
        "ROCKETPY_CONSOLE_SMTP_FROM": "console@example.com",
        "ROCKETPY_CONSOLE_SMTP_PASSWORD_FILE": str(file),
    }
    found = mail_server_of(names)
    assert found == MailServer("mail.example.com", 587, False, "ada@shop", "console@example.com", "secret words")
    assert found.shown == "smtp://mail.example.com:587"
    file.chmod(0o644)
    with pytest.raises(InvalidArgumentError, match="other users can read"):
        mail_server_of(names)
    assert mail_server_of({}) is None


@pytest.mark.parametrize(
    "url", ["http://a", "smtp://", "smtp://ada:secret@a", "smtp://ada@a", "smtps://a/x", "smtps://a:99999", "a:25"]
)
def test_mail_server_url_is_refused_without_its_secret(url: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        mail_server(url, "a@example.com")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "ops", "a@b,", "a@b\r\nBcc: c@d", "<a@b>", "-a@b", "é@b", ",".join(["a@b"] * 21)])
def test_mail_addresses_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        addresses(text)


class FailingSink:
    """Sink that fails some times, then keeps what it gets."""

    def __init__(self, failures: int) -> None:
        self.failures, self.batches = failures, list[list[str]]()

    def send(self, notices: Sequence[Notice], cluster: str) -> None:
        if self.failures:
            self.failures -= 1
            raise DeliveryError("receiver is down")
        self.batches.append([one.id for one in notices])


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def until(delivery: Delivery, channel: str) -> None:
    """Waits until the delivery of a channel has ended."""
    delivery.start_due()
    async with asyncio.timeout(30):
        while delivery.state(channel).is_busy:
            await asyncio.sleep(0)


def test_delivery_keeps_notifications_of_a_failing_receiver_and_pauses_longer_each_time() -> None:
    store, sink, clock = AlertStore(), FailingSink(5), Clock()
    store.put(Channel("hook", "webhook", "https://example.com/"))
    store.commit(Step(notices=[notice(1), notice(2, kind="resolved")]))

    async def main() -> list[float]:
        delivery, pauses = Delivery(store, lambda _: sink, lambda: "shop", clock), list[float]()
        for number in range(1, 6):
            await until(delivery, "hook")
            state = delivery.state("hook")
            assert (state.failures, state.error) == (number, "receiver is down")
            assert len(store.notices("hook")) == 2
            pauses.append(state.next_at - clock.now)
            before = len(sink.batches), sink.failures
            clock.now = state.next_at - 0.01
            await until(delivery, "hook")
            assert (len(sink.batches), sink.failures) == before, "an attempt within the pause"
            clock.now = state.next_at
        await until(delivery, "hook")
        assert (delivery.state("hook").failures, delivery.state("hook").error) == (0, None)
        return pauses

    pauses = asyncio.run(main())
    assert all(0.8 * pause_after(at + 1) <= pause <= 1.2 * pause_after(at + 1) for at, pause in enumerate(pauses))
    assert sink.batches == [["id1", "id2"]]
    assert store.notices() == []


def test_pause_has_a_maximum() -> None:
    assert pause_after(10**6) == MAX_PAUSE


def test_failing_receiver_does_not_hold_back_the_others() -> None:
    store = AlertStore()
    sinks: dict[str, FailingSink] = {"bad": FailingSink(10**6), "good": FailingSink(0)}
    for name in sinks:
        store.put(Channel(name, "webhook", "https://example.com/"))
    store.commit(Step(notices=[notice(1, "bad"), notice(2, "good"), notice(3, "gone")]))

    async def main() -> None:
        delivery = Delivery(store, lambda channel: sinks[channel.name])
        task = asyncio.create_task(delivery.run())
        async with asyncio.timeout(30):
            while not sinks["good"].batches or store.notices("good"):
                await asyncio.sleep(0)
        task.cancel()

    asyncio.run(main())
    assert [one.channel for one in store.notices()] == ["bad", "gone"]


def test_sink_with_a_defect_counts_as_a_failure() -> None:
    store = AlertStore()
    store.put(Channel("hook", "webhook", "https://example.com/"))
    store.commit(Step(notices=[notice()]))

    def broken(_: Channel) -> FailingSink:
        raise ValueError("defect")

    async def main() -> str | None:
        delivery = Delivery(store, broken)
        await until(delivery, "hook")
        return delivery.state("hook").error

    assert asyncio.run(main()) == "ValueError: defect"
    assert len(store.notices()) == 1


def test_delivery_that_hangs_does_not_delay_the_end() -> None:
    with listening(HttpSink(None).serve) as port:
        store = AlertStore()
        store.put(Channel("hook", "webhook", f"http://127.0.0.1:{port}/"))
        store.commit(Step(notices=[notice()]))

        async def main() -> None:
            delivery = Delivery(store, lambda channel: Webhook(channel.target))
            task = asyncio.create_task(delivery.run())
            async with asyncio.timeout(30):
                while not delivery.state("hook").is_busy:
                    await asyncio.sleep(0)
            task.cancel()

        asyncio.run(main())
    waiting.wait_until(lambda: len(store.notices()) == 1)
