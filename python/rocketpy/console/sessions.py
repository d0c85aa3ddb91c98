"""Sessions: login by users of the cluster, and roles. Tokens are random, and kept as hashes."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketpy.base.clock import monotonic
from rocketpy.console.settings import ROLES, Permission, Role, Settings
from rocketpy.errors import AccessDeniedError, InvalidArgumentError, RocketPyError
from rocketpy.security import Credentials

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketpy.aio.admin import AsyncAdmin

    AdminFactory = Callable[[Credentials | None], AsyncAdmin]

__all__ = ["LoginError", "Session", "Sessions", "proved"]

IDLE_SECONDS = 30 * 60.0
MAX_SECONDS = 12 * 3600.0
MAX_SESSIONS = 64
MAX_PER_USER = 8
FREE_FAILURES = 5
"""Number of failed logins of one address or name without a delay."""
MAX_DELAY = 60.0
MAX_COUNTED = 10_000
"""Maximum number of addresses and names with failed logins."""
MAX_NAME = 255
"""Maximum length of a name in characters."""
WRONG = "cannot log in: name or password is wrong"
DENIED = "has no permission to access"
"""Part of the refusal of a user whose signature was checked."""


class LoginError(Exception):
    """A login is refused."""


@dataclass(slots=True)
class Session:
    """One visitor."""

    user: str
    """Name of the user; empty without access control."""
    role: Role
    admin: AsyncAdmin
    """Client that signs as the user."""
    key: str = ""
    """Hash of the token; empty for a visitor without a cookie."""
    made_at: float = 0.0
    used_at: float = 0.0
    flash: list[str] = field(default_factory=list[str])
    """Messages that the next page shows once."""
    credentials: Credentials | None = field(default=None, repr=False)
    """Identity of the user, which never leaves the process; None without access control."""
    owns_admin: bool = False
    """Whether the end of the session closes the client."""

    def may(self, permission: Permission) -> bool:
        """Whether the role has a permission. No broker checks alerts: with a login they need an administrator."""
        if permission == "alerts" and self.user:
            return self.role == "admin"
        return permission in ROLES[self.role]

    @property
    def short(self) -> str:
        """First 8 digits of the hash, for the audit log."""
        return self.key[:8]


def hash_of(token: str) -> str:
    """Hash of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


async def answers(admin: AsyncAdmin, name: str) -> bool:
    """Whether the cluster accepts the signature of a client.

    Raises:
        RocketPyError: The cluster does not answer.
    """
    try:
        brokers = await admin.brokers()
        address = next(iter(brokers[0].addresses.values())) if brokers else None
        if address is None:
            raise LoginError("cannot log in: no broker is registered")
        await admin.broker_figures(address)
    except AccessDeniedError as error:
        return f"User:{name} {DENIED}" in str(error)
    return True


async def proved(make: AdminFactory, name: str, password: str) -> AsyncAdmin:
    """Client of a user whose password the cluster has checked.

    A wrong password is sent first: a cluster that accepts it has no access control, and proves nothing.

    Args:
        make: Makes a client by credentials.
        name: Name of the user.
        password: Its secret.

    Raises:
        LoginError: Name or password is wrong, or the cluster has no access control.
    """
    try:
        credentials = Credentials(name, password)
    except InvalidArgumentError:
        raise LoginError(WRONG) from None
    try:
        async with make(Credentials(name, secrets.token_urlsafe(16))) as stranger:
            if await answers(stranger, name):
                raise LoginError("cannot log in: the cluster has no access control, so that a password proves nothing")
        admin = make(credentials)
        await admin.start()
        try:
            if not await answers(admin, name):
                raise LoginError(WRONG)
        except BaseException:
            await admin.close()
            raise
    except RocketPyError as error:
        raise LoginError(f"cannot log in: {error}") from error
    return admin


