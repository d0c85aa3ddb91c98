"""Console beside a server in one process, and the check of its packages. Imports only the standard library."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketpy.commandline.exits import CommandError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from rocketpy.console.settings import Settings
    from rocketpy.servers.server import Server

DEFAULT_LISTEN = "127.0.0.1:8080"
NEEDED = ("jinja2", "starlette", "uvicorn")
EXTRA = "pip install 'rocketpy-mq[console]'"


def check_extra() -> None:
    """Checks that the packages of the console are installed.

    Raises:
        CommandError: A package is missing.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(f"not installed: {', '.join(missing)}", ExitCode.NOT_FOUND, EXTRA)


def split(listen: str, option: str = "--listen") -> tuple[str, int]:
    """Host and port of a listen address.

    Args:
        listen: `HOST:PORT`.
        option: Option that has it, for the error.

    Raises:
        CommandError: The text is not an address.

    Examples:
        >>> split("127.0.0.1:8080"), split("[::1]:0"), split(":80")
        (('127.0.0.1', 8080), ('::1', 0), ('0.0.0.0', 80))
    """
    host, _, port = listen.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise CommandError(f"{option} must be HOST:PORT: {listen}", ExitCode.USAGE, f"for example {DEFAULT_LISTEN}")
    return host.strip("[]") or "0.0.0.0", int(port)


def log_audit() -> None:
    """Writes the audit log of a console without a data folder to standard error."""
    audit = logging.getLogger("rocketpy.console.audit")
    audit.setLevel(logging.INFO)
    if not audit.handlers:
        audit.addHandler(logging.StreamHandler())


def add_ready(path: Path, url: str, known: Mapping[str, object]) -> None:
    """Writes the URL of the console into a ready file in one step, with the known values of the servers."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps({**known, "console": url}) + "\n")
    part.replace(path)


def check_open(name_servers: str) -> None:
    """Ends the command if the cluster wants a user. A cluster that does not answer is shown as such later.

    Raises:
        CommandError: The cluster has access control.
    """
    from rocketpy import AccessDeniedError, Admin, RocketPyError

    with Admin(name_servers, api_timeout=3.0, connect_timeout=3.0) as admin:
        try:
            brokers = admin.brokers()
            for broker in brokers:
                for address in broker.addresses.values():
                    admin.broker_figures(address)
        except AccessDeniedError as error:
            hint = "add --credentials FILE of a user that may read the cluster; visitors then log in"
            raise CommandError(f"cluster has access control: {error}", ExitCode.REFUSED, hint) from error
        except RocketPyError as error:
            print(f"warning: the cluster does not answer yet: {error}", file=sys.stderr, flush=True)


def settings_of(server: Server, options: Mapping[str, Any]) -> Settings:
    """Settings of the console of a server: loopback without a login, or with `--secure` its administrator's."""
    from rocketpy.console.settings import Settings
    from rocketpy.security import Credentials, Tls

    host, port = split(options.get("console_listen") or DEFAULT_LISTEN, "--console-listen")
    if not options.get("secure"):
        settings = Settings(server.name_server, host=host, port=port)
        if not settings.is_local:
            hint = "add --secure, or listen on 127.0.0.1"
            raise CommandError(f"console cannot listen on {host} without a login", ExitCode.REFUSED, hint)
        check_open(server.name_server)
        return settings
    folder = Path(server.path) / "secure"
    if host not in {"127.0.0.1", "::1", "localhost"}:
        hint = "start `rocketpy console` with --cert and --key for other addresses"
        raise CommandError(f"console of --secure must listen on loopback: {host}", ExitCode.REFUSED, hint)
    return Settings(
        server.name_server,
        host=host,
        port=port,
        role="admin",
        credentials=Credentials.from_file(folder / "admin.json"),
        tls=Tls(ca_file=str(folder / "ca.pem")),
    )


@contextlib.contextmanager
def beside(server: Any, options: Mapping[str, Any]) -> Generator[str | None]:
    """Runs the console next to a running server if the command line has `--console`; yields its URL, or None."""
    if not options.get("console"):
        yield None
        return
    from rocketpy.console.embedded import EmbeddedConsole

    log_audit()
    with EmbeddedConsole(settings_of(server, options)) as console:
        if options["ready_file"] is not None:
            ready = Path(options["ready_file"])
            add_ready(ready, console.url, json.loads(ready.read_text()))
        yield console.url
