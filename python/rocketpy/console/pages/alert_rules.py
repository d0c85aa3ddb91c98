"""Rules of alerts: the list, and create, change and delete."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rocketpy.console.alerts.amounts import amount_text, parsed_amount
from rocketpy.console.alerts.records import spelled
from rocketpy.console.alerts.rules import ALL, CONDITIONS, NONE, Rule, new_id
from rocketpy.console.pages.alerts import watch_of
from rocketpy.console.steps import Preview, Row, is_preview, shown_preview
from rocketpy.console.view import FormError, PageNotFoundError
from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    from starlette.responses import Response

    from rocketpy.console.view import View


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One rule as the list shows it."""

    rule: Rule
    condition: str
    """Words of the condition with its threshold."""
    for_text: str
    repeat_text: str
    active: int
    """Number of its alerts that fire."""


@dataclass(frozen=True, slots=True)
class RuleForm:
    """Values of the form as texts."""

    name: str = ""
    condition: str = "lag"
    subject: str = "*"
    threshold: str = ""
    for_: str = "5 min"
    repeat: str = "4 h"
    channel: str = ALL
    enabled: str = "yes"


def condition_text(rule: Rule) -> str:
    """Words of a condition with its threshold."""
    label = CONDITIONS[rule.condition].label
    return f"{label} {spelled(rule.threshold, rule.unit)}" if rule.unit else label


def row_of(rule: Rule, active: int) -> RuleRow:
    """Row of a rule."""
    repeat = spelled(rule.repeat_seconds, "seconds") if rule.repeat_seconds else "once"
    return RuleRow(rule, condition_text(rule), spelled(rule.for_seconds, "seconds"), repeat, active)


def form_of(rule: Rule) -> RuleForm:
    """Form of a rule."""
    return RuleForm(
        rule.name,
        rule.condition,
        rule.subject,
        amount_text(rule.threshold, rule.unit) if rule.unit else "",
        amount_text(rule.for_seconds, "seconds"),
        amount_text(rule.repeat_seconds, "seconds") if rule.repeat_seconds else "0",
        rule.channel,
        "yes" if rule.is_enabled else "",
    )


def read_form(form: dict[str, str]) -> RuleForm:
    """Form as it was sent."""
    default = asdict(RuleForm())
    given = {("for_" if name == "for" else name): text.strip() for name, text in form.items()}
    return RuleForm(**{name: given.get(name, "" if name == "enabled" else default[name]) for name in default})


def rule_of(given: RuleForm, rule_id: str) -> Rule:
    """Rule of a form.

    Raises:
        FormError: A value is wrong.
    """
    condition = CONDITIONS.get(given.condition)
    if condition is None:
        raise FormError("choose a condition")
    try:
        return Rule(
            rule_id,
            given.name,
            given.condition,
            given.subject,
            parsed_amount("threshold", given.threshold, condition.unit) if condition.unit else 0,
            round(parsed_amount("for", given.for_, "seconds")),
            round(parsed_amount("repeat", given.repeat, "seconds")),
            given.channel,
            given.enabled == "yes",
        )
    except InvalidArgumentError as error:
        raise FormError(f"{error}{f'; {error.hint}' if error.hint else ''}") from None


def found_rule(view: View) -> Rule:
    """Rule of the path.

    Raises:
        PageNotFoundError: There is none.
    """
    rule = watch_of(view).rule(view.path["rule"])
    if rule is None:
        raise PageNotFoundError("no such rule")
    return rule


async def index(view: View) -> Response:
    """The list of rules."""
    watch = watch_of(view)
    firing = [alert.rule_id for alert in watch.alerts if alert.phase == "firing"]
    rows = tuple(row_of(rule, firing.count(rule.id)) for rule in watch.store.rules)
    return view.answer("alert_rules.html", rows, is_kept=watch.store.path is not None)


async def create(view: View) -> Response:
    """Creates a rule."""
    return await edited(view, None)


async def change(view: View) -> Response:
    """Changes a rule."""
    return await edited(view, found_rule(view))


