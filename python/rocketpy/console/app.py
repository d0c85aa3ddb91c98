"""The application: one collector, the sessions, the audit log and the table of routes behind the middleware."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount
from starlette.routing import Route as WebRoute
from starlette.staticfiles import StaticFiles

from rocketpy import __version__
from rocketpy.aio.admin import AsyncAdmin
from rocketpy.aio.producer import AsyncProducer
from rocketpy.base.instant import now_ms
from rocketpy.console import names
from rocketpy.console.alerts import AlertWatch, opened_store
from rocketpy.console.audit import Audit, AuditError
from rocketpy.console.collector import Collector
from rocketpy.console.routes import ROUTES, Route, handler_of
from rocketpy.console.sessions import Session, Sessions
from rocketpy.console.view import DeniedError, FormError, PageNotFoundError, View
from rocketpy.console.web import COOKIE, middleware
from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from starlette.requests import Request

    from rocketpy.config import ClientOptions
    from rocketpy.console.routes import Handler
    from rocketpy.console.sessions import AdminFactory
    from rocketpy.console.settings import Permission, Settings
    from rocketpy.security import Credentials

__all__ = ["Console", "create_app"]

T = TypeVar("T")
logger = logging.getLogger("rocketpy.console")
FOLDER = Path(__file__).parent
API = "/api/v1"
PRODUCER_GROUP = "rocketpy_console"
VENDOR_SECONDS = 31_536_000
"""Time for which browsers keep vendored files, whose names have the version."""


def admin_factory(settings: Settings) -> AdminFactory:
    """Makes clients of the cluster.

    Args:
        settings: Settings of the console.
    """

    def make(credentials: Credentials | None) -> AsyncAdmin:
        return AsyncAdmin(settings.name_servers, **options_of(settings, credentials))

    return make


def options_of(settings: Settings, credentials: Credentials | None) -> ClientOptions:
    """Options of the clients of the cluster.

    Args:
        settings: Settings of the console.
        credentials: Identity of a visitor; None for that of the collector.
    """
    options: ClientOptions = {
        "api_timeout": settings.request_timeout,
        "connect_timeout": min(1.0, settings.request_timeout),
        "credentials": credentials or settings.credentials or False,
    }
    if settings.tls is not None:
        options["tls"] = settings.tls
    return options


class Files(StaticFiles):
    """Static files: vendored ones, whose names have the version, are kept for a year; others are checked again."""

    def file_response(self, full_path: Any, *arguments: Any, **options: Any) -> Response:
        """Adds the time for which browsers keep a file."""
        response = super().file_response(full_path, *arguments, **options)
        is_versioned = Path(str(full_path)).parent.name == "vendor"
        response.headers["Cache-Control"] = f"max-age={VENDOR_SECONDS}, immutable" if is_versioned else "no-cache"
        return response


class Console:
    """Everything that the requests of one console share.

    Args:
        settings: Settings of the console.
        make: Makes clients of the cluster.
    """

    def __init__(self, settings: Settings, make: AdminFactory) -> None:
        self.settings, self.make = settings, make
        self.audit = Audit(settings.data)
        self.sessions = Sessions(settings, make)
        self.templates = templates()
        self.version = __version__
        self._collector: Collector | None = None
        self.alerts = AlertWatch(opened_store(settings.data), is_on=settings.alerts)
        self.extras: dict[str, Any] = {"alerts": self.alerts, "active_alerts": lambda: self.alerts.active}
        """State of single pages, such as jobs and rules, by name. The end awaits `close()` of those that have it."""

    @property
    def collector(self) -> Collector:
        """The collector; it exists while the application runs."""
        if self._collector is None:
            raise RuntimeError("the console is not running")
        return self._collector

    @property
    def cluster(self) -> str:
        """Name of the cluster in URLs; `cluster` before the first answer."""
        return self.collector.snapshot.cluster or "cluster"

    @property
    def cookie_name(self) -> str:
        """Name of the session cookie."""
        return f"__Host-{COOKIE}" if self.settings.cert_file is not None else COOKIE

    def extra(self, name: str, make: Callable[[], T]) -> T:
        """State of a page that lives as long as the console.

        Args:
            name: Its name.
            make: Makes it at the first use.
        """
        if name not in self.extras:
            self.extras[name] = make()
        return cast("T", self.extras[name])

    def has_page(self, path: str) -> bool:
        """Whether the table of routes has a path."""
        return any(route.path == path for route in ROUTES)

    def age(self, at: float) -> float:
        """Seconds since a time, which is in seconds since 1970."""
        return self.now() - at

    def now(self) -> float:
        """Current time in seconds since 1970."""
        return now_ms() / 1000

    def producer(self, credentials: Credentials | None) -> AsyncProducer:
        """New producer of a visitor."""
        return AsyncProducer(
            PRODUCER_GROUP, name_servers=self.settings.name_servers, **options_of(self.settings, credentials)
        )

    def set_cookie(self, response: Response, token: str) -> None:
        """Gives the browser a session."""
        response.set_cookie(
            self.cookie_name,
            token,
            path="/",
            httponly=True,
            samesite="strict",
            secure=self.settings.cert_file is not None,
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Runs the collector while the application runs."""
        if self.settings.data is not None:
            self.settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        async with self.make(None) as admin:
            settings = self.settings
            self._collector = Collector(
                admin,
                period=settings.period,
                history_bytes=settings.history_bytes,
                name_servers=settings.name_servers,
            )
            self._collector.listeners.append(self.alerts.look)
            await self.alerts.start()
            self.sessions.shared = admin
            task = asyncio.create_task(self._collector.run())
            try:
                yield
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                for extra in self.extras.values():
                    if hasattr(extra, "close"):
                        await extra.close()
                await self.sessions.aclose()


