"""Dead letters: the groups that have some, the letters of one group, one letter, and the export."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketpy.admin.dead_letters import PREFIX, DeadLetter
from rocketpy.console.bodies import shown_body, view_of
from rocketpy.console.commands import command_line
from rocketpy.console.exports import ExportRefusedError, Exports
from rocketpy.console.jobs import Jobs
from rocketpy.console.letter_ages import LetterAges
from rocketpy.console.letter_masks import LetterMasks
from rocketpy.console.letters import REASONS, Place, filter_of, letter_at, matching, page_of
from rocketpy.console.masking import HIDDEN
from rocketpy.console.names import shown
from rocketpy.console.pages.messages import has_bodies
from rocketpy.console.tables import page_of as rows_of
from rocketpy.console.tables import sorted_rows
from rocketpy.console.view import FormError, PageNotFoundError
from rocketpy.errors import UNREADABLE_BODY, RocketPyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from starlette.responses import Response

    from rocketpy.console.bodies import ShownBody
    from rocketpy.console.letters import Letters
    from rocketpy.console.view import View

__all__ = ["ages_of", "checked_filter", "conflict", "export", "index", "jobs_of", "letter", "masks_of", "show"]


def jobs_of(view: View) -> Jobs:
    """Jobs of this console."""
    return view.console.extra("jobs", Jobs)


def exports_of(view: View) -> Exports:
    """Exports of this console."""
    return view.console.extra("exports", Exports)


def ages_of(view: View) -> LetterAges:
    """Ages of dead letters of this console."""
    return view.console.extra("letter_ages", LetterAges)


def masks_of(view: View) -> LetterMasks:
    """Masks of the visitor."""
    return LetterMasks(view.console.settings.masks, view.session.role)


def conflict(view: View, error: RocketPyError) -> Response:
    """Answer to a request that must wait for another one."""
    if view.as_json:
        return view.json({"error": str(error), "hint": error.hint}, 409)
    return view.whole("error.html", 409, title="not done", text=str(error), hint=error.hint, unsure=False)


def checked_filter(view: View, fields: Mapping[str, str]) -> Letters:
    """Reads the filter of a query or a form.

    Raises:
        FormError: The filter tests keys, which are hidden from the role.
        InvalidArgumentError: A time is invalid.
    """
    which = filter_of(fields)
    which.matcher()
    if which.key and masks_of(view).hides_keys:
        raise FormError("cannot filter by key: keys are hidden from your role")
    return which


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """A group with dead letters, for the list."""

    group: str
    count: int | None
    oldest: datetime | None
    newest: datetime | float | None
    """Time of the newest letter; a number counts seconds since 1970."""


def seconds_of(at: datetime | float | None) -> float | None:
    """Time as seconds since 1970."""
    return at if at is None or isinstance(at, int | float) else at.timestamp()


ORDERS: dict[str, Callable[[LetterGroup], object]] = {
    "group": lambda row: row.group,
    "count": lambda row: row.count,
    "oldest": lambda row: seconds_of(row.oldest),
    "newest": lambda row: seconds_of(row.newest),
}
"""Columns that sort, by their names in URLs."""


def letter_groups(view: View) -> list[LetterGroup]:
    """Groups with dead letters by the snapshot, with ages where they are known. Deleted groups are included."""
    ages = ages_of(view).known(view.console.collector.admin)
    topics = {name.removeprefix(PREFIX): row for name, row in view.snapshot.topics.items() if name.startswith(PREFIX)}
    found: list[LetterGroup] = []
    for name in {*topics, *(row.name for row in view.snapshot.groups.values() if row.dead_letters)}:
        topic, group, age = topics.get(name), view.snapshot.groups.get(name), ages.get(name)
        count = topic.messages if topic is not None and topic.messages is not None else None
        count = count if count is not None else (group.dead_letters if group is not None else None)
        if count == 0:
            continue
        newest: datetime | float | None = age.newest_at if age is not None else None
        if topic is not None and topic.last_stored is not None:
            newest = topic.last_stored
        found.append(LetterGroup(name, count, None if age is None else age.oldest_at, newest))
    return found


async def index(view: View) -> Response:
    """List of groups with dead letters, from the snapshot only."""
    text = view.query.get("q", "").strip().lower()
    order = view.query.get("order", "-newest")
    found = [row for row in letter_groups(view) if text in row.group.lower()]
    rows = rows_of(sorted_rows(found, order, ORDERS, lambda row: row.group), view.query)
    view.watch("topic", [PREFIX + row.group for row in rows.rows])
    data = {"groups": rows.rows, "total": rows.total}
    running = [job for job in jobs_of(view).all() if job.is_running]
    ages = ages_of(view)
    return view.answer("dead_letters.html", data, rows=rows, order=order, running=running, ages=ages)


@dataclass(frozen=True, slots=True)
class LetterRow:
    """One dead letter of a list, without its body."""

    place: str
    broker: str
    queue: int
    offset: int
    stored_at: datetime | None
    topic: str | None
    """Original topic."""
    reason: str | None
    error: str | None
    key: str
    tag: str | None
    tries: int
    msg_id: str
    size: int | None
    """Size of the body in bytes; None if it does not decompress."""


def letter_row(letter: DeadLetter, masks: LetterMasks) -> LetterRow:
    """Facts of a letter."""
    message, place, mask = letter.message, Place.of(letter), masks.of(letter)
    try:
        size: int | None = len(message.body_view)
    except UNREADABLE_BODY:
        size = None
    return LetterRow(
        place=str(place),
        broker=place.broker,
        queue=place.queue,
        offset=place.offset,
        stored_at=message.stored_at,
        topic=letter.topic,
        reason=letter.reason,
        error=letter.error and (HIDDEN if masks.hides_error(letter) else letter.error),
        key=mask.text("KEYS", " ".join(message.keys)),
        tag=message.tag and mask.text("TAGS", message.tag),
        tries=message.reconsume_times,
        msg_id=message.msg_id,
        size=size,
    )


async def show(view: View) -> Response:
    """Dead letters of one group, the newest first."""
    group = view.path["group"]
    which, masks = checked_filter(view, view.query), masks_of(view)
    parameters = {**which.fields, "body": False}
    async with view.act("list dead letters", group, parameters=parameters) as done:
        page = await page_of(view.admin, group, which, older=view.query.get("older", ""))
        rows = [letter_row(one, masks) for one in page.letters]
        done.result(f"{len(rows)} messages")
    view.watch("topic", [PREFIX + group])
    topic = view.snapshot.topics.get(PREFIX + group)
    options = {name: value for name, value in which.fields.items() if name != "reason"}
    command = command_line(["dlq", "show"], [group], {**options, "newest": True}, view.console.settings.name_servers)
    data = {"letters": rows, "older": page.older, "read": page.read, "stopped": page.stopped}
    return view.answer(
        "dead_letters_group.html", data, group=group, which=which, rows=rows, page=page, reasons=REASONS,
        total=topic.messages if topic else None, jobs=jobs_of(view).of_group(view.cluster, group)[:5],
        command=command,
    )  # fmt: skip


async def letter(view: View) -> Response:
    """One dead letter. Its body is shown on request, which is audited."""
    group, place, masks = view.path["group"], place_of(view), masks_of(view)
    shows_body = has_bodies(view)
    async with view.act("read dead letter", group, parameters={"place": str(place), "body": shows_body}) as done:
        found = await letter_at(view.admin, group, place)
        done.result("not found" if found is None else "1 message")
    if found is None:
        text = f"group {shown(group)} has no dead letter {shown(place)}: it expired, or never existed"
        raise PageNotFoundError(text)
    body, problem = await body_of(view, found, masks) if shows_body else (None, None)
    resent, resent_error = await resent_of(view, found)
    data: dict[str, object] = {"letter": letter_row(found, masks), "resent": resent, "body": body}
    data["properties"] = properties = masks.properties(found)
    return view.answer(
        "dead_letter.html", data, group=group, place=place, row=data["letter"], properties=properties, body=body,
        problem=problem, resent=resent, resent_error=resent_error, reasons=REASONS, shows_body=shows_body,
    )  # fmt: skip


async def body_of(view: View, found: DeadLetter, masks: LetterMasks) -> tuple[ShownBody | None, str | None]:
    """Body of a letter as the page shows it, or why it cannot be decoded. Decoding runs in a thread."""
    wanted, mask = view_of(view.query.get("view", "")), masks.of(found)
    try:
        return await asyncio.to_thread(lambda: shown_body(bytes(found.message.body), wanted, mask)), None
    except UNREADABLE_BODY as error:
        return None, str(error)


async def resent_of(view: View, found: DeadLetter) -> tuple[bool | None, str | None]:
    """Whether the original topic has the copy of a resend; None with the error if that is unknown."""
    try:
        return await view.admin.was_resent(found), None
    except RocketPyError as error:
        return None, str(error)


def place_of(view: View) -> Place:
    """Place of a letter by the path."""
    return Place.parse(":".join((view.path["broker"], view.path["queue"], view.path["offset"])))


async def export(view: View) -> Response:
    """Streams all matching letters as JSON lines. The audit has the start and the number of letters."""
    group = view.path["group"]
    which, masks = checked_filter(view, view.query), masks_of(view)
    exports = exports_of(view)
    try:
        claim = exports.claim(view.who.user)
    except ExportRefusedError as error:
        return conflict(view, error)
    audit, who, cluster = view.audit, view.who, view.cluster

    async def ended() -> None:
        async with audit.act(who, cluster, "end of export", group) as done:
            done.result(f"{claim.count} messages, {claim.reason or 'complete'}")

    try:
        if PREFIX + group not in view.snapshot.topics:
            await view.admin.describe_group(group)  # refuses a name that nobody has
        async with view.act("export dead letters", group, parameters=which.fields) as done:
            done.result("stream started")
    except BaseException:
        exports.release(claim)
        raise
    return exports.response(claim, matching(view.admin, group, which), masks.facts, ended)
