"""View: what a handler gets. It reads the request, renders pages and JSON, and keeps the audit around changes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, urlencode

from starlette.responses import RedirectResponse, Response

from rocketpy.console import frame
from rocketpy.console.audit import Who
from rocketpy.console.names import UNKNOWN, from_path, shown, time_text, to_path, zone_of
from rocketpy.console.sampling import STILL_FACTOR
from rocketpy.console.settings import PERMISSIONS
from rocketpy.errors import (
    AccessDeniedError,
    BrokerNotFoundError,
    ConnectionFailedError,
    ConnectionLostError,
    GroupConflictError,
    GroupNotFoundError,
    InvalidArgumentError,
    OffsetError,
    RequestTimeoutError,
    RocketPyError,
    TopicNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable
    from datetime import timezone

    from starlette.requests import Request

    from rocketpy.admin.status import BrokerStatus
    from rocketpy.aio.admin import AsyncAdmin
    from rocketpy.aio.producer import AsyncProducer
    from rocketpy.console.app import Console
    from rocketpy.console.audit import Audit, Outcome
    from rocketpy.console.frame import Bar, NavItem
    from rocketpy.console.history import History
    from rocketpy.console.routes import Route
    from rocketpy.console.sessions import Session
    from rocketpy.console.settings import Permission
    from rocketpy.console.snapshot import Snapshot
    from rocketpy.security import Credentials

__all__ = ["DeniedError", "FormError", "PageNotFoundError", "View", "jsonable", "status_of"]

MAX_FIELDS = 2000
"""Maximum number of fields of a form."""
PART = "part_"
"""Prefix of the blocks of templates that are served alone."""


class DeniedError(Exception):
    """The visitor lacks a permission."""

    def __init__(self, permission: Permission, what: str) -> None:
        super().__init__(what)
        self.permission, self.what = permission, what


class PageNotFoundError(Exception):
    """The page or its object does not exist; the text says which."""


class FormError(Exception):
    """A field of a form has an invalid value; the text says which."""


def status_of(error: RocketPyError) -> int:
    """HTTP status of an error of the SDK."""
    kinds: tuple[tuple[tuple[type[RocketPyError], ...], int], ...] = (
        ((AccessDeniedError,), 403),
        ((TopicNotFoundError, GroupNotFoundError, BrokerNotFoundError, OffsetError), 404),
        ((GroupConflictError,), 409),
        ((InvalidArgumentError,), 400),
        ((RequestTimeoutError, ConnectionFailedError, ConnectionLostError), 502),
    )
    return next((status for kind, status in kinds if isinstance(error, kind)), 502)


def jsonable(value: Any) -> Any:
    """Value for JSON: dataclasses by field, times as ISO 8601, bytes never."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: jsonable(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value)
        return {str(name): jsonable(one) for name, one in pairs.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = cast("Iterable[object]", value)
        return [jsonable(one) for one in items]
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def visible(text: str) -> bytes:
    r"""Page in UTF-8; a lone surrogate, which names from a broker may have, becomes an escape.

    Examples:
        >>> visible("caf\u00e9 \ud800")
        b'caf\xc3\xa9 \\ud800'
    """
    return text.encode(errors="backslashreplace")


class View:
    """One request of a visitor.

    Args:
        console: The running console.
        request: The request.
        route: Its route.
        session: The visitor.
        as_json: Whether the answer is JSON.
    """

    def __init__(self, console: Console, request: Request, route: Route, session: Session, *, as_json: bool) -> None:
        self.console, self.request, self.route, self.session = console, request, route, session
        self.as_json = as_json
        self.path: dict[str, str] = {name: from_path(str(value)) for name, value in request.path_params.items()}
        """Decoded parameters of the path."""
        self.query: dict[str, str] = {}
        """Parameters of the query: the first value of each."""
        for name, value in request.query_params.multi_items():
            self.query.setdefault(name, value)
        self.nonce: str = request.state.nonce
        self.has_secret = False
        """Whether the page shows a secret; then it is not compressed."""
        self._form: list[tuple[str, str]] | None = None
        self._snapshot: Snapshot | None = None

    @property
    def admin(self) -> AsyncAdmin:
        """Client that signs as the visitor."""
        return self.session.admin

    @property
    def snapshot(self) -> Snapshot:
        """State of the cluster, the same during the whole request. Reading it never calls a broker."""
        if self._snapshot is None:
            self._snapshot = self.console.collector.snapshot
        return self._snapshot

    @property
    def history(self) -> History:
        """History of figures."""
        return self.console.collector.history

    @property
    def cluster(self) -> str:
        """Name of the cluster in URLs."""
        return self.console.cluster

    @property
    def zone(self) -> timezone:
        """Zone of the times of the page."""
        return zone_of(self.request.cookies.get("rp-zone"))

    @property
    def zone_name(self) -> str:
        """Zone of the page as its foot shows it."""
        return "UTC" if self.zone is UTC else str(self.zone)

    @property
    def theme(self) -> str:
        """Chosen theme: `light`, `dark`, or empty for that of the system."""
        chosen = self.request.cookies.get("rp-theme", "")
        return chosen if chosen in {"light", "dark"} else ""

    @property
    def is_paused(self) -> bool:
        """Whether the visitor switched the refresh off."""
        return self.request.cookies.get("rp-refresh") == "off"

    @property
    def stars(self) -> frozenset[str]:
        """Row ids of the visitor's favourites, which the browser keeps."""
        return frozenset(self.request.cookies.get("rp-stars", "").split(".")) - {""}

    def is_old(self, read_at: float | None) -> bool:
        """Whether a figure is older than three of its periods: it is grey, and the page shows its time."""
        rounds = 3 if self.snapshot.gaps or self.snapshot.down else 3 * STILL_FACTOR
        return read_at is not None and self.snapshot.made_at - read_at > rounds * self.snapshot.round_seconds

    def short_time(self, at: float | None) -> str:
        """Time of today without its date; other times with it."""
        text = time_text(at, self.zone)
        today = time_text(self.snapshot.made_at, self.zone)[:10]
        return text[11:19] if text.startswith(today) else text[:19]

    @staticmethod
    def setting(value: object) -> str:
        """Value of a setting for a table."""
        if value is None:
            return "not set"
        return ("yes" if value else "no") if isinstance(value, bool) else shown(value, 200)

    @staticmethod
    def version_of(status: BrokerStatus) -> str:
        """Version of a broker."""
        if status.rocketpy_version:
            return f"RocketPy {shown(status.rocketpy_version, 40)}"
        return f"Apache {shown(status.version, 40)}" if status.version else UNKNOWN

    def nav(self) -> list[NavItem]:
        """Lines of the side bar."""
        return frame.nav(self)

    def bars(self) -> list[Bar]:
        """Lines about parts of the cluster that do not answer."""
        return frame.bars(self)

    @property
    def part(self) -> str | None:
        """Name of the part that htmx polls; None for a whole page."""
        return self.query.get("part")

    @property
    def is_post(self) -> bool:
        """Whether the request is a write."""
        return self.request.method == "POST"

    async def form_list(self) -> list[tuple[str, str]]:
        """Fields of the form in order; a name may occur several times."""
        if self._form is None:
            body = await self.request.body()
            try:
                text = body.decode("ascii")
                self._form = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS)
            except ValueError as error:
                raise FormError("form is invalid") from error
        return self._form

    async def form(self) -> dict[str, str]:
        """Fields of the form: the first value of each."""
        found: dict[str, str] = {}
        for name, value in await self.form_list():
            found.setdefault(name, value)
        return found

    def may(self, permission: Permission) -> bool:
        """Whether the visitor's role has a permission. The broker decides again."""
        return self.session.may(permission)

    def require(self, permission: Permission, **objects: str) -> None:
        """Ends the request with the page *no permission* unless the visitor's role has it.

        Args:
            permission: The permission.
            objects: Subject of the action, such as `topic="orders"`.
        """
        if not self.may(permission):
            what = " and ".join(f"{kind} {name}" for kind, name in objects.items())
            raise DeniedError(permission, f"{PERMISSIONS[permission]}{f' of {what}' if what else ''}")

    def url(self, *parts: str, **query: object) -> str:
        """Address below the cluster.

        Args:
            parts: Parts of the path; each is encoded.
            query: Parameters; None and empty texts are left out.
        """
        path = "/".join([to_path(self.cluster, is_cluster=True), *(to_path(part) for part in parts)])
        pairs = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "", False)}
        return f"/{path}{'' if parts else '/'}{f'?{urlencode(pairs)}' if pairs else ''}"

    def same(self, **changes: object) -> str:
        """Address of this page with other parameters of the query. The part is left out unless it is given."""
        query: dict[str, object] = {**self.query, "part": None, **{k.rstrip("_"): v for k, v in changes.items()}}
        pairs = {name: value for name, value in query.items() if value not in (None, "", False)}
        path = self.request.scope.get("raw_path", b"").decode("latin-1") or self.request.url.path
        path = "/" + path.lstrip("/\\")  # `//host` would be a link to another host
        return path + (f"?{urlencode(pairs)}" if pairs else "")

    def watch(self, kind: str, names: list[str]) -> None:
        """Has the collector prefer the rows on this page."""
        self.console.collector.watch(kind, names)

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """Renders a page, or the part of it that htmx polls.

        Args:
            template: Name of the template.
            status: HTTP status.
            values: Values of the template, besides `view` and `snapshot`.
        """
        found = self.console.templates.get_template(template)
        context = {"view": self, "snapshot": self.snapshot, "nonce": self.nonce, **values}
        if self.part is None:
            return self._html(found.render(context), status)
        base = self.console.templates.get_template("base.html")
        block = found.blocks.get(PART + self.part) or base.blocks.get(PART + self.part)
        if block is None:
            raise PageNotFoundError(f"page has no part {self.part}")
        text = "".join(block(found.new_context(context)))
        return self._polled(text)

    def _html(self, text: str, status: int) -> Response:
        # Compression would tell the length of a secret beside text of a visitor (BREACH).
        headers = {"Content-Encoding": "identity"} if self.has_secret else None
        return Response(visible(text), status, headers, media_type="text/html")

    def _polled(self, text: str) -> Response:
        """Answer to a poll: 304 if the part did not change. The nonce is not part of the comparison."""
        digest = hashlib.sha256(visible(text.replace(self.nonce, ""))).hexdigest()[:24]
        etag = f'"{digest}"'
        headers = {"ETag": etag, "Cache-Control": "private, no-cache", "Vary": "Cookie"}
        if etag in self.request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(visible(text), media_type="text/html", headers=headers)

    def answer(self, template: str, data: Any, **values: Any) -> Response:
        """Renders a page, or its data as JSON below `/api/v1`.

        Args:
            template: Name of the template.
            data: Rows or a dataclass.
            values: Further values of the template.
        """
        return self.json(data) if self.as_json else self.render(template, data=data, **values)

    def json(self, data: Any, status: int = 200) -> Response:
        """Answers with JSON."""
        text = json.dumps(
            jsonable(data), ensure_ascii=True, allow_nan=False, separators=(",", ":")
        )  # names may lack UTF-8
        return Response(text, status, media_type="application/json")

    def back(self, url: str, message: str) -> Response:
        """Redirects after a change, with a message that the next page shows once."""
        if self.as_json:
            return self.json({"result": message})
        self.session.flash.append(message)
        response = RedirectResponse(url, 303)
        if not self.session.key:
            self.console.set_cookie(response, self.console.sessions.open(self.session))
        return response

    def take_flash(self) -> list[str]:
        """Messages of the action before; they are shown once."""
        found = list(self.session.flash)
        self.session.flash.clear()
        return found

    def problem(self, error: RocketPyError) -> Response:
        """Page of an error of the SDK: text, hint, and whether the change may have been applied."""
        status = status_of(error)
        unsure = error.may_have_been_applied and self.is_post
        if self.part is not None and not self.is_post and not self.as_json:
            return self.failed_poll(status)
        if self.as_json:
            found = {"error": str(error), "hint": error.hint, "may_have_been_applied": unsure}
            return self.json(found, status)
        return self.whole("error.html", status, text=str(error), hint=error.hint, unsure=unsure)

    def failed_poll(self, status: int) -> Response:
        """Answer to a poll that fails: the figures stay, or the page is loaded again if it is gone or forbidden."""
        if status >= 500:
            return Response(status_code=204)
        return Response(status_code=status, headers={"HX-Refresh": "true"})

    def open_admin(self) -> AsyncAdmin:
        """New client that signs as the visitor, for jobs that outlive the request: `async with view.open_admin()`."""
        return self.console.make(self._identity())

    def producer(self) -> AsyncProducer:
        """New producer that signs as the visitor: `async with view.producer() as producer`."""
        return self.console.producer(self._identity())

    def _identity(self) -> Credentials | None:
        """Identity of the visitor, which is never that of the collector.

        Raises:
            DeniedError: The cluster has users, and the visitor is not logged in.
        """
        if self.console.settings.has_login and self.session.credentials is None:
            raise DeniedError("read", "act without a login")
        return self.session.credentials

    @property
    def audit(self) -> Audit:
        """The audit log, for jobs; requests use `act`."""
        return self.console.audit

    def whole(self, template: str, status: int = 200, **values: Any) -> Response:
        """Renders a whole page, also if the request was for a part."""
        found = self.console.templates.get_template(template)
        context = {"view": self, "snapshot": self.snapshot, "nonce": self.nonce, **values}
        return self._html(found.render(context), status)

    @property
    def who(self) -> Who:
        """The visitor for the audit log."""
        client = self.request.client
        return Who(
            user=self.session.user or f"({self.session.role})",
            address=client.host if client else "",
            session=self.session.short,
            request=self.request.state.request_id,
        )

    @asynccontextmanager
    async def act(
        self, action: str, target: str, *, before: Any = None, parameters: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[Outcome]:
        """Audits a change: `started` before it, `done` or `failed` after it. Without a line there is no change.

        Args:
            action: Name of the action, such as `delete topic`.
            target: Name of the object.
            before: State before the change.
            parameters: Parameters without bodies.

        Raises:
            AuditError: The audit log cannot be written; the change has not begun.
        """
        async with self.console.audit.act(
            self.who, self.cluster, action, target, before=before, parameters=parameters
        ) as outcome:
            yield outcome