def templates() -> Environment:
    """Environment of the templates: everything is escaped, an unknown name is an error."""
    found = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {
        "shown": names.shown,
        "count": names.count_text,
        "rate": names.rate_text,
        "percent": names.percent_text,
        "bytes": names.byte_text,
        "span": names.span_text,
        "time": names.time_text,
        "row_id": names.row_id,
    }
    shared = cast("dict[str, Any]", found.globals)
    shared |= {"age_text": names.age_text, "UNKNOWN": names.UNKNOWN}
    shared["parts"] = found.get_template("parts.html").module
    for name in found.list_templates(["html"]):
        found.get_template(name)  # compiled at the start, so that the first page is as fast as the others
    return found


def endpoint(console: Console, route: Route, handler: Handler, *, as_json: bool) -> Any:
    """ASGI endpoint of a route: session, permission, cluster, handler, errors."""

    async def answer(request: Request) -> Response:
        is_poll = "part" in request.query_params or route.path.endswith("/series")
        session = console.sessions.visitor(request.cookies.get(console.cookie_name), renews=not is_poll)
        needed = permission_of(console.settings, route, request.method)
        if session is None:
            if needed != "none":
                return asks_login(console, request, route, as_json=as_json)
            shared = console.sessions.shared
            if shared is None:
                return PlainTextResponse("console is starting", 503)
            session = Session("", "reader", shared)
        view = View(console, request, route, session, as_json=as_json)
        return await outcome(view, handler, needed)

    return answer


def permission_of(settings: Settings, route: Route, method: str) -> Permission:
    """Permission that a request needs. Beyond loopback, the metrics of a console with a login are not open."""
    if route.handler == "machines.metrics" and settings.has_login and not settings.is_local:
        return "read"
    return route.needs(method)


