"""Channels of alerts: webhooks and mail addresses, with a test. Only administrators change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from rocketpy.console.alerts.records import Channel
from rocketpy.console.alerts.smtp import SENDER, SERVER
from rocketpy.console.alerts.webhook import DeliveryError, shown_url
from rocketpy.console.names import span_text
from rocketpy.console.pages.alerts import watch_of
from rocketpy.console.steps import Preview, Row, is_preview, shown_preview
from rocketpy.console.view import FormError, PageNotFoundError
from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    from starlette.responses import Response

    from rocketpy.console.alerts import AlertWatch
    from rocketpy.console.view import View


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """One channel; the path of a webhook is a secret and not shown."""

    name: str
    kind: str
    target: str
    waiting: int
    """Number of notifications that wait."""
    failures: int
    """Number of failed attempts in a row."""
    error: str | None
    rules: int
    """Number of rules that name it."""


def shown_target(channel: Channel) -> str:
    """Target without secrets."""
    return shown_url(channel.target) if channel.kind == "webhook" else channel.target


def row_of(watch: AlertWatch, channel: Channel) -> ChannelRow:
    """Row of a channel."""
    state = watch.delivery.state(channel.name)
    return ChannelRow(
        channel.name,
        channel.kind,
        shown_target(channel),
        len(watch.store.notices(channel.name)),
        state.failures,
        state.error,
        sum(rule.channel == channel.name for rule in watch.store.rules),
    )


def found_channel(view: View) -> Channel:
    """Channel of the path.

    Raises:
        PageNotFoundError: There is none.
    """
    found = next((one for one in watch_of(view).store.channels if one.name == view.path["channel"]), None)
    if found is None:
        raise PageNotFoundError("no such channel")
    return found


async def index(view: View) -> Response:
    """The list of channels."""
    watch = watch_of(view)
    rows = tuple(row_of(watch, channel) for channel in watch.store.channels)
    mail = None if watch.mail is None else watch.mail.shown
    is_kept = watch.store.path is not None
    return view.answer("alert_channels.html", rows, mail=mail, is_kept=is_kept, names=(SERVER, SENDER), span=span_text)


async def create(view: View) -> Response:
    """Creates a channel."""
    return await edited(view, None)


async def change(view: View) -> Response:
    """Changes the target of a channel."""
    return await edited(view, found_channel(view))


async def edited(view: View, before: Channel | None) -> Response:
    """Form and change of a channel. The form never has the URL of a webhook: it is typed anew."""
    watch = watch_of(view)
    empty = {"name": "", "kind": "webhook", "target": ""}
    if before is not None:
        empty |= {"name": before.name, "kind": before.kind}
        empty["target"] = "" if before.kind == "webhook" else before.target
    if not view.is_post:
        return shown_form(view, before, empty, "")
    form = empty | {name: text.strip() for name, text in (await view.form()).items()}
    try:
        channel = channel_of(form, before)
        if before is None and any(one.name == channel.name for one in watch.store.channels):
            raise FormError(f"channel exists: {channel.name}")
        if channel.kind == "mail" and watch.mail is None:
            raise FormError(f"this console has no mail server: start it with {SERVER} and {SENDER}")
        action = "create channel" if before is None else "change channel"
        was = None if before is None else {"to": shown_target(before)}
        now = {"kind": channel.kind, "to": shown_target(channel)}
        async with view.act(action, channel.name, before=was, parameters=now) as done:
            await watch.put_channel(channel)
            done.result(f"Channel {channel.name} is stored.", now)
    except (FormError, InvalidArgumentError) as error:
        if view.as_json:
            raise FormError(str(error)) from None
        return shown_form(view, before, form, str(error))
    return view.back(view.url("alerts", "channels"), done.text)


def channel_of(form: dict[str, str], before: Channel | None) -> Channel:
    """Channel of a form.

    Raises:
        FormError: The kind is unknown.
        InvalidArgumentError: The name is wrong.
    """
    kind = before.kind if before else form["kind"]
    if kind not in {"webhook", "mail"}:
        raise FormError("choose webhook or mail")
    return Channel(before.name if before else form["name"], cast("Literal['webhook', 'mail']", kind), form["target"])


def shown_form(view: View, before: Channel | None, given: dict[str, str], error: str) -> Response:
    """Page of the form."""
    kept = "" if before is None else shown_target(before)
    if view.as_json:
        return view.json({"form": given, "target": kept})
    mail = watch_of(view).mail is not None
    return view.render(
        "alert_channel.html", 400 if error else 200, data=given, error=error, before=before, kept=kept, mail=mail
    )


async def test(view: View) -> Response:
    """Sends a test."""
    channel = found_channel(view)
    async with view.act("test channel", channel.name, parameters={"to": shown_target(channel)}) as done:
        try:
            await watch_of(view).test(channel)
        except DeliveryError as error:
            done.result(f"Test of channel {channel.name} failed: {error}.")
            is_sent = False
        else:
            done.result(f"Test of channel {channel.name} was accepted.")
            is_sent = True
    if view.as_json:
        return view.json({"result": done.text}, 200 if is_sent else 502)
    return view.back(view.url("alerts", "channels"), done.text)


async def retry(view: View) -> Response:
    """Delivers what waits now."""
    channel = found_channel(view)
    async with view.act("retry channel", channel.name) as done:
        watch_of(view).delivery.retry_now(channel.name)
        done.result(f"Channel {channel.name} is tried again now.")
    return view.back(view.url("alerts", "channels"), done.text)


async def delete(view: View) -> Response:
    """Deletes a channel."""
    channel, watch = found_channel(view), watch_of(view)
    form = await view.form()
    if is_preview(form):
        waiting = len(watch.store.notices(channel.name))
        notes = (f"{waiting:,} notifications that wait for it are dropped.",) if waiting else ()
        title, back = f"Delete channel {channel.name}", view.url("alerts", "channels")
        rows = (Row("Target", shown_target(channel), None),)
        return shown_preview(view, Preview(title, title, view.same(), back, rows, notes=notes, is_danger=True))
    async with view.act("delete channel", channel.name, before={"to": shown_target(channel)}) as done:
        await watch.delete_channel(channel)
        done.result(f"Channel {channel.name} is deleted.")
    return view.back(view.url("alerts", "channels"), done.text)
