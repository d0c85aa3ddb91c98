"""Runs a name server, a broker or both until SIGINT or SIGTERM. Imports only the standard library and the extension."""

import argparse
import difflib
import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from rocketpy.cli.flags import COMMANDS, FOLDER, LOG_FLAGS, folder_of
from rocketpy.commandline.exits import CommandError, ExitCode, Reported, check_values, fail, reported

if TYPE_CHECKING:
    from rocketpy.servers.server import Broker, NameServer, Server

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
USERS_FILE = Path("config", "users.json")
"""Default place of users and policies in a store."""
LIVENESS_SECONDS = 0.5
"""Interval at which a running server is checked for a failed disk."""


class Parser(argparse.ArgumentParser):
    """Reports a wrong command line in the form of the other commands."""

    def error(self, message: str) -> NoReturn:
        """Ends the process with the error, the hint and the usage exit code."""
        fail(message, ExitCode.USAGE, f"run `{self.prog} --help` to see its options")


def parse(arguments: Sequence[str]) -> dict[str, Any]:
    """Parses a server command line. A flag that was not given is None, so that a file may set it.

    Args:
        arguments: Name and arguments of the command.

    Returns:
        Values by parameter name.
    """
    name = arguments[0]
    parser = Parser(prog=f"rocketpy {name}", allow_abbrev=False, add_help=False)
    for flag in COMMANDS[name].flags:
        if flag.kind is bool:
            parser.add_argument(*flag.names, action="store_true", default=None)
            continue
        extra: dict[str, Any] = {"metavar": flag.metavar}
        extra |= {"nargs": "?"} if flag.is_argument else {"dest": flag.key}
        if flag.repeated:
            extra |= {"action": "append", "default": []}
        names = (flag.name.lower(),) if flag.is_argument else flag.names
        kind = partial(folder_of, name) if flag is FOLDER else flag.kind
        parser.add_argument(*names, type=kind, **extra)
    values, unknown = parser.parse_known_args(arguments[1:])
    if unknown:
        refuse_unknown(parser, unknown)
    return vars(values)