async def edited(view: View, before: Rule | None) -> Response:
    """Form, preview and change of a rule."""
    if not view.is_post:
        return shown_form(view, before, RuleForm() if before is None else form_of(before), "")
    form = await view.form()
    given = read_form(form)
    try:
        rule = rule_of(given, new_id() if before is None else before.id)
        check_channel(view, rule)
    except FormError as error:
        if view.as_json:
            raise
        return shown_form(view, before, given, str(error))
    if is_preview(form):
        return shown_preview(view, preview_of(view, before, rule, given))
    was, now = None if before is None else texts_of(before), texts_of(rule)
    action = "create rule" if before is None else "change rule"
    async with view.act(action, rule.name, before=was, parameters=now) as done:
        await watch_of(view).put_rule(rule)
        done.result(f"Rule {rule.name} is stored.", now)
    return view.back(view.url("alerts", "rules"), done.text)


def check_channel(view: View, rule: Rule) -> None:
    """Checks that the channel of a rule exists.

    Raises:
        FormError: It does not.
    """
    names = {ALL, NONE, *(one.name for one in watch_of(view).store.channels)}
    if rule.channel not in names:
        raise FormError(f"no such channel: {rule.channel}")


def shown_form(view: View, before: Rule | None, given: RuleForm, error: str) -> Response:
    """Page of the form."""
    channels = [one.name for one in watch_of(view).store.channels]
    data = {"form": given, "error": error, "rule": before}
    if view.as_json:
        return view.json(data)
    status = 400 if error else 200
    return view.render(
        "alert_rule.html", status, data=data, channels=channels, conditions=list(CONDITIONS.values()), url=view.same()
    )


def texts_of(rule: Rule) -> dict[str, str]:
    """Values of a rule as texts, by the labels of the form."""
    return {
        "Name": rule.name,
        "Condition": condition_text(rule),
        "Subject": f"{rule.noun} {rule.subject}",
        "For": spelled(rule.for_seconds, "seconds"),
        "Repeat": spelled(rule.repeat_seconds, "seconds") if rule.repeat_seconds else "once",
        "Channel": rule.channel,
        "On": "yes" if rule.is_enabled else "no",
    }


def preview_of(view: View, before: Rule | None, rule: Rule, given: RuleForm) -> Preview:
    """Preview of a change: what differs, and what matches now."""
    was, now = {} if before is None else texts_of(before), texts_of(rule)
    rows = [Row(name, was.get(name), text) for name, text in now.items() if was.get(name) != text]
    notes = [matches_text(view, rule)] if rows else ["Nothing changes."]
    fields = {name.rstrip("_"): value for name, value in asdict(given).items()}
    if before is not None and (before.condition, before.subject) != (rule.condition, rule.subject):
        notes.append("Alerts of the rule end, because it watches something else.")
    verb = "Create" if before is None else "Change"
    return Preview(
        f"{verb} rule {rule.name}",
        f"{verb} rule {rule.name}",
        view.same(),
        view.url("alerts", "rules"),
        tuple(rows),
        notes=tuple(notes),
        fields=fields,
    )


def matches_text(view: View, rule: Rule) -> str:
    """How many groups or brokers a rule watches now."""
    state = view.snapshot
    names = list(state.groups) if rule.noun == "group" else sorted({row.name for row in state.brokers})
    found = sum(rule.applies_to(name) for name in names)
    return f"The rule watches {found:,} of {len(names):,} {rule.noun}s now."


async def delete(view: View) -> Response:
    """Deletes a rule."""
    rule = found_rule(view)
    form = await view.form()
    if is_preview(form):
        firing = sum(alert.rule_id == rule.id and alert.phase == "firing" for alert in watch_of(view).alerts)
        notes = ["Its alerts end, and receivers of their notifications are told so."] if firing else []
        rows = tuple(Row(name, text, None) for name, text in texts_of(rule).items())
        title = f"Delete rule {rule.name}"
        back = view.url("alerts", "rules", rule.id)
        return shown_preview(view, Preview(title, title, view.same(), back, rows, notes=tuple(notes), is_danger=True))
    async with view.act("delete rule", rule.name, before=texts_of(rule)) as done:
        await watch_of(view).delete_rule(rule)
        done.result(f"Rule {rule.name} is deleted.")
    return view.back(view.url("alerts", "rules"), done.text)
