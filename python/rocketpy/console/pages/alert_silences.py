"""Silences of alerts: the list, create, and end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketpy.base.instant import datetime_of
from rocketpy.console.alerts.amounts import parsed_amount
from rocketpy.console.alerts.records import Silence, shown
from rocketpy.console.alerts.rules import new_id
from rocketpy.console.alerts.webhook import iso
from rocketpy.console.pages.alerts import watch_of
from rocketpy.console.tables import page_of
from rocketpy.console.view import FormError, PageNotFoundError
from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.responses import Response

    from rocketpy.console.view import View


@dataclass(frozen=True, slots=True)
class SilenceRow:
    """One silence."""

    id: str
    rule: str
    """Name of the rule; empty for every rule."""
    subject: str
    begins: datetime | None
    ends: datetime | None
    by: str
    reason: str
    is_over: bool
    alerts: int
    """Number of alerts that it silences now."""


def row_of(view: View, one: Silence) -> SilenceRow:
    """Row of a silence."""
    watch = watch_of(view)
    now = watch.now()
    rule = watch.rule(one.rule_id)
    return SilenceRow(
        one.id,
        "" if not one.rule_id else rule.name if rule else "(deleted rule)",
        one.subject,
        datetime_of(one.from_ms),
        datetime_of(one.until_ms),
        one.by,
        one.reason,
        one.until_ms <= now,
        sum(one.covers(alert.rule_id, alert.subject, now) for alert in watch.alerts),
    )


async def index(view: View) -> Response:
    """The list of silences."""
    watch = watch_of(view)
    rows = page_of([row_of(view, one) for one in watch.store.silences], view.query)
    return view.answer("alert_silences.html", rows, is_kept=watch.store.path is not None)


async def create(view: View) -> Response:
    """Creates a silence."""
    watch = watch_of(view)
    if not view.is_post:
        given = {"rule": view.query.get("rule", ""), "subject": view.query.get("subject", "*"), "for": "2 h"}
        return shown_form(view, {"reason": "", **given}, "")
    form = {"rule": "", "subject": "", "for": "", "reason": ""} | await view.form()
    try:
        silence = silence_of(view, form)
    except (FormError, InvalidArgumentError) as error:
        if view.as_json:
            raise FormError(str(error)) from None
        return shown_form(view, form, str(error))
    rule = watch.rule(silence.rule_id)
    what = f"{rule.name if rule else 'all rules'} on {silence.subject}"
    parameters = {"until": iso(silence.until_ms), "reason": silence.reason}
    async with view.act("create silence", what, parameters=parameters) as done:
        await watch.put_silence(silence)
        done.result(f"Silenced for {form['for'].strip()}: {what}.")
    return view.back(view.url("alerts", "silences"), done.text)


def silence_of(view: View, form: dict[str, str]) -> Silence:
    """Silence of a form.

    Raises:
        FormError: The rule is unknown.
        InvalidArgumentError: Another value is wrong.
    """
    watch = watch_of(view)
    if form["rule"] and watch.rule(form["rule"]) is None:
        raise FormError("no such rule")
    now = watch.now()
    until = now + round(parsed_amount("time", form["for"], "seconds") * 1000)
    by = view.session.user or f"({view.session.role})"
    return Silence(new_id(), form["rule"], form["subject"].strip(), now, until, by, form["reason"].strip())


def shown_form(view: View, given: dict[str, str], error: str) -> Response:
    """Page of the form."""
    rules = watch_of(view).store.rules
    if view.as_json:
        return view.json({"form": given})
    return view.render("alert_silence.html", 400 if error else 200, data=given, error=error, rules=rules)


async def end(view: View) -> Response:
    """Ends a silence."""
    watch = watch_of(view)
    silence = next((one for one in watch.store.silences if one.id == view.path["silence"]), None)
    if silence is None:
        raise PageNotFoundError("no such silence")
    async with view.act("end silence", silence.subject, before={"reason": silence.reason}) as done:
        await watch.end_silence(silence)
        done.result(f"Silence of {shown(silence.subject)} has ended.")
    return view.back(view.url("alerts", "silences"), done.text)