def refuse_unknown(parser: Parser, unknown: Sequence[str]) -> NoReturn:
    """Ends the process with an error that suggests the most similar flag."""
    name = unknown[0].partition("=")[0]
    known = [flag for action in parser._actions for flag in action.option_strings]
    near = difflib.get_close_matches(name, known, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    parser.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")


def run(arguments: Sequence[str]) -> int:
    """Runs a server command line and returns the exit code."""
    try:
        return start(arguments[0], parse(arguments))
    except Reported as end:
        return int(str(end.code))
    except SystemExit as end:
        return int(str(end.code or 0))


def settings_of(pairs: Sequence[str], example: str = "--set flushDiskType=SYNC_FLUSH") -> dict[str, str]:
    """Splits `KEY=VALUE` texts; the last value of a key applies.

    Args:
        pairs: The texts.
        example: Example of the command, for the error.

    Raises:
        InvalidArgumentError: The value of a key is a secret.
    """
    from rocketpy import _rocketpy

    for pair in pairs:
        if "=" not in pair:
            fail(f"expected KEY=VALUE: {pair}", ExitCode.USAGE, f"for example {example}")
        _rocketpy.config_check_on_command_line(pair.split("=", 1)[0])
    return dict(pair.split("=", 1) for pair in pairs)


LOG_FORMATS = ("text", "json")
ROLES = ("async-master", "sync-master", "slave")
"""Values of `--role`, in place of those of `brokerRole`."""


def role_settings(options: Mapping[str, Any]) -> dict[str, str]:
    """Returns the settings of `--broker-name`, `--role` and `--broker-id`. The default id of a slave is 1."""
    given, broker_id = options.get("role"), options.get("broker_id")
    role = given and given.lower().replace("_", "-")  # accepts the spelling of `brokerRole`
    if role is not None and role not in ROLES:
        fail(
            f"--role must be one of {', '.join(ROLES)}: {given}",
            ExitCode.USAGE,
            "for example --role slave --broker-id 1",
        )
    if role == "slave" and broker_id is None:
        broker_id = 1
    found = {
        "brokerName": options.get("broker_name"),
        "brokerRole": role and role.upper().replace("-", "_"),
        "brokerId": broker_id,
    }
    return {key: str(value) for key, value in found.items() if value is not None}


def start(name: str, options: Mapping[str, Any]) -> int:
    """Starts the servers of a command and stops them in order on SIGINT or SIGTERM.

    Args:
        name: `server`, `namesrv` or `broker`.
        options: Values by the names of the flags.

    Returns:
        The exit code.
    """
    with reported():
        check_values({flag.name.lower(): options.get(flag.key) for flag in COMMANDS[name].flags})
    if options.get("console"):
        from rocketpy.cli.console_extra import check_extra

        with reported():
            check_extra()
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    for number in (*STOP_SIGNALS, *([signal.SIGHUP] if options["log_file"] else [])):
        signal.signal(number, leave_to_the_pipe)
    with reported(), make(name, options) as server, console_beside(server, options) as console:
        print(banner(name, server, options), flush=True)
        if console is not None:
            print(f"console: {console}", flush=True)
        if options.get("secure"):
            print(ways_in(cast("Server", server), has_own_certificate(options)), flush=True)
        if server.warning:
            print(f"warning: {server.warning}", file=sys.stderr, flush=True)
        while not is_stopped(wake):
            server.check()
    return int(ExitCode.OK)


def console_beside(server: "Server | NameServer | Broker", options: Mapping[str, Any]) -> Any:
    """Console of `--console`, as a context that yields its URL; without it a context that yields None."""
    if not options.get("console"):
        return nullcontext()
    from rocketpy.cli.console_extra import beside

    return beside(server, options)


def is_stopped(wake: int) -> bool:
    """Waits a moment for signals and returns whether one of them stops the server. SIGHUP opens the log file again."""
    if not select.select([wake], [], [], LIVENESS_SECONDS)[0]:
        return False
    numbers = os.read(wake, 64)
    if signal.SIGHUP in numbers:
        from rocketpy._rocketpy import reopen_log

        reopen_log()
    return any(number in STOP_SIGNALS for number in numbers)


def start_log(options: Mapping[str, Any]) -> None:
    """Starts the log as the flags say."""
    from rocketpy._rocketpy import start_log as start

    chosen: dict[str, Any] = {}
    for flag in LOG_FLAGS:
        chosen[flag.key] = flag.default if options[flag.key] is None else options[flag.key]
    for key, low, high in (("log_file_bytes", 4096, 1 << 40), ("log_files", 1, 1000)):
        if not low <= chosen[key] <= high:
            fail(f"--{key.replace('_', '-')} must be {low} to {high}: {chosen[key]}", ExitCode.USAGE)
    if chosen["log_format"] not in LOG_FORMATS:
        fail(f"--log-format must be one of {', '.join(LOG_FORMATS)}: {chosen['log_format']}", ExitCode.USAGE)
    path = chosen["log_file"]
    start(path and str(path), chosen["log_file_bytes"], chosen["log_files"], chosen["log_format"] == "json")


def leave_to_the_pipe(number: int, frame: object) -> None:
    """Does nothing: a signal with a handler of Python's writes to the wake-up pipe."""


def make(name: str, options: Mapping[str, Any]) -> "Server | NameServer | Broker":
    """Creates the servers of a command; entering the result starts them."""
    settings = role_settings(options) | settings_of(options.get("set") or [])
    if options.get("secure"):
        settings["secure"] = "true"
    from rocketpy.servers.server import Broker, NameServer, Server

    start_log(options)

    if options["config"] is not None and not Path(options["config"]).exists():
        raise CommandError(
            f"no such configuration file: {options['config']}",
            ExitCode.NOT_FOUND,
            "check the path: a file of KEY=VALUE lines, or a TOML file",
        )
    if name != "namesrv" and options["dir"] is None:
        options = {**options, "dir": configured_folder(options["config"], settings)}
    common = {"host": options["host"], "config": options["config"], "ready_file": options["ready_file"]}
    if name == "namesrv":
        return NameServer(port=options["port"], **common)
    if name == "broker":
        return Broker(
            options["dir"], name_servers=options["name_server"], port=options["port"], settings=settings, **common
        )
    return Server(
        options["dir"],
        port=options["port"],
        name_server_port=options["name_server_port"],
        settings=settings,
        **common,
    )


def configured_folder(config: Path | None, settings: Mapping[str, str]) -> str:
    """Returns the folder of the store that `storePathRootDir` names.

    Raises:
        CommandError: No layer sets it.
    """
    from rocketpy._rocketpy import config_keys

    keys, _ = config_keys(None if config is None else str(config), list(settings.items()), True)
    for key in keys:
        if key["name"] == "storePathRootDir" and key["layer"] not in {"default", "Apache's default"}:
            return key["text"]
    raise CommandError(
        "no folder for the store: DIR is missing, and no configuration sets storePathRootDir",
        ExitCode.USAGE,
        "name the folder, or set storePathRootDir in the file of --config",
    )


def banner(name: str, server: "Server | NameServer | Broker", options: Mapping[str, Any]) -> str:
    """Returns the line to print when every server accepts connections."""
    parts = [("name server", "name_server"), ("broker", "broker")]
    addresses = ", ".join(f"{title} {getattr(server, part)}" for title, part in parts if hasattr(server, part))
    where = "" if name == "namesrv" else f", store {getattr(server, 'path', '')}"
    return f"{addresses}{where}; Ctrl-C stops"


def has_own_certificate(options: Mapping[str, Any]) -> bool:
    """Whether the configuration of a server names a certificate, which `--secure` then does not make."""
    from rocketpy._rocketpy import config_keys

    config = options["config"]
    settings = role_settings(options) | settings_of(options.get("set") or [])
    keys, _ = config_keys(None if config is None else str(config), list(settings.items()), True)
    return any(key["name"] == "tlsServerCertPath" and key["text"] for key in keys)


def ways_in(server: "Server", is_own_certificate: bool) -> str:
    """Returns the lines that say how to connect to a secure server.

    Args:
        server: The server, which runs.
        is_own_certificate: Whether its certificate is not that of its folder.
    """
    folder, address = Path(server.path) / "secure", server.name_server
    authority = folder / "ca.pem"
    is_own_certificate = is_own_certificate or not authority.exists()  # or Apache's file names one
    tls, python = ("--tls", "rocketpy.Tls()")
    if not is_own_certificate:
        tls, python = f"--tls-ca {authority}", f'rocketpy.Tls(ca_file="{authority}")'
    lines = [
        f"administrator: rocketpy {tls} --credentials {folder / 'admin.json'} status --name-server {address}",
        f'client: rocketpy.Producer("GROUP", name_servers="{address}", tls={python},'
        f' credentials=rocketpy.Credentials.from_file("{folder / "client.json"}"))',
    ]
    if is_own_certificate:
        lines.append(
            "certificate: that of tlsServerCertPath; connect by a host that it names, and add --tls-ca FILE or "
            "ca_file= where the system does not trust its authority"
        )
    stale = [name for name in ("admin", "client") if is_stale(folder / f"{name}.json", Path(server.path))]
    lines += [
        f"note: {folder / name}.json is out of date: the user was deleted, or got another password" for name in stale
    ]
    return "\n".join(lines)


def is_stale(credentials: Path, store: Path) -> bool:
    """Whether the users of a store are known, and a user is missing or has not the password of its credentials file."""
    import json

    try:
        given = json.loads(credentials.read_bytes())
        users = json.loads((store / USERS_FILE).read_bytes())["users"]
        known = users.get(given["accessKey"])
        return known is None or given["secretKey"] not in known["secrets"]
    except (OSError, ValueError, LookupError, TypeError):
        return False
