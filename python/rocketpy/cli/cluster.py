"""`rocketpy cluster`: list, up."""

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketpy import Admin, RocketPyError
from rocketpy.base.wakeup import StopRequest
from rocketpy.cli.options import LOCAL, WAITING, Json, NameServer
from rocketpy.config import ClientOptions
from rocketpy.console import output
from rocketpy.console.exits import CommandError, ExitCode

FIGURES: ClientOptions = {"api_timeout": 3.0, "connect_timeout": 3.0}
"""Short timeouts: an unresponsive broker is listed with its error."""


def list_brokers(name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """List the brokers of a cluster with their addresses and message rates."""
    with Admin(name_servers=name_server, **WAITING) as admin, Admin(name_servers=name_server, **FIGURES) as quick:
        topics = len(admin.topics())
        rows = [
            {"cluster": one.cluster, "broker_name": one.broker_name, "broker_id": number, "address": address}
            | figures(quick, address)
            for one in admin.brokers()
            for number, address in sorted(one.addresses.items())
        ]
    title = f"{output.counted(len(rows), 'broker')}, {output.counted(topics, 'topic')} including system topics"
    output.show(rows, as_json=as_json, title=title, in_blocks=True)


ENDED_SECONDS = 0.5
"""Interval of the check for exited processes of a deployment."""


def up(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Parent of the broker folders; created if missing.")],
    topology: Annotated[
        str, typer.Option("--topology", metavar="NAME", help="single, 2m, 2m-2s-async or 2m-2s-sync.")
    ] = "single",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Configuration of every broker; may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Start a name server and brokers as processes on this machine, and run them until Ctrl-C.

    2m has two masters; 2m-2s-async and 2m-2s-sync add a slave to each. Data and ports are kept in the folder. Each
    broker allocates 64 MiB of disk with its first message.
    """
    from rocketpy.servers.deployment import TOPOLOGIES, Deployment, DeploymentError
    from rocketpy.servers.process import ServerProcessError

    if topology not in TOPOLOGIES:
        known = ", ".join(TOPOLOGIES)
        raise CommandError(f"no such topology: {topology}", ExitCode.USAGE, f"choose one of {known}")
    if wrong := [setting for setting in settings or [] if "=" not in setting]:
        raise CommandError(
            f"expected KEY=VALUE: {wrong[0]}", ExitCode.USAGE, "for example --set flushDiskType=SYNC_FLUSH"
        )
    stopping = StopRequest()

    def stop(_number: int, _frame: object) -> None:
        stopping.set()

    # Under nohup a closed terminal stops nothing.
    ends = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    ]
    before = {number: signal.signal(number, stop) for number in ends}
    try:
        deployment = Deployment(folder, topology, *(settings or []))
        with output.STDERR.status("starting") as status:
            deployment.start(lambda name: status.update(f"starting {name}"), stopping.is_set)
        show(deployment, as_json=as_json)
        told: set[str] = set()
        while not stopping.wait(ENDED_SECONDS):
            for name, code in deployment.ended().items():
                if name not in told:
                    told.add(name)
                    log = deployment.processes[name].log
                    print(f"{name} exited with code {code}, the others continue: {log}", file=sys.stderr, flush=True)
            if len(told) == len(deployment.processes):
                raise CommandError("all processes have exited", ExitCode.FAILURE, "see their logs for the cause")
        deployment.stop()
    except DeploymentError as error:
        raise CommandError(str(error), ExitCode.CONFLICT, error.hint) from error
    except ServerProcessError as error:
        raise CommandError(str(error), ExitCode.FAILURE, f"see the logs in {folder}") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show(deployment: Any, *, as_json: bool) -> None:
    """Prints the addresses, process ids and logs of a deployment."""
    roles = {part.name: part for part in deployment.parts}
    rows: list[dict[str, Any]] = []
    for name, process in deployment.processes.items():
        part = roles.get(name)
        rows.append(
            {
                "process": name,
                "broker_name": part and part.broker_name,
                "broker_id": part and part.broker_id,
                "address": process.broker if part else process.name_server,
                "pid": process.pid,
                "log": str(process.log),
            }
        )
    title = f"{deployment.topology}: name server {deployment.name_server}; Ctrl-C stops"
    output.show(rows, as_json=as_json, title=title, in_blocks=True)
    if not as_json:
        print(f"export NAMESRV_ADDR={deployment.name_server}")
    sys.stdout.flush()


def figures(admin: Admin, address: str) -> dict[str, Any]:
    """Returns the figures that a broker reports about itself. Rates cover the last 10 seconds."""
    try:
        told = admin.broker_figures(address)
    except RocketPyError as error:
        return {
            "version": None,
            "in_per_second": None,
            "out_per_second": None,
            "messages_in": None,
            "state": str(error),
        }
    return {
        "version": told.get("brokerVersionDesc"),
        "in_per_second": rate(told.get("putTps")),
        "out_per_second": rate(told.get("getTransferredTps") or told.get("getTransferedTps")),
        "messages_in": int(total) if (total := told.get("msgPutTotalTodayNow")) else None,
        "state": "answers",
    }


def rate(text: str | None) -> float | None:
    """Returns the first of a broker's three rates, which cover 10 s, 1 min and 10 min.

    Examples:
        >>> rate("12.5 3.0 0.0"), rate(""), rate(None)
        (12.5, None, None)
    """
    return float(text.split()[0]) if text and text.strip() else None
