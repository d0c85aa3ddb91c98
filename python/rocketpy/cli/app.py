"""The typer application: every command in one place. Each module of this package holds the commands of its name."""

import contextlib
import inspect
import logging
from collections.abc import Callable, Generator, Sequence
from typing import Annotated, Any

import typer

from rocketpy.cli import (
    bench,
    cluster,
    config,
    consume,
    demo,
    dlq,
    group,
    ha,
    message,
    produce,
    store,
    store_retention,
    store_tools,
    topic,
)
from rocketpy.cli.exits import ExitCode, Reported, fail, reported
from rocketpy.cli.flags import COMMANDS, Command, Flag
from rocketpy.cli.options import wait_for

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""Click's, of which typer may carry a copy of its own and exports only the subclass."""

SERVERS = "Servers"
CLIENTS = "Clients"
TOOLS = "Tools"


def show_version(asked: bool) -> None:
    """Prints the version with the profile of its build, and ends."""
    if asked:
        from rocketpy import __version__
        from rocketpy._rocketpy import __profile__

        print(f"rocketpy {__version__} ({__profile__} build)")
        raise typer.Exit


def about(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.001,
            max=86_400,
            help="Longest wait of a client command for each answer of a server, as in "
            "`rocketpy --timeout 60 topic list`. Default: 10, for sends 30.",
        ),
    ] = None,
) -> None:
    """A message broker, its clients and its Spark source: compatible with Apache RocketMQ on the wire and on disk."""
    if timeout is not None:
        wait_for(timeout)


def server_command(name: str, command: Command) -> Callable[..., None]:
    """Makes a function whose signature is the table of flags, for typer's help."""

    def start(**options: Any) -> None:
        from rocketpy.cli import serve

        raise typer.Exit(serve.start(name, options))

    start.__doc__ = command.summary
    start.__signature__ = inspect.Signature([parameter(flag) for flag in command.flags])  # type: ignore[attr-defined]
    return start


def parameter(flag: Flag) -> inspect.Parameter:
    """One flag for typer. The server applies the default, so that a file may set the value."""
    text = flag.help if flag.default is None else f"{flag.help} (default: {flag.default})"
    kind: Any = flag.kind
    default: Any = inspect.Parameter.empty
    if flag.repeated:
        kind, default = list[kind], []
    elif not flag.required:
        kind, default = kind | None, None
    if flag.is_argument:
        info: Any = typer.Argument(metavar=flag.metavar, help=text)
    else:
        info = typer.Option(flag.name, metavar=flag.metavar, help=text)
    return inspect.Parameter(
        flag.key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def guarded(function: Callable[..., None]) -> Callable[..., None]:
    """Runs a command so that each failure ends in its error lines and its exit code."""

    def run(**options: Any) -> None:
        with reported():
            function(**options)

    run.__doc__ = function.__doc__
    run.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return run


def make_app() -> typer.Typer:
    """Assembles the commands."""
    app = typer.Typer(name="rocketpy", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.callback()(about)
    for name, command in COMMANDS.items():
        app.command(name, rich_help_panel=SERVERS)(server_command(name, command))
    app.command("produce", rich_help_panel=CLIENTS)(guarded(produce.produce))
    app.command("consume", rich_help_panel=CLIENTS)(guarded(consume.consume))
    groups: dict[tuple[str, str, str], tuple[tuple[str, Callable[..., None]], ...]] = {
        ("topic", "Topics of a cluster.", CLIENTS): (
            ("list", topic.list_topics), ("create", topic.create), ("delete", topic.delete),
            ("describe", topic.describe),
        ),
        ("group", "Consumer groups of a cluster.", CLIENTS): (
            ("list", group.list_groups), ("create", group.create), ("delete", group.delete),
            ("describe", group.describe), ("producers", group.producers), ("lag", group.lag), ("reset", group.reset),
            ("clone", group.clone),
        ),
        ("cluster", "Brokers of a cluster.", CLIENTS): (("list", cluster.list_brokers), ("up", cluster.up)),
        ("ha", "Masters and their slaves.", CLIENTS): (
            ("status", ha.status), ("promote", ha.promote), ("demote", ha.demote),
        ),
        ("dlq", "Dead letters of consumer groups.", CLIENTS): (
            ("list", dlq.list_groups), ("show", dlq.show), ("resend", dlq.resend), ("export", dlq.export),
        ),
        ("message", "Single messages of a cluster.", CLIENTS): (("query", message.query), ("trace", message.trace)),
        ("store", "A store folder, read beside its server or without one.", TOOLS): (
            ("stat", store.stat), ("verify", store_tools.verify), ("dump", store.dump), ("repair", store_tools.repair),
            ("snapshot", store_tools.snapshot), ("diff", store_tools.diff), ("cut", store_tools.cut),
            ("export", store_tools.export_messages), ("import", store_tools.import_messages),
            ("retention", store_retention.retention),
        ),
        ("config", "Configuration keys of the server.", TOOLS): (
            ("show", config.show), ("explain", config.explain), ("diff", config.diff)
        ),
        ("bench", "Measure client and server on this machine.", TOOLS): (
            ("send", bench.bench_send), ("produce", bench.bench_produce), ("consume", bench.bench_consume)
        ),
    }  # fmt: skip
    for (name, text, panel), commands in groups.items():
        part = typer.Typer(help=text, no_args_is_help=True)
        for verb, function in commands:
            part.command(verb)(guarded(function))
        app.add_typer(part, name=name, rich_help_panel=panel)
    app.command("demo", rich_help_panel=TOOLS)(guarded(demo.demo))
    return app


def run(arguments: Sequence[str]) -> int:
    """Runs one command line.

    Args:
        arguments: What follows `rocketpy`.

    Returns:
        The exit code.
    """
    with client_warnings_off():
        try:
            return make_app()(args=list(arguments), prog_name="rocketpy", standalone_mode=False) or int(ExitCode.OK)
        except USAGE_ERROR as error:
            return usage_error(error) if arguments else int(ExitCode.USAGE)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)


@contextlib.contextmanager
def client_warnings_off() -> Generator[None]:
    """Keeps warnings of clients out of the log meanwhile: a command says itself what goes wrong, and how it goes on."""
    clients = logging.getLogger("rocketpy.client")
    level = clients.level
    clients.setLevel(logging.ERROR)
    try:
        yield
    finally:
        clients.setLevel(level)


def usage_error(error: Any) -> int:
    """Reports a wrong command line in the form of all other errors.

    Args:
        error: typer's. Without a command it has printed the help by now.

    Returns:
        The exit code.
    """
    is_bare = type(error).__name__ == "NoArgsIsHelpError"
    message = "a command is missing" if is_bare else str(error.format_message()).rstrip(".")
    path = error.ctx.command_path if error.ctx else "rocketpy"
    try:
        fail(message[:1].lower() + message[1:], ExitCode.USAGE, f"run `{path} --help` for what it takes")
    except Reported as end:
        return int(str(end.code))
