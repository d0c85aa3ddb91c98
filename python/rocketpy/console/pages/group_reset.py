"""Reset of a group in three steps: target, preview by queue, result read back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from rocketpy.base.names import RETRY_PREFIX, is_system_topic
from rocketpy.console.pages.groups import frame, known
from rocketpy.console.resets import KINDS, ResetPlan, plan_of, queue_of, target_of
from rocketpy.errors import GroupConflictError, GroupNotFoundError, InvalidArgumentError

if TYPE_CHECKING:
    from starlette.responses import Response

    from rocketpy.console.view import View

__all__ = ["reset"]

MOVED = "The committed offsets moved since the preview. Nothing was changed: check the new preview."
ONLINE = "The group has members online. Nothing was changed: stop them first, or choose to reset while they are online."


async def topics_of(view: View, group: str) -> list[str]:
    """Topics that the group consumes: with offsets, or with a subscription of a member."""
    lags, members = await asyncio.gather(
        known(view.admin.group_lag(group, partial=True), None),
        known(view.admin.describe_group(group, partial=True), None),
    )
    found = {one.queue.topic for one in lags[0] or ()}
    found.update(*(one.subscriptions or {} for one in members[0] or ()))
    return sorted(one for one in found if not is_system_topic(one) and one != RETRY_PREFIX + group)


async def reset(view: View) -> Response:
    """Shows form and preview (GET), or resets and shows the result (POST)."""
    group = view.path["group"]
    if view.is_post:
        return await applied(view, group)
    topics = await topics_of(view, group)
    fields = {"topic": topics[0] if len(topics) == 1 else "", **view.query}
    return await previewed(view, group, topics, fields)


async def previewed(
    view: View, group: str, topics: list[str], fields: dict[str, str], *, refusal: str = "", status: int = 200
) -> Response:
    """Page with the form, and the preview if topic and target are given."""
    (plan, problem), (present, unknown), queues = await asyncio.gather(
        planned(view, group, fields),
        known(view.admin.group_members(group, partial=True), None),
        queue_names(view, fields.get("topic", "")),
    )
    servers = view.console.settings.name_servers
    values: dict[str, Any] = {
        "topics": topics,
        "queues": queues,
        "fields": fields,
        "kinds": KINDS,
        "plan": plan,
        "problem": problem,
        "refusal": refusal,
        "online": present,
        "online_error": unknown,
        "command": plan.command(servers, force=bool(present)) if plan else "",
        "result": None,
    }
    if view.as_json:
        data = {"plan": plan, "mark": plan.mark if plan else None, "members": present, "error": refusal or problem}
        return view.json(data, 400 if problem and not refusal else status)
    return view.whole("group_reset.html", status, **values, **frame(view, group, "reset"))


async def planned(view: View, group: str, fields: dict[str, str]) -> tuple[ResetPlan | None, str]:
    """Plan of the fields, and why they have none. Both are empty before topic and target are given."""
    if not fields.get("topic") or not fields.get("to"):
        return None, ""
    try:
        return await plan_of(view.admin, group, fields["topic"], target_of(fields)), ""
    except GroupNotFoundError:
        raise
    except (InvalidArgumentError, LookupError) as error:
        return None, str(error)


async def queue_names(view: View, topic: str) -> list[str]:
    """Names of the queues of a topic, for the form; none if it cannot be read."""
    if not topic:
        return []
    try:
        return sorted(f"{one.broker_name}:{one.queue_id}" for one in await view.admin.queues(topic))
    except (InvalidArgumentError, LookupError):
        return []


async def applied(view: View, group: str) -> Response:
    """Resets as the preview showed, and reads the offsets back.

    The broker has no compare and set: a commit between the comparison and the reset is lost.
    """
    fields = await view.form()
    force = bool(fields.get("force"))
    topic = fields.get("topic", "")
    target = target_of(fields)
    plan = await plan_of(view.admin, group, topic, target)
    if fields.get("mark") != plan.mark:
        return await previewed(view, group, await topics_of(view, group), fields, refusal=MOVED, status=409)
    parameters = {"topic": topic, "to": target.kind, "where": target.where, "queue": target.queue, "force": force}
    try:
        async with view.act("reset group", group, before=plan.summary(), parameters=parameters) as done:
            if target.kind == "queue":
                queue = queue_of((one.queue for one in plan.queues), target.queue or "")
                await view.admin.set_offset(group, queue, target.offset or 0, force=force)
            else:
                await view.admin.reset_offsets(group, topic, target.start, force=force)
            result = await plan_of(view.admin, group, topic, target)
            done.result(f"{len(plan.queues)} queues of {topic}", result.summary())
    except GroupConflictError:
        return await previewed(view, group, await topics_of(view, group), fields, refusal=ONLINE, status=409)
    servers = view.console.settings.name_servers
    if view.as_json:
        return view.json({"before": plan, "after": result})
    before = {one.queue: one.before for one in plan.queues}
    values: dict[str, Any] = {
        "topics": [topic], "queues": [], "fields": fields, "kinds": KINDS, "plan": plan, "problem": "", "refusal": "",
        "online": [], "online_error": None, "command": plan.command(servers, force=force), "result": result,
        "before": before,
    }  # fmt: skip
    return view.whole("group_reset.html", **values, **frame(view, group, "reset"))
