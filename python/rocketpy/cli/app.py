"""The typer application: every command in one place. Each module of this package holds the commands of its name."""

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rocketpy.cli import (
    acl,
    audit,
    bench,
    broker,
    cluster,
    config,
    console,
    consume,
    demo,
    dlq,
    doctor,
    group,
    ha,
    live_config,
    message,
    message_resend,
    offset,
    ping,
    produce,
    quota,
    schedule,
    status,
    store,
    store_retention,
    store_tools,
    support_bundle,
    testkit,
    top,
    topic,
    topic_change,
    user,
)
from rocketpy.cli.flags import BROKER_VERBS, COMMANDS, Command, Flag, folder_of
from rocketpy.cli.options import wait_for
from rocketpy.commandline.commands import guarded, run_app

SERVERS = "Servers"
CLIENTS = "Clients"
TOOLS = "Tools"


def show_version(asked: bool) -> None:
    """Prints version, commit and build profile, then exits."""
    if asked:
        from rocketpy import __version__
        from rocketpy._rocketpy import __commit__, __profile__

        print(f"rocketpy {__version__} (commit {__commit__}, {__profile__} build)")
        raise typer.Exit


def about(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print version, commit and build.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.001,
            max=86_400,
            help="Timeout of client commands for each server response, as in "
            "`rocketpy --timeout 60 topic list`. Default: 10, for sends 30.",
        ),
    ] = None,
    tls: Annotated[
        bool | None,
        typer.Option(
            "--tls/--no-tls",
            envvar="ROCKETPY_TLS",
            help="Connect client commands by TLS. Default: with --tls-ca or --tls-cert.",
        ),
    ] = None,
    tls_ca: Annotated[
        str | None,
        typer.Option(
            "--tls-ca", envvar="ROCKETPY_TLS_CA", metavar="FILE", help="Authorities to trust. Default: the system's."
        ),
    ] = None,
    tls_cert: Annotated[
        str | None,
        typer.Option("--tls-cert", envvar="ROCKETPY_TLS_CERT", metavar="FILE", help="Certificate of the client."),
    ] = None,
    tls_key: Annotated[
        str | None,
        typer.Option("--tls-key", envvar="ROCKETPY_TLS_KEY", metavar="FILE", help="Private key of that certificate."),
    ] = None,
    credentials: Annotated[
        str | None,
        typer.Option(
            "--credentials",
            envvar="ROCKETPY_CREDENTIALS",
            metavar="FILE",
            help="File with accessKey=NAME and secretKey=SECRET, or Apache's tools.yml. Default: ROCKETPY_ACCESS_KEY "
            "and ROCKETPY_SECRET_KEY.",
        ),
    ] = None,
) -> None:
    """A message broker, its clients and its Spark source: compatible with Apache RocketMQ on the wire and on disk."""
    if timeout is not None:
        wait_for(timeout)
    tls_switch = None if tls is None else str(int(tls))
    given = {"TLS": tls_switch, "TLS_CA": tls_ca, "TLS_CERT": tls_cert, "TLS_KEY": tls_key, "CREDENTIALS": credentials}
    # Where every client of the process finds them.
    os.environ.update({f"ROCKETPY_{name}": value for name, value in given.items() if value is not None})


def server_command(name: str, command: Command) -> Callable[..., None]:
    """Returns a function with the flags as its signature, from which typer generates the help."""

    def start(**options: Any) -> None:
        from rocketpy.cli import serve

        raise typer.Exit(serve.start(name, options))

    start.__doc__ = command.summary
    parameters = [parameter(flag, name) for flag in command.flags]
    start.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return start