async def outcome(view: View, handler: Handler, needed: Any) -> Response:
    """Response of a handler, or the page of its error."""
    try:
        if "cluster" in view.path:
            check_cluster(view)
        view.require(needed, **{kind: name for kind, name in view.path.items() if kind != "cluster"})
        if view.part == "frame" and needed != "none" and not view.is_post:
            return view.render("base.html")  # a poll of the frame asks no broker
        return await handler(view)
    except DeniedError as error:
        return failed(view, 403, "no permission", f"{subject(view)} may not {error.what}", DENIED_HINT)
    except PageNotFoundError as error:
        return failed(view, 404, "not found", str(error), None)
    except FormError as error:
        return failed(view, 400, "invalid form", str(error), None)
    except AuditError as error:
        return failed(view, 503, "not done", str(error), "nothing was changed: the console does nothing without a log")
    except RocketPyError as error:
        return view.problem(error)
    except Exception:
        logger.exception("request %s failed", view.request.state.request_id)
        text = f"request {view.request.state.request_id} failed by a defect of the console"
        return failed(view, 500, "defect", text, "the log of the console has the reason")


DENIED_HINT = "A role with this permission is needed; whoever runs the console gives it."


def subject(view: View) -> str:
    """Visitor as the subject of a sentence."""
    return f"Your user {view.session.user}" if view.session.user else f"The role {view.session.role}"


def failed(view: View, status: int, title: str, text: str, hint: str | None) -> Response:
    """Page or JSON of a failure."""
    if view.as_json:
        return view.json({"error": text, "hint": hint}, status)
    if view.part is not None and not view.is_post:
        return view.failed_poll(status)
    return view.whole("error.html", status, title=title, text=text, hint=hint, unsure=False)


def asks_login(console: Console, request: Request, route: Route, *, as_json: bool) -> Response:
    """Login form in place of a page: the address stays."""
    if as_json:
        return JSONResponse(
            {"error": "not logged in", "hint": "log in on the page of the console; scripts send its cookie"}, 401
        )
    if "part" in request.query_params:
        return Response(status_code=401, headers={"HX-Refresh": "true"})
    shared = console.sessions.shared
    if shared is None:
        return PlainTextResponse("console is starting", 503)
    view = View(console, request, route, Session("", "reader", shared), as_json=False)
    goal = request.url.path if request.method == "GET" else "/"
    query = f"?{request.url.query}" if request.url.query and request.method == "GET" else ""
    return view.whole("login.html", 401, goal=goal + query, error=None)


def check_cluster(view: View) -> None:
    """Refuses the name of another cluster. Before the first answer every name is accepted."""
    known = view.snapshot.cluster
    if known and view.path["cluster"] not in {known, "cluster"}:
        raise PageNotFoundError(f"no cluster {names.shown(view.path['cluster'])}; this console shows {known}")


def web_routes(console: Console) -> list[WebRoute]:
    """Routes of Starlette, made of the table; each also as JSON if it says so."""
    found: list[WebRoute] = []
    for route in ROUTES:
        handler = handler_of(route)
        path = "/{cluster}" + route.path[2:] if route.path.startswith("/C/") else route.path
        methods = list(route.methods)
        if route.api:
            found.append(WebRoute(API + path, endpoint(console, route, handler, as_json=True), methods=methods))
        found.append(WebRoute(path, endpoint(console, route, handler, as_json=False), methods=methods))
    return found


async def without_page(request: Request, _error: Exception) -> Response:
    """Answer to an address or a method without a route."""
    console: Console = request.app.state.console
    session = console.sessions.visitor(request.cookies.get(console.cookie_name))
    if request.url.path.startswith("/api/") or session is None or not hasattr(request.state, "nonce"):
        return PlainTextResponse("not found", 404)
    route = Route("/", ("GET",), "none", "not found", "none.none")
    view = View(console, request, route, session, as_json=False)
    return failed(view, 404, "not found", "No page at this address.", None)


def create_app(settings: Settings, make: AdminFactory | None = None) -> Starlette:
    """Builds the application.

    Args:
        settings: Settings of the console.
        make: Makes clients of the cluster; default: those of the settings.
    """
    console = Console(settings, make or admin_factory(settings))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        async with console.running():
            yield

    app = Starlette(
        routes=[Mount("/static", Files(directory=FOLDER / "static")), *web_routes(console)],
        middleware=middleware(settings),
        lifespan=lifespan,
        exception_handlers={404: without_page, 405: without_page},
    )
    app.router.redirect_slashes = False
    app.state.console = console
    return app
