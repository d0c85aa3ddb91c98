"""`rocketpy ping`."""

from typing import Annotated, Any

import typer

from rocketpy import Admin, RocketPyError
from rocketpy.cli.options import FIGURES, LOCAL, WAITING, Json, NameServer
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode

NO_BROKER = "no broker is registered at {}"


def ping(
    broker: Annotated[
        str | None, typer.Option("--broker", metavar="HOST:PORT", help="Check this broker; default: all brokers.")
    ] = None,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Check whether brokers are ready for clients, as their /readyz and /livez do.

    Exits with 4 if a broker is not ready, not alive or not reachable. Each failing check is named.
    """
    if broker is None:
        with Admin(name_servers=name_server, **WAITING) as admin:
            found = [address for one in admin.brokers() for _, address in sorted(one.addresses.items())]
        if not found:
            raise CommandError(NO_BROKER.format(name_server), ExitCode.UNAVAILABLE, "start a broker")
    else:
        found = [broker]
    with Admin(name_servers=name_server, **FIGURES) as admin:
        rows = [health(admin, address) for address in found]
    output.show(rows, as_json=as_json, empty=NO_BROKER.format(name_server), title=output.counted(len(rows), "broker"))
    failing = [row["broker"] for row in rows if not (row["ready"] and row["alive"])]
    if failing:
        raise CommandError(
            f"broker not ready: {', '.join(failing)}",
            ExitCode.UNAVAILABLE,
            "see the column problems, and the log of the broker",
        )


def health(admin: Admin, address: str) -> dict[str, Any]:
    """Returns the row of a broker. An unreachable one is not ready."""
    try:
        found = admin.ping(address)
    except RocketPyError as error:
        return {"broker": address, "ready": False, "alive": False, "problems": str(error)}
    problems = "; ".join(found.problems) or None
    return {"broker": address, "ready": found.ready, "alive": found.alive, "problems": problems}
