"""Table of routes: path, methods, permission, action and handler. Every route has a permission."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from rocketpy.console.settings import PERMISSIONS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.responses import Response

    from rocketpy.console.settings import Permission
    from rocketpy.console.view import View

    Handler = Callable[[View], Awaitable[Response]]

__all__ = ["ROUTES", "Route", "handler_of"]

GET = ("GET",)
POST = ("POST",)
BOTH = ("GET", "POST")
MESSAGE = "/C/topics/{topic}/messages/{broker}/{queue}/{offset}"


@dataclass(frozen=True, slots=True)
class Route:
    """One route. Paths of a cluster begin with `/C`."""

    path: str
    methods: tuple[str, ...]
    permission: Permission
    action: str
    """Name for the audit log and the API table, such as `delete topic`."""
    handler: str
    """`module.function` below `rocketpy.console.pages`."""
    api: bool = False
    """Whether `/api/v1` serves the same path as JSON."""
    write: Permission | None = None
    """Permission of POST, if it is another one."""

    def __post_init__(self) -> None:
        for one in (self.permission, self.write or self.permission):
            if one not in PERMISSIONS:
                raise ValueError(f"route {self.path} has an unknown permission: {one}")
        if not self.path.startswith("/") or not self.action or "." not in self.handler:
            raise ValueError(f"route is incomplete: {self.path}")

    def needs(self, method: str) -> Permission:
        """Permission that a request needs."""
        return self.write if self.write is not None and method == "POST" else self.permission


ROUTES: tuple[Route, ...] = (
    # Machines and login
    Route("/", GET, "none", "open the console", "overview.root"),
    Route("/login", BOTH, "none", "log in", "login.login"),
    Route("/logout", POST, "none", "log out", "login.logout"),
    Route("/health/live", GET, "none", "health", "machines.live"),
    Route("/health/ready", GET, "none", "health", "machines.ready"),
    Route("/metrics", GET, "none", "metrics of the console", "machines.metrics"),
    Route("/favicon.ico", GET, "none", "icon", "machines.favicon"),
    # Overview
    Route("/C/", GET, "read", "overview", "overview.show", api=True),
    Route("/C/series", GET, "read", "series of the overview", "overview.series", api=True),
    Route("/C/find", GET, "read", "find", "find.find", api=True),
    # Topics
    Route("/C/topics", GET, "read", "list topics", "topics.index", api=True),
    Route("/C/topics/~new", BOTH, "manage", "create topic", "topic_changes.create", api=True),
    Route("/C/topics/{topic}", GET, "read", "show topic", "topics.show", api=True),
    Route("/C/topics/{topic}/series", GET, "read", "series of a topic", "topics.series", api=True),
    Route("/C/topics/{topic}/queues", GET, "read", "queues of a topic", "topics.queues", api=True),
    Route("/C/topics/{topic}/groups", GET, "read", "groups of a topic", "topics.groups", api=True),
    Route("/C/topics/{topic}/config", BOTH, "manage", "change topic", "topic_changes.config", api=True),
    Route("/C/topics/{topic}/delete", BOTH, "manage", "delete topic", "topic_changes.delete", api=True),
    # Messages
    Route("/C/topics/{topic}/messages", GET, "messages", "read messages", "messages.index", api=True),
    Route(MESSAGE, GET, "messages", "read message", "message.show", api=True),
    Route(f"{MESSAGE}/download", GET, "messages", "download message", "message.download"),
    Route("/C/topics/{topic}/tail", GET, "messages", "tail messages", "tail.show"),
    Route("/C/topics/{topic}/tail/stream", GET, "messages", "tail messages", "tail.stream"),
    Route("/C/topics/{topic}/send", BOTH, "send", "send message", "send.show", api=True),
    # Groups
    Route("/C/groups", GET, "read", "list groups", "groups.index", api=True),
    Route("/C/groups/~new", BOTH, "manage", "create group", "group_changes.create", api=True),
    Route("/C/groups/{group}", GET, "read", "show group", "groups.show", api=True),
    Route("/C/groups/{group}/series", GET, "read", "series of a group", "groups.series", api=True),
    Route("/C/groups/{group}/members", GET, "read", "members of a group", "groups.members", api=True),
    Route("/C/groups/{group}/retry", GET, "read", "retries of a group", "groups.retry", api=True),
    Route("/C/groups/{group}/reset", BOTH, "manage", "reset group", "group_reset.reset", api=True),
    Route("/C/groups/{group}/config", BOTH, "read", "change group", "group_changes.config", api=True, write="manage"),
    Route("/C/groups/{group}/clone", BOTH, "manage", "copy offsets", "group_changes.clone", api=True),
    Route("/C/groups/{group}/delete", POST, "manage", "delete group", "group_changes.delete", api=True),
    # Dead letters and waiting messages
    Route("/C/dead-letters", GET, "messages", "list groups with dead letters", "dead_letters.index", api=True),
    Route("/C/dead-letters/{group}", GET, "messages", "list dead letters", "dead_letters.show", api=True),
    Route("/C/dead-letters/{group}/export", GET, "messages", "export dead letters", "dead_letters.export", api=True),
    Route("/C/dead-letters/{group}/resend", POST, "send", "resend dead letters", "resends.resend", api=True),
    Route("/C/dead-letters/{group}/~jobs/{job}", GET, "messages", "show resend", "resends.job", api=True),
    Route("/C/dead-letters/{group}/~jobs/{job}/cancel", POST, "send", "cancel resend", "resends.cancel", api=True),
    Route(
        "/C/dead-letters/{group}/{broker}/{queue}/{offset}",
        GET,
        "messages",
        "read dead letter",
        "dead_letters.letter",
        api=True,
    ),
    Route("/C/waiting", GET, "read", "list waiting messages", "waiting.show", api=True),
    # Brokers
    Route("/C/brokers", GET, "read", "list brokers", "brokers.index", api=True),
    Route("/C/brokers/{broker}", GET, "read", "show broker", "brokers.show", api=True),
    Route("/C/brokers/{broker}/series", GET, "read", "series of a broker", "brokers.series", api=True),
    Route(
        "/C/brokers/{broker}/config", BOTH, "read", "change configuration", "broker_config.config", True, write="manage"
    ),
    Route("/C/brokers/{broker}/quotas", BOTH, "read", "change quota", "broker_quotas.quotas", True, write="manage"),
    Route("/C/brokers/{broker}/role", GET, "read", "role of a broker", "broker_role.role", api=True),
    Route("/C/brokers/{broker}/promote", POST, "manage", "promote broker", "broker_role.promote", api=True),
    Route("/C/brokers/{broker}/drain", POST, "manage", "drain broker", "broker_role.drain", api=True),
    Route("/C/brokers/{broker}/undrain", POST, "manage", "undrain broker", "broker_role.undrain", api=True),
    # Users and policies
    Route("/C/users", GET, "admin", "list users", "users.index", api=True),
    Route("/C/users/~new", BOTH, "admin", "create user", "user_changes.create", api=True),
    Route("/C/users/{user}", GET, "admin", "show user", "users.show", api=True),
    Route("/C/users/{user}/rotate", POST, "admin", "rotate user", "user_changes.rotate", api=True),
    Route("/C/users/{user}/finish", POST, "admin", "finish rotation", "user_changes.finish", api=True),
    Route("/C/users/{user}/state", POST, "admin", "change user", "user_changes.state", api=True),
    Route("/C/users/{user}/delete", POST, "admin", "delete user", "user_changes.delete", api=True),
    Route("/C/users/{user}/grant", POST, "admin", "grant", "user_changes.grant", api=True),
    Route("/C/users/{user}/revoke", POST, "admin", "revoke", "user_changes.revoke", api=True),
    # Alerts
    Route("/C/alerts", GET, "read", "list alerts", "alerts.index", api=True),
    Route("/C/alerts/brokers/{broker}/forget", POST, "alerts", "forget broker", "alerts.forget", api=True),
    Route("/C/alerts/rules", GET, "read", "list rules", "alert_rules.index", api=True),
    Route("/C/alerts/rules/~new", BOTH, "alerts", "create rule", "alert_rules.create", api=True),
    Route("/C/alerts/rules/{rule}", BOTH, "alerts", "change rule", "alert_rules.change", api=True),
    Route("/C/alerts/rules/{rule}/delete", POST, "alerts", "delete rule", "alert_rules.delete", api=True),
    Route("/C/alerts/silences", GET, "read", "list silences", "alert_silences.index", api=True),
    Route("/C/alerts/silences/~new", BOTH, "alerts", "create silence", "alert_silences.create", api=True),
    Route("/C/alerts/silences/{silence}/end", POST, "alerts", "end silence", "alert_silences.end", api=True),
    Route("/C/alerts/channels", GET, "read", "list channels", "alert_channels.index", api=True),
    Route("/C/alerts/channels/~new", BOTH, "admin", "create channel", "alert_channels.create", api=True),
    Route("/C/alerts/channels/{channel}", BOTH, "admin", "change channel", "alert_channels.change", api=True),
    Route("/C/alerts/channels/{channel}/test", POST, "admin", "test channel", "alert_channels.test", api=True),
    Route("/C/alerts/channels/{channel}/retry", POST, "admin", "retry channel", "alert_channels.retry", api=True),
    Route("/C/alerts/channels/{channel}/delete", POST, "admin", "delete channel", "alert_channels.delete", api=True),
    # Audit and API
    Route("/C/audit", GET, "admin", "show audit", "audit.index", api=True),
    Route("/C/audit/export", GET, "admin", "export audit", "audit.export"),
    Route("/api", GET, "read", "table of the API", "api.index"),
    Route("/api/openapi.json", GET, "none", "description of the API", "api.openapi"),
)
"""All routes. The first one that matches answers."""


def handler_of(route: Route) -> Handler:
    """Function of a route.

    Raises:
        TypeError: The handler is not a coroutine function of one argument.
    """
    module, _, name = route.handler.rpartition(".")
    found = getattr(import_module(f"rocketpy.console.pages.{module}"), name)
    if not inspect.iscoroutinefunction(found) or len(inspect.signature(found).parameters) != 1:
        raise TypeError(f"handler must be a coroutine function of one argument: {route.handler}")
    return cast("Handler", found)
