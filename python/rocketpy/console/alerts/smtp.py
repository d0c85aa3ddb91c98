"""Mail: sends notifications over SMTP with TLS, by STARTTLS or from the first byte, with verification."""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from rocketpy.base.credential_file import private_text
from rocketpy.base.instant import datetime_of, now_ms
from rocketpy.base.text import CONTROL, printable
from rocketpy.console.alerts.webhook import DeliveryError, iso
from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocketpy.console.alerts.records import Notice

TIMEOUT_SECONDS = 10.0
"""Maximum time of each step of a session, in seconds."""
SESSION_SECONDS = 30.0
"""Maximum time of a session, in seconds."""
MAX_RECIPIENTS = 20
MAX_ADDRESS = 254
"""Maximum length of an address, in characters."""
SERVER, SENDER = "ROCKETPY_CONSOLE_SMTP", "ROCKETPY_CONSOLE_SMTP_FROM"
PASSWORD, PASSWORD_FILE = "ROCKETPY_CONSOLE_SMTP_PASSWORD", "ROCKETPY_CONSOLE_SMTP_PASSWORD_FILE"
SHAPE = "write smtps://USER@HOST:465, or smtp://USER@HOST:587 for STARTTLS"


@dataclass(frozen=True, slots=True)
class MailServer:
    """Mail server of the command line or of the environment: a page cannot name another one."""

    host: str
    port: int
    is_implicit: bool
    """Whether TLS begins with the first byte; else by STARTTLS, which is required."""
    user: str | None
    sender: str
    """Address of the sender."""
    password: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """URL without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"smtp{'s' if self.is_implicit else ''}://{host}:{self.port}"


def mail_server(url: str, sender: str, *, password: str | None = None, password_file: Path | None = None) -> MailServer:
    """Mail server of a URL.

    Args:
        url: `smtps://USER@HOST:465`, or `smtp://USER@HOST:587` for STARTTLS. USER is for servers with a login.
        sender: Address of the sender.
        password: Password of the user.
        password_file: Private file whose first line is the password.

    Raises:
        InvalidArgumentError: The URL, the sender or the file cannot be used.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidArgumentError("URL of the mail server is not a URL", hint=SHAPE) from None
    if parts.scheme not in {"smtp", "smtps"} or not host or parts.path.strip("/") or parts.query or parts.fragment:
        raise InvalidArgumentError("URL of the mail server must be smtp or smtps with a host", hint=SHAPE)
    if parts.password is not None:
        raise InvalidArgumentError("URL of the mail server must not have a password", hint=f"set {PASSWORD_FILE}")
    is_implicit = parts.scheme == "smtps"
    if password_file is not None:
        lines = private_text(password_file).splitlines()
        if not lines or not lines[0]:
            raise InvalidArgumentError(f"password file of the mail server is empty: {password_file}")
        password = lines[0]
    user = unquote(parts.username) if parts.username else None
    if user and password is None:
        raise InvalidArgumentError(
            f"mail server has a user without a password: {user}", hint=f"set {PASSWORD_FILE} or {PASSWORD}"
        )
    return MailServer(host, port or (465 if is_implicit else 587), is_implicit, user, one_address(sender), password)


def mail_server_of(environment: Mapping[str, str]) -> MailServer | None:
    """Mail server of environment variables; None without one.

    Raises:
        InvalidArgumentError: A variable is wrong.
    """
    url = environment.get(SERVER)
    if not url:
        return None
    sender = environment.get(SENDER)
    if not sender:
        raise InvalidArgumentError(f"{SERVER} is set without {SENDER}", hint=f"set {SENDER}, the address of the sender")
    file = environment.get(PASSWORD_FILE)
    return mail_server(url, sender, password=environment.get(PASSWORD), password_file=Path(file) if file else None)


def addresses(text: str) -> list[str]:
    """Addresses of a mail, with commas between them.

    Raises:
        InvalidArgumentError: One is not an address, or there are none or too many.
    """
    found = [one_address(part) for part in text.split(",")]
    if len(found) > MAX_RECIPIENTS:
        raise InvalidArgumentError(f"number of recipients exceeds {MAX_RECIPIENTS}: {len(found)}")
    return found


def one_address(text: str) -> str:
    """Checks an address of a mail.

    Raises:
        InvalidArgumentError: It is not `NAME@HOST` in ASCII.
    """
    given = text.strip()
    name, at, host = given.rpartition("@")
    has_wrong = not given.isascii() or CONTROL.search(given) or any(one in ' ,;:<>()[]\\"' for one in given)
    if not (name and at and host) or has_wrong or name.startswith("-") or len(given) > MAX_ADDRESS:
        raise InvalidArgumentError(f"not an address of a mail: {printable(given)[:MAX_ADDRESS]}")
    return given


