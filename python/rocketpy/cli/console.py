"""`rocketpy console`: the console in a browser."""

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from rocketpy.cli.console_extra import DEFAULT_LISTEN, add_ready, check_extra, check_open, log_audit, split
from rocketpy.cli.options import LOCAL, NameServer
from rocketpy.commandline.exits import CommandError, ExitCode

if TYPE_CHECKING:
    from rocketpy.config import Credentials
    from rocketpy.console.settings import Settings

ROLES = ("reader", "operator", "admin")

CredentialsFile = Annotated[
    Path | None,
    typer.Option(
        "--credentials",
        metavar="FILE",
        help="User that reads the cluster; visitors then log in as its users. Default: ROCKETPY_CREDENTIALS.",
    ),
]
Certificate = Annotated[
    Path | None, typer.Option("--cert", metavar="FILE", help="PEM certificate of the console, for HTTPS.")
]
Key = Annotated[Path | None, typer.Option("--key", metavar="FILE", help="Private key of that certificate.")]
PlainHttp = Annotated[
    bool,
    typer.Option(
        "--plain-http", help="Allow other addresses or --public-host without --cert: a proxy in front must end TLS."
    ),
]
PublicHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--public-host",
        metavar="NAME",
        help="Host name of a proxy in the browser's address; repeatable. Needs a login.",
    ),
]


def console(
    name_server: NameServer = LOCAL,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Address of the console; port 0 is a free one.")
    ] = DEFAULT_LISTEN,
    role: Annotated[
        str | None,
        typer.Option(
            "--role",
            metavar="|".join(ROLES),
            help="Role of every visitor; maximum role with a login. Default: operator, with a login admin.",
        ),
    ] = None,
    credentials: CredentialsFile = None,
    cert: Certificate = None,
    key: Key = None,
    plain_http: PlainHttp = False,
    public_host: PublicHosts = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Folder for rules, history and audit. Default: kept in memory."),
    ] = None,
    alerts: Annotated[
        bool, typer.Option("--alerts/--no-alerts", help="Evaluate rules and notify; one console of a cluster does.")
    ] = True,
    history_bytes: Annotated[
        int, typer.Option("--history-bytes", min=1 << 20, max=1 << 30, help="Maximum memory of the history.")
    ] = 32 << 20,
    ready_file: Annotated[
        Path | None,
        typer.Option("--ready-file", metavar="FILE", help="File for process id and URL as JSON, when ready."),
    ] = None,
) -> None:
    """Show the cluster in a browser, until Ctrl-C."""
    check_extra()
    if data is None:
        log_audit()
    from rocketpy.console.settings import Settings

    host, port = split(listen)
    user = credentials_of(credentials)
    settings = Settings(
        name_servers=name_server,
        host=host,
        port=port,
        role=cast("Any", role_of(role, has_login=user is not None)),
        credentials=user,
        cert_file=cert,
        key_file=key,
        public_hosts=tuple(public_host or ()),
        data=data,
        history_bytes=history_bytes,
        alerts=alerts,
    )
    check(settings, plain_http=plain_http)
    if user is None:
        check_open(name_server)
    asyncio.run(serve(settings, ready_file))


def role_of(given: str | None, *, has_login: bool) -> str:
    """Role of `--role`, or the default."""
    found = given or ("admin" if has_login else "operator")
    if found not in ROLES:
        raise CommandError(f"--role must be one of {', '.join(ROLES)}: {given}", ExitCode.USAGE)
    return found


def credentials_of(path: Path | None) -> "Credentials | None":
    """Credentials of the collector: of the option, else of the environment, as other commands have them."""
    from rocketpy.security import Credentials

    file = path or os.environ.get("ROCKETPY_CREDENTIALS")
    if file:
        return Credentials.from_file(file)
    key, secret = os.environ.get("ROCKETPY_ACCESS_KEY"), os.environ.get("ROCKETPY_SECRET_KEY")
    return Credentials(key, secret) if key and secret else None


def check(settings: "Settings", *, plain_http: bool) -> None:
    """Refuses settings under which strangers could act or read passwords.

    Raises:
        CommandError: The settings are not safe or not complete.
    """
    from rocketpy.console.settings import is_loopback

    if (settings.cert_file is None) != (settings.key_file is None):
        raise CommandError("--cert and --key belong together", ExitCode.USAGE, "give both, or neither")
    for name, path in (("--cert", settings.cert_file), ("--key", settings.key_file)):
        if path is not None and not path.is_file():
            raise CommandError(f"{name}: no such file: {path}", ExitCode.NOT_FOUND, "check the path")
    if settings.is_local:
        return
    served = f"listen on {settings.host}"
    if is_loopback(settings.host):
        served = f"serve --public-host {' '.join(settings.public_hosts)}"
    if not settings.has_login:
        hint = "turn on users of the cluster and add --credentials FILE, or listen on 127.0.0.1 without --public-host"
        raise CommandError(f"cannot {served} without a login", ExitCode.REFUSED, hint)
    if settings.cert_file is None and not plain_http:
        hint = "add --cert and --key, or --plain-http behind a proxy that ends TLS"
        raise CommandError(f"cannot {served} without TLS", ExitCode.REFUSED, hint)


async def serve(settings: "Settings", ready_file: Path | None) -> None:
    """Serves until SIGINT or SIGTERM."""
    from rocketpy.console.serve import address_of, bind
    from rocketpy.console.serve import serve as serve_on

    bound = bind(settings.host, settings.port)
    url = address_of(settings, bound)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)

    def ready() -> None:
        print(f"console {url}; Ctrl-C stops", flush=True)
        if ready_file is not None:
            add_ready(ready_file, url, {"pid": os.getpid()})

    await serve_on(settings, bound, ready, stop)
