"""The flags of the server commands, once: argparse parses them (`serve`), typer prints their help (`app`)."""

import difflib
from pathlib import Path
from typing import NamedTuple

from rocketpy.commandline.exits import ExitCode, fail


class Flag(NamedTuple):
    """Flag or argument of a server command."""

    name: str
    kind: type[str] | type[int] | type[Path] | type[bool]
    """bool for a switch without a value."""
    metavar: str
    help: str
    default: str | int | None = None
    repeated: bool = False
    short: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names on the command line."""
        return (self.name,) if self.short is None else (self.name, self.short)

    @property
    def key(self) -> str:
        """Name of the Python parameter."""
        return self.name.removeprefix("--").replace("-", "_").lower()

    @property
    def is_argument(self) -> bool:
        """Whether the flag is positional."""
        return not self.name.startswith("--")


class Command(NamedTuple):
    """Server command."""

    summary: str
    flags: tuple[Flag, ...]


FOLDER = Flag(
    "DIR", Path, "DIR", "Folder of the store; created if missing. Default: `storePathRootDir` of the configuration."
)
HOST = Flag("--host", str, "HOST", "Address to listen on; 0.0.0.0 for all.", default="127.0.0.1")
CONFIG = Flag("--config", Path, "FILE", "TOML, or Apache's properties as in broker.conf.", short="-c")
SETTING = Flag(
    "--set", str, "KEY=VALUE", "Any key of Apache's or RocketPy's configuration; may be repeated.", repeated=True
)
READY_FILE = Flag(
    "--ready-file",
    Path,
    "PATH",
    'File for {"pid", "name_server", "broker", "metrics"} as JSON, renamed into place once all servers accept.',
)
LOG_FLAGS = (
    Flag("--log-file", Path, "PATH", "File for log lines instead of standard error; SIGHUP opens it again."),
    Flag("--log-file-bytes", int, "N", "Size at which the log file is renamed to PATH.1.", default=64 << 20),
    Flag("--log-files", int, "N", "Maximum number of renamed log files, PATH.1 to PATH.N.", default=10),
    Flag("--log-format", str, "FORMAT", "text, or json: one object per line.", default="text"),
)
BROKER_PORT = Flag("--port", int, "N", "Port of the broker; 0 selects a free one.", default=10911)
NAME_SERVER_PORT = Flag("--name-server-port", int, "N", "Port of the name server; 0 selects a free one.", default=9876)

SECURE = Flag(
    "--secure", bool, "", "TLS and users; creates certificates, an administrator and a client user in DIR/secure."
)

CONSOLE = Flag("--console", bool, "", "Serve the web console too. Needs the extra `console`.")
CONSOLE_LISTEN = Flag(
    "--console-listen", str, "HOST:PORT", "Loopback address of the console; port 0 is a free one.", "127.0.0.1:8080"
)

BROKER_NAME = Flag("--broker-name", str, "NAME", "Name that a master and its slaves share. Default: broker-a.")
ROLE = Flag("--role", str, "ROLE", "async-master, sync-master or slave. Default: async-master.")
BROKER_ID = Flag("--broker-id", int, "N", "Id of a slave among the brokers of its name, from 1 on. Default: 1.")

BROKER_VERBS = ("clean", "drain", "undrain")
"""Commands of `rocketpy broker` for running brokers; write `./drain` for a folder of that name."""
OTHER_VERBS = {
    "help": "--help shows the options",
    "list": "`rocketpy cluster list` shows the running brokers",
    "restart": "Ctrl-C or SIGTERM stops a server; start it again with its folder",
    "start": "the command starts a server without a verb",
    "status": "`rocketpy status` shows the cluster",
    "stop": "Ctrl-C or SIGTERM stops a server",
}
"""Commands of other programs that start servers, and their way out here."""
SIMILAR = 0.75
"""Similarity of a mistyped command: 0.8 for two exchanged letters."""


def folder_of(command: str, text: str) -> Path:
    """Reads DIR of a server command. A path such as `./drain` is always a folder.

    Args:
        command: The server command.
        text: DIR as written.

    Raises:
        Reported: The folder does not exist, and its name is probably a command.
    """
    if text.isalpha() and not Path(text).is_dir():
        near = difflib.get_close_matches(text.lower(), BROKER_VERBS, 1, SIMILAR) if command == "broker" else []
        way_out = f"`rocketpy broker {near[0]} BROKER` is the command" if near else OTHER_VERBS.get(text.lower())
        if way_out is not None:
            meant = f" (did you mean {near[0]}?)" if near and near[0] != text else ""
            hint = f"{way_out}; for a new folder of that name write ./{text}"
            fail(f"no such command or folder: {text}{meant}", ExitCode.USAGE, hint)
    return Path(text)


COMMANDS = {
    "server": Command(
        "Start a name server and a broker in one process.",
        (
            FOLDER,
            HOST,
            BROKER_PORT,
            NAME_SERVER_PORT,
            SECURE,
            CONFIG,
            SETTING,
            READY_FILE,
            CONSOLE,
            CONSOLE_LISTEN,
            *LOG_FLAGS,
        ),
    ),
    "namesrv": Command(
        "Start a name server.",
        (HOST, NAME_SERVER_PORT._replace(name="--port"), CONFIG, READY_FILE, *LOG_FLAGS),
    ),
    "broker": Command(
        "Start a broker that registers at name servers.",
        (
            FOLDER,
            Flag(
                "--name-server",
                str,
                "HOST:PORT[,HOST:PORT]",
                "Name servers to register at. Default: NAMESRV_ADDR, then the configuration.",
                short="-n",
            ),
            HOST,
            BROKER_PORT,
            BROKER_NAME,
            ROLE,
            BROKER_ID,
            CONFIG,
            SETTING,
            READY_FILE,
            *LOG_FLAGS,
        ),
    ),
}