class Ending(smtplib.SMTP):
    """Session with a maximum time: the timeout of `smtplib` is one for each read."""

    _timer: threading.Timer | None = None

    def connect(self, host: str = "localhost", port: int = 0, source_address: Any = None) -> tuple[int, bytes]:
        """Connects, and starts the time."""
        self._timer = threading.Timer(SESSION_SECONDS, self.cut)
        self._timer.daemon = True
        self._timer.start()
        return super().connect(host, port, source_address)

    def cut(self) -> None:
        """Ends the connection, so that the read of the other thread fails."""
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection."""
        if self._timer is not None:
            self._timer.cancel()
        super().close()


class TlsSession(Ending, smtplib.SMTP_SSL):
    """Session that begins with TLS."""


class Mail:
    """Sink of mail addresses.

    Args:
        server: Mail server.
        recipients: Addresses with commas between them.
        context: TLS settings; default: the authorities of the system.
        timeout: Maximum time of each step in seconds.

    Raises:
        InvalidArgumentError: An address is refused.
    """

    def __init__(
        self,
        server: MailServer,
        recipients: str,
        *,
        context: ssl.SSLContext | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._server, self._recipients = server, addresses(recipients)
        self._context, self._timeout = context, timeout

    def send(self, notices: Sequence[Notice], cluster: str) -> None:
        """Sends notifications in one mail.

        Raises:
            DeliveryError: The mail server did not accept it for every recipient.
        """
        message = self._message(notices, cluster)
        try:
            with self._session() as session:
                refused = session.send_message(message)
        except smtplib.SMTPAuthenticationError as error:  # its text may quote the login
            raise DeliveryError(f"mail server refused the login of {self._server.user}: {error.smtp_code}") from None
        except smtplib.SMTPNotSupportedError:
            raise DeliveryError("mail server does not offer STARTTLS, or a login that this console knows") from None
        except smtplib.SMTPRecipientsRefused:
            raise DeliveryError("mail server refused every recipient") from None
        except smtplib.SMTPResponseException as error:
            raise DeliveryError(f"mail server answered {error.smtp_code}") from None
        except ssl.SSLCertVerificationError as error:
            raise DeliveryError(f"certificate of the mail server is not valid: {error.verify_message}") from None
        except (TimeoutError, smtplib.SMTPServerDisconnected):  # smtplib says the latter also after a timeout
            raise DeliveryError(f"mail server closed the connection or did not answer in {self._timeout:g} s") from None
        except smtplib.SMTPException as error:
            raise DeliveryError(f"mail server failed: {type(error).__name__}") from None
        except OSError as error:
            raise DeliveryError(f"cannot reach the mail server: {error.strerror or type(error).__name__}") from None
        if refused:
            raise DeliveryError(f"mail server refused {len(refused)} of {len(self._recipients)} recipients")

    def _session(self) -> smtplib.SMTP:
        server, context = self._server, self._context or ssl.create_default_context()
        session: smtplib.SMTP
        if server.is_implicit:
            session = TlsSession(server.host, server.port, timeout=self._timeout, context=context)
        else:
            session = Ending(server.host, server.port, timeout=self._timeout)
        try:
            if not server.is_implicit:
                session.starttls(context=context)
            if server.user is not None and server.password is not None:
                session.login(server.user, server.password)
        except BaseException:
            session.close()
            raise
        return session

    def _message(self, notices: Sequence[Notice], cluster: str) -> EmailMessage:
        message = EmailMessage()
        first = notices[0].text if notices else "Nothing"
        more = f" (+{len(notices) - 1} more)" if len(notices) > 1 else ""
        message["Subject"] = printable(f"[{cluster or 'rocketpy'}] {first[:150]}{more}")
        message["From"], message["To"] = self._server.sender, ", ".join(self._recipients)
        message["Date"] = format_datetime(datetime_of(now_ms()))  # type: ignore[arg-type]
        message["Message-ID"] = make_msgid(domain=self._server.sender.rpartition("@")[2])
        message["Auto-Submitted"] = "auto-generated"
        lines = [f"{iso(one.at_ms)}  {one.kind}  {one.text}  (rule: {one.rule_name})" for one in notices]
        text = "\n".join(printable(line) for line in lines)
        message.set_content(f"{text}\n\nSent by the console of RocketPy.\n")
        return message
