"""`rocketpy cluster`: list, up."""

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketpy import Admin, BrokerStatus
from rocketpy.base.wakeup import StopRequest
from rocketpy.cli.missing import together
from rocketpy.cli.options import FIGURES, LOCAL, Json, NameServer
from rocketpy.cli.status import broker_rows, failures, kind_of, not_ready
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode


def list_brokers(name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """List the brokers of a cluster with their addresses, disks and message rates."""
    with Admin(name_servers=name_server, **FIGURES) as admin:
        names, brokers = together(admin.topics, admin.broker_status)
    topics = len(names)
    counts = f"{output.counted(len(brokers), 'broker')}, {output.counted(topics, 'topic')} including system topics"
    title = f"{counts}: {kind_of(brokers)} at {name_server}"
    rows = [facts_of(one) for one in brokers] if as_json else broker_rows(brokers)
    output.show(rows, as_json=as_json, title=title, empty=f"no brokers at {name_server}", in_blocks=True)
    for line in [] if as_json else [*not_ready(brokers), *failures(brokers)]:
        print(line)


def facts_of(broker: BrokerStatus) -> dict[str, Any]:
    """Returns the JSON object of a broker."""
    facts = output.plain(broker)
    return {name: value for name, value in facts.items() if name != "error"} | {"state": broker.error or "answers"}


def new_folder(text: str) -> Path:
    """Reads DIR of a deployment. A path such as `./2m` is always a folder.

    Raises:
        CommandError: The folder does not exist, and its name is that of a topology.
    """
    from rocketpy.servers.deployment import TOPOLOGIES

    if text in TOPOLOGIES and not Path(text).is_dir():
        hint = (
            f"`rocketpy cluster up DIR --topology {text}` is the command; for a new folder of that name write ./{text}"
        )
        raise CommandError(f"DIR is the name of a topology: {text}", ExitCode.USAGE, hint)
    return Path(text)


ENDED_SECONDS = 0.5
"""Interval of the check for exited processes of a deployment."""


def up(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", parser=new_folder, help="Parent of the broker folders; created if missing."),
    ],
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
    output.show(rows, as_json=as_json, title=title, empty=f"no processes in {deployment.folder}", in_blocks=True)
    if not as_json:
        print(f"export NAMESRV_ADDR={deployment.name_server}")
    sys.stdout.flush()