def parameter(flag: Flag, command: str) -> inspect.Parameter:
    """Converts a flag of a server command for typer. The server applies the default, so that a file may set it."""
    text = flag.help if flag.default is None else f"{flag.help} (default: {flag.default})"
    kind: Any = flag.kind
    kind = list[kind] if flag.repeated else kind | None
    default: Any = [] if flag.repeated else None
    if flag.is_argument:
        info: Any = typer.Argument(metavar=flag.metavar, help=text, parser=lambda given: folder_of(command, given))
    else:
        info = typer.Option(*flag.names, metavar=flag.metavar or None, help=text)
    return inspect.Parameter(
        flag.key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


class StartOrVerb(TyperGroup):
    """`rocketpy broker DIR` starts a broker; `rocketpy broker drain` and others are commands for running ones."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the flags of the start, unless a command follows."""
        ctx.meta[VERB] = bool(args) and args[0] in self.commands
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Parameters of the start; none but the help before a command."""
        found = super().get_params(ctx)
        return [one for one in found if one.name == "help"] if ctx.meta.get(VERB) else found


VERB = "rocketpy.verb"
"""Mark of a context whose command line names a command for running brokers."""


def broker_app() -> typer.Typer:
    """Builds `rocketpy broker`."""
    command = COMMANDS["broker"]
    part = typer.Typer(cls=StartOrVerb, help=command.summary, invoke_without_command=True)
    start = server_command("broker", command)

    def start_or_verb(context: typer.Context, **options: Any) -> None:
        if context.invoked_subcommand is None:
            start(**options)

    start_or_verb.__doc__ = command.summary
    flags = inspect.signature(start).parameters.values()
    own = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    start_or_verb.__signature__ = inspect.Signature([own, *flags])  # type: ignore[attr-defined]
    part.callback()(start_or_verb)
    functions: tuple[Callable[..., None], ...] = (broker.clean, broker.drain, broker.undrain)
    for verb, function in zip(BROKER_VERBS, functions, strict=True):
        part.command(verb)(guarded(function))
    return part


GROUPS: dict[tuple[str, str, str], tuple[tuple[str, Callable[..., None]], ...]] = {
    ("topic", "Topics of a cluster.", CLIENTS): (
        ("list", topic.list_topics), ("create", topic.create), ("delete", topic.delete),
        ("describe", topic.describe), ("update", topic_change.update), ("perm", topic_change.perm),
        ("move", topic_change.move),
    ),
    ("group", "Consumer groups of a cluster.", CLIENTS): (
        ("list", group.list_groups), ("create", group.create), ("delete", group.delete),
        ("describe", group.describe), ("show", group.show), ("producers", group.producers), ("lag", group.lag),
        ("reset", group.reset), ("clone", group.clone), ("update", group.update),
    ),
    ("offset", "Offsets of consumer groups, by queue.", CLIENTS): (
        ("show", offset.show), ("set", offset.set_offset),
    ),
    ("cluster", "Brokers of a cluster.", CLIENTS): (("list", cluster.list_brokers), ("up", cluster.up)),
    ("ha", "Masters and their slaves.", CLIENTS): (
        ("status", ha.status), ("promote", ha.promote), ("demote", ha.demote),
    ),
    ("quota", "Limits of topics, groups, users and client addresses.", CLIENTS): (
        ("list", quota.list_quotas), ("set", quota.set_quota), ("remove", quota.remove),
    ),
    ("user", "Users: who may connect to brokers and name servers.", CLIENTS): (
        ("list", user.list_users), ("show", user.show), ("add", user.add), ("update", user.update),
        ("delete", user.delete), ("rotate", user.rotate), ("finish-rotation", user.finish_rotation),
    ),
    ("acl", "Policies: what users may do.", CLIENTS): (
        ("list", acl.list_policies), ("show", acl.show), ("grant", acl.grant), ("revoke", acl.revoke),
    ),
    ("dlq", "Dead letters of consumer groups.", CLIENTS): (
        ("list", dlq.list_groups), ("show", dlq.show), ("resend", dlq.resend), ("export", dlq.export),
    ),
    ("schedule", "Cron texts and intervals that send messages.", CLIENTS): (
        ("list", schedule.list_schedules), ("add", schedule.add_schedule), ("remove", schedule.remove_schedule),
    ),
    ("message", "Single messages of a cluster.", CLIENTS): (
        ("query", message.query), ("trace", message.trace), ("resend", message_resend.resend),
    ),
    ("store", "A store folder, with or without a running server.", TOOLS): (
        ("stat", store.stat), ("verify", store_tools.verify), ("dump", store.dump), ("repair", store_tools.repair),
        ("snapshot", store_tools.snapshot), ("diff", store_tools.diff), ("cut", store_tools.cut),
        ("export", store_tools.export_messages), ("import", store_tools.import_messages),
        ("retention", store_retention.retention),
    ),
    ("config", "Configuration keys of running servers and of files.", TOOLS): (
        ("list", live_config.list_keys), ("set", live_config.set_keys), ("unset", live_config.unset_keys),
        ("show", config.show), ("explain", config.explain), ("diff", config.diff)
    ),
    ("bench", "Measure client and server on this machine.", TOOLS): (
        ("send", bench.bench_send), ("produce", bench.bench_produce), ("consume", bench.bench_consume)
    ),
}  # fmt: skip
"""Commands by name, help and panel of their group."""


def make_app() -> typer.Typer:
    """Builds the typer application."""
    app = typer.Typer(name="rocketpy", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.callback()(about)
    for name, command in COMMANDS.items():
        if name != "broker":
            app.command(name, rich_help_panel=SERVERS)(server_command(name, command))
    app.add_typer(broker_app(), name="broker", rich_help_panel=SERVERS)
    app.command("produce", rich_help_panel=CLIENTS)(guarded(produce.produce))
    app.command("consume", rich_help_panel=CLIENTS)(guarded(consume.consume))
    app.command("status", rich_help_panel=CLIENTS)(guarded(status.status))
    app.command("top", rich_help_panel=CLIENTS)(guarded(top.top))
    app.command("console", rich_help_panel=CLIENTS)(guarded(console.console))
    app.command("ping", rich_help_panel=CLIENTS)(guarded(ping.ping))
    for (name, text, panel), commands in GROUPS.items():
        part = typer.Typer(help=text, no_args_is_help=True)
        for verb, function in commands:
            part.command(verb)(guarded(function))
        app.add_typer(part, name=name, rich_help_panel=panel)
    app.command("doctor", rich_help_panel=TOOLS)(guarded(doctor.doctor))
    app.command("audit", rich_help_panel=TOOLS)(guarded(audit.audit))
    app.command("support-bundle", rich_help_panel=TOOLS)(guarded(support_bundle.support_bundle))
    app.command("testkit", rich_help_panel=TOOLS, context_settings={"allow_interspersed_args": False})(
        guarded(testkit.run_with_server)
    )
    app.command("demo", rich_help_panel=TOOLS)(guarded(demo.demo))
    return app


def run(arguments: Sequence[str]) -> int:
    """Runs one command line.

    Args:
        arguments: Arguments after `rocketpy`.

    Returns:
        The exit code.
    """
    return run_app(make_app(), "rocketpy", arguments)
