"""Middleware: header policy, nonce, host list, origin check on every write, limits."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from rocketpy.console.settings import Settings

__all__ = ["COOKIE", "MAX_BODY", "is_same_origin", "middleware", "new_nonce", "policy_of"]

MAX_BODY = 5 << 20
"""Maximum size of a request body in bytes."""
MAX_LOGIN = 8 << 10
"""Maximum size of the body of a login in bytes: visitors without a session send it."""
MIN_GZIP = 1024
"""Minimum size of a compressed response in bytes; on loopback nothing is compressed."""
MAX_PATH = 8192
"""Maximum length of path and query in bytes."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
COOKIE = "rp"
"""Name of the session cookie over plain HTTP on loopback; over TLS it is `__Host-rp`."""
YEAR = 31_536_000


def new_nonce() -> str:
    """Nonce of one response."""
    return secrets.token_urlsafe(18)


def policy_of(nonce: str) -> str:
    """Content security policy of a response.

    Scripts come from the console's own files, and htmx serves elements with the nonce only (extension `hx-csp`).
    """
    return (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
        "require-trusted-types-for 'script'; trusted-types htmx"
    )


def is_same_origin(headers: Headers, scheme: str) -> bool:
    """Whether a write comes from the console's own pages.

    Browsers send `Sec-Fetch-Site`; without it `Origin` must equal the host. A request without both is refused.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme == scheme and parts.netloc.lower() == headers.get("host", "").lower()


class Guard:
    """Refuses writes of other origins, and adds the security headers to every response.

    Args:
        app: The application.
        is_tls: Whether browsers reach the console by TLS.
    """

    def __init__(self, app: ASGIApp, is_tls: bool) -> None:
        self.app, self.is_tls = app, is_tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        nonce = new_nonce()
        scope.setdefault("state", {})
        scope["state"].update(nonce=nonce, request_id=secrets.token_hex(8))

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._harden(MutableHeaders(raw=message.setdefault("headers", [])), message["status"], nonce)
            await send(message)

        if len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > MAX_PATH:
            await PlainTextResponse("address is too long", 414)(scope, receive, guarded)
        elif scope["method"] not in SAFE and not self._may_write(headers, scope):
            text = "request refused: it does not come from a page of this console"
            await PlainTextResponse(text, 403)(scope, receive, guarded)
        else:
            await self.app(scope, receive, guarded)

    def _may_write(self, headers: Headers, scope: Scope) -> bool:
        """Whether a write may begin. Pages of other sites cannot have a browser send `Authorization`."""
        is_script = scope["path"].startswith("/api/v1/") and "authorization" in headers and "cookie" not in headers
        return is_script or is_same_origin(headers, "https" if self.is_tls else scope.get("scheme", "http"))

    def _harden(self, headers: MutableHeaders, status: int, nonce: str) -> None:
        for name, value in HEADERS.items():
            headers.setdefault(name, value)
        if status != 304:  # the kept body has the nonce of its own response
            headers.setdefault("Content-Security-Policy", policy_of(nonce))
        headers.setdefault("Cache-Control", "no-store")
        if self.is_tls:
            headers.setdefault("Strict-Transport-Security", f"max-age={YEAR}")


class BodyLimit:
    """Refuses large request bodies: of a login, which needs no session, earlier than of other requests.

    Args:
        app: The application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.login = RequestBodyLimitMiddleware(app, max_body_size=MAX_LOGIN)
        self.others = RequestBodyLimitMiddleware(app, max_body_size=MAX_BODY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        limited = self.login if scope.get("path") == "/login" else self.others
        await limited(scope, receive, send)


def middleware(settings: Settings) -> list[Middleware]:
    """Middleware of the application, the outermost first."""
    return [
        Middleware(Guard, is_tls=settings.cert_file is not None),
        Middleware(TrustedHostMiddleware, allowed_hosts=list(settings.hosts), www_redirect=False),
        Middleware(BodyLimit),
        *([] if settings.is_local else [Middleware(GZipMiddleware, minimum_size=MIN_GZIP, compresslevel=5)]),
    ]
