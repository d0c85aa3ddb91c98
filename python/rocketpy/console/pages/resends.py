"""Resends of dead letters: preview of a selection or of all that match, job, and its cancellation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketpy.console.commands import command_line
from rocketpy.console.jobs import MAX_LETTERS, MAX_RESULTS, RATES, WORDS, JobRefusedError, Order, ResendJob, count_of
from rocketpy.console.letters import letters_at, matching, places_of, summary_of
from rocketpy.console.names import shown
from rocketpy.console.pages.dead_letters import checked_filter, conflict, jobs_of, masks_of
from rocketpy.console.view import FormError, PageNotFoundError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.responses import Response

    from rocketpy.admin.dead_letters import DeadLetter
    from rocketpy.aio.admin import AsyncAdmin
    from rocketpy.console.letter_masks import LetterMasks
    from rocketpy.console.letters import Letters, Place
    from rocketpy.console.view import View

__all__ = ["cancel", "job", "job_url", "resend"]

DEFAULT_RATE = 10.0


class Selection:
    """Letters of a form: selected places, or all that match a filter."""

    def __init__(self, group: str, which: Letters, places: list[Place] | None, masks: LetterMasks) -> None:
        self.group, self.which, self.places, self.masks = group, which, places, masks
        self.to: str | None = None

    def letters(self, admin: AsyncAdmin) -> AsyncIterator[DeadLetter]:
        """The letters."""
        if self.places is None:
            found = matching(admin, self.group, self.which)
        else:
            found = letters_at(admin, self.group, self.places)
        return self.masks.copyable(found, self.to)

    @property
    def words(self) -> str:
        """The selection in words."""
        return self.which.words if self.places is None else f"{len(self.places)} selected"


async def selection_of(view: View) -> Selection:
    """Reads the selection of a form.

    Raises:
        FormError: No letter is selected.
    """
    fields = await view.form()
    which = checked_filter(view, fields)
    places = None if fields.get("all") else places_of(await view.form_list())
    if places == []:
        raise FormError("no dead letter is selected")
    found = Selection(view.path["group"], which, places, masks_of(view))
    found.to = fields.get("to", "").strip() or None
    return found


def rate_of(text: str) -> float:
    """Reads the rate of a form.

    Raises:
        FormError: It is not a number, or out of range.
    """
    low, high = RATES
    try:
        rate = float(text) if text else DEFAULT_RATE
    except ValueError:
        rate = -1.0
    if not low <= rate <= high:
        raise FormError(f"rate must be a number from {low:g} to {high:,.0f} messages per second: {shown(text, 40)}")
    return rate


async def resend(view: View) -> Response:
    """Shows the preview of a selection (`step=preview`), or starts its job (`step=apply`)."""
    fields, selection = await view.form(), await selection_of(view)
    rate = rate_of(fields.get("rate", "").strip())
    if selection.to is not None:
        await view.admin.describe_topic(selection.to)  # refuses an unknown target
    step = fields.get("step", "preview")
    if step not in {"preview", "apply"}:
        raise FormError(f"step must be preview or apply: {shown(step, 40)}")
    try:
        if step == "apply":
            return await started(view, selection, fields, rate)
        return await preview(view, selection, fields, rate)
    except JobRefusedError as error:
        return conflict(view, error)


async def preview(view: View, selection: Selection, fields: Mapping[str, str], rate: float) -> Response:
    """Counts the letters of a selection by target topic. Nothing is sent."""
    group, to, again = selection.group, selection.to or "", bool(fields.get("again"))
    summary = await summary_of(selection.letters(view.admin), selection.to)
    options: dict[str, str | bool] = {name: one for name, one in selection.which.fields.items() if name != "reason"}
    options |= {"to": to, "rate": f"{rate:g}", "again": again, "yes": True}
    servers = view.console.settings.name_servers
    can_say = selection.places is None and not selection.which.reason
    command = command_line(["dlq", "resend"], [group], options, servers) if can_say else ""
    data = {"letters": summary.count, "topics": dict(summary.topics), "without_topic": summary.without_topic}
    if view.as_json:
        return view.json(data)
    return view.whole(
        "resend_preview.html", group=group, selection=selection, summary=summary, to=to, rate=rate, again=again,
        command=command, running=jobs_of(view).running(view.cluster, group), max_letters=MAX_LETTERS,
    )  # fmt: skip


async def started(view: View, selection: Selection, fields: Mapping[str, str], rate: float) -> Response:
    """Starts the job of a selection."""
    group, total = selection.group, fields.get("count", "")
    order = Order(
        cluster=view.cluster,
        group=group,
        user=view.who.user,
        selection=selection.words,
        to=selection.to,
        rate=rate,
        again=bool(fields.get("again")),
        total=int(total) if total.isascii() and total.isdigit() and len(total) < 10 else None,
    )
    audit, who, cluster, client = view.audit, view.who, view.cluster, view.open_admin()

    async def ended(job: ResendJob) -> None:
        async with audit.act(who, cluster, "end of resend", group, parameters={"job": job.id}) as done:
            done.result(job.summary(), dict(job.counts))

    parameters = {"selection": order.selection, "to": order.to, "rate": order.rate, "again": order.again}
    async with view.act("resend dead letters", group, parameters=parameters) as done:
        made = jobs_of(view).start(order, selection.letters, lambda: client, ended)
        done.result(f"job {made.id} started")
    if view.as_json:
        return view.json(facts_of(made), 202)
    return view.back(job_url(view, made), f"Resend of {order.selection} started.")


def job_url(view: View, job: ResendJob) -> str:
    """Address of a job. `~jobs` is never the name of a broker: names in paths have no `~`."""
    return f"{view.url('dead-letters', job.order.group)}/~jobs/{job.id}"


def facts_of(job: ResendJob) -> dict[str, object]:
    """A job for the API."""
    return {
        "id": job.id,
        "group": job.order.group,
        "user": job.order.user,
        "selection": job.order.selection,
        "to": job.order.to,
        "rate": job.order.rate,
        "state": job.state,
        "handled": job.handled,
        "total": job.order.total,
        "counts": dict(job.counts),
        "error": job.error,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "newest": list(job.newest),
        "rejected": job.rejected,
    }


def job_of(view: View) -> ResendJob:
    """Job of the path.

    Raises:
        PageNotFoundError: The job is unknown.
    """
    found = jobs_of(view).get(view.cluster, view.path["job"])
    if found is None or found.order.group != view.path["group"]:
        raise PageNotFoundError(
            f"no job {shown(view.path['job'], 40)}: jobs end with the console, which keeps the last ones"
        )
    return found


async def job(view: View) -> Response:
    """Progress and results of a job."""
    found = job_of(view)
    return view.answer(
        "resend_job.html", facts_of(found), job=found, group=found.order.group, words=WORDS, progress=count_of(found),
        max_results=MAX_RESULTS, cancel_url=f"{job_url(view, found)}/cancel",
    )  # fmt: skip


async def cancel(view: View) -> Response:
    """Ends a job. What was sent stays sent."""
    found, jobs = job_of(view), jobs_of(view)
    group = found.order.group
    async with view.act("cancel resend", group, parameters={"job": found.id}) as done:
        await jobs.cancel(found)
        done.result(found.summary())
    return view.back(job_url(view, found), f"Resend ended: {found.summary()}.")