class Sessions:
    """All sessions of the process.

    Args:
        settings: Settings of the console.
        make: Makes a client by credentials; None is the shared client without a user.
    """

    def __init__(self, settings: Settings, make: AdminFactory) -> None:
        self._settings, self._make = settings, make
        self._known: dict[str, Session] = {}
        self._failures: dict[str, tuple[int, float]] = {}
        self.shared: AsyncAdmin | None = None
        """Client of visitors without a login."""

    def __len__(self) -> int:
        return len(self._known)

    def visitor(self, token: str | None, *, renews: bool = True) -> Session | None:
        """Session of a cookie. Without access control every visitor has one; with it None asks for a login.

        Args:
            token: Value of the cookie.
            renews: Whether the visitor acted; a poll of an open page ends no pause.
        """
        found = self._known.get(hash_of(token)) if token else None
        now = monotonic()
        if found is not None:
            if now - found.used_at <= IDLE_SECONDS and now - found.made_at <= MAX_SECONDS:
                found.used_at = now if renews else found.used_at
                return found
            self._drop(found)
        if self._settings.has_login or self.shared is None:
            return None
        return Session("", self._settings.role, self.shared)

    def open(self, session: Session) -> str:
        """Keeps a session and returns its token."""
        token = secrets.token_urlsafe(32)
        session.key, session.made_at, session.used_at = hash_of(token), monotonic(), monotonic()
        self._expire()
        same = [one for one in self._known.values() if one.user == session.user and session.user]
        while len(same) >= MAX_PER_USER or len(self._known) >= MAX_SESSIONS:
            oldest = min(same if len(same) >= MAX_PER_USER else self._known.values(), key=lambda one: one.used_at)
            self._drop(oldest)
            same = [one for one in same if one is not oldest]
        self._known[session.key] = session
        return token

    def close(self, session: Session) -> None:
        """Ends a session, and closes the client of its user."""
        self._drop(session)

    async def login(self, name: str, password: str, address: str) -> tuple[Session, str]:
        """Checks a user by a signed request, and opens a session.

        Args:
            name: Name of the user.
            password: Its secret.
            address: Address of the visitor.

        Raises:
            LoginError: The login is refused; unknown names and wrong passwords get the same answer.
        """
        if len(name) > MAX_NAME:
            raise LoginError(WRONG)
        keys = (f"a {address}", f"n {name}")
        wait = max(map(self._wait, keys))
        if wait > 0:
            raise LoginError(f"cannot log in: too many failures, try again in {wait:.0f} s")
        for key in keys:
            self._count(key)  # before the answer: parallel guesses have one limit
        try:
            admin = await proved(self._make, name, password)
        except LoginError as error:
            if str(error) != WRONG:
                for key in keys:
                    self._uncount(key)
            raise
        for key in keys:
            self._failures.pop(key, None)
        credentials = Credentials(name, password)
        session = Session(name, await self._role(admin, name), admin, credentials=credentials, owns_admin=True)
        return session, self.open(session)

    async def _role(self, admin: AsyncAdmin, name: str) -> Role:
        """Role of a user: super users are administrators; the broker decides on each request of others."""
        try:
            user = await admin.user(name)
            is_super = user is not None and user.is_super
        except RocketPyError:
            is_super = False
        ranks = list(ROLES)
        wanted: Role = "admin" if is_super else "operator"
        return min(wanted, self._settings.role, key=ranks.index)

    def _wait(self, key: str) -> float:
        count, until = self._failures.get(key, (0, 0.0))
        return max(0.0, until - monotonic()) if count > FREE_FAILURES else 0.0

    def _count(self, key: str) -> None:
        if len(self._failures) >= MAX_COUNTED:
            self._failures.pop(next(iter(self._failures)))
        count = self._failures.get(key, (0, 0.0))[0] + 1
        self._failures[key] = count, monotonic() + min(MAX_DELAY, 2.0 ** (count - FREE_FAILURES - 1))

    def _uncount(self, key: str) -> None:
        """Removes an attempt that proved nothing, such as one during an outage of the cluster."""
        count, until = self._failures.pop(key, (0, 0.0))
        if count > 1:
            self._failures[key] = count - 1, until

    def _expire(self) -> None:
        now = monotonic()
        for one in list(self._known.values()):
            if now - one.used_at > IDLE_SECONDS or now - one.made_at > MAX_SECONDS:
                self._drop(one)

    def _drop(self, session: Session) -> None:
        self._known.pop(session.key, None)
        if session.owns_admin:
            task = asyncio.ensure_future(session.admin.close())
            CLOSING.add(task)
            task.add_done_callback(CLOSING.discard)

    async def aclose(self) -> None:
        """Ends all sessions."""
        for one in list(self._known.values()):
            self._known.pop(one.key)
            if one.owns_admin:
                await one.admin.close()


CLOSING: set[asyncio.Future[None]] = set()
"""Clients that are being closed; an event loop keeps only weak references to its tasks."""
