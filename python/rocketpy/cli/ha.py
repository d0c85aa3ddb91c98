"""`rocketpy ha`: status, promote, demote."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketpy import AccessDeniedError, Admin, NotSupportedError, RefusedError, RefusedSlave, RocketPyError, SlaveInfo
from rocketpy.admin.cluster import MASTER_ID
from rocketpy.base.clock import monotonic
from rocketpy.base.text import printable
from rocketpy.cli.options import LOCAL, WAITING, DryRun, Json, NameServer
from rocketpy.cli.plans import role_change
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode


def status(name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """Show the replication progress of each master's slaves.

    A line below the table names the cause of a registered slave that is not connected, if the slave knows it. --json
    has the ends of the logs, records and rates too.
    """
    rows: list[dict[str, Any]] = []
    with Admin(name_servers=name_server, **WAITING) as admin:
        for broker in admin.brokers():
            master: dict[str, Any] = {"broker_name": broker.broker_name} | dict.fromkeys(MASTER)
            slaves: list[dict[str, Any]] = []
            if (address := broker.addresses.get(MASTER_ID)) is not None:
                found = admin.ha_status(address)
                master |= {"master": address, "master_end": found.end, "epochs": len(found.epochs)}
                slaves = [connected(slave, broker.addresses) for slave in found.slaves]
                slaves += [refused_row(slave) for slave in found.refused_slaves]
            known = {MASTER_ID, *(slave["broker_id"] for slave in slaves)}
            if None not in known:  # one of Apache's says not who it is
                others = [(number, slave) for number, slave in sorted(broker.addresses.items()) if number not in known]
                slaves += [alone(admin, number, slave) for number, slave in others]
            rows += [master | slave for slave in slaves] or [master | dict.fromkeys(SLAVE)]
    title = f"{output.counted(sum(row['slave'] is not None for row in rows), 'slave')} at {name_server}"
    shown = rows if as_json else narrow(rows)
    output.show(shown, as_json=as_json, title=title, empty=f"no brokers at {name_server}", in_blocks=True)
    for row in [] if as_json else rows:
        if row["why"]:
            print(printable(f"{row['broker_name']} ({row['slave']}): {row['why']}"))


def narrow(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns rows that fit 80 columns: each master once, then its slaves."""
    shown: list[dict[str, Any]] = []
    for row in rows:
        broker = {"broker": row["broker_name"]}
        if row["master"] and all(one["address"] != row["master"] for one in shown):
            shown.append(broker | {"role": "master", "address": row["master"]} | dict.fromkeys(LAG.values()))
        if row["slave"]:
            role = "slave" if row["broker_id"] is None else f"slave {row['broker_id']}"
            lags = {short: row[name] for name, short in LAG.items()}
            shown.append(broker | {"role": role, "address": row["slave"]} | lags)
    return shown


LAG = {"lag_bytes": "lag bytes", "lag_seconds": "lag s", "is_near": "near"}
"""Columns of a slave in the table."""
MASTER = ("master", "master_end", "epochs")
"""Columns of a master."""
SLAVE = (
    "slave",
    "broker_id",
    "slave_end",
    "lag_bytes",
    "lag_records",
    "lag_seconds",
    "is_near",
    "bytes_per_second",
    "why",
)
"""Columns of a slave."""


def connected(slave: SlaveInfo, addresses: dict[int, str]) -> dict[str, Any]:
    """Returns the columns of a connected slave, with its advertised address, or else the address it connects from."""
    known = {name: getattr(slave, name) for name in SLAVE if hasattr(slave, name)}
    address = slave.address if slave.broker_id is None else addresses.get(slave.broker_id, slave.address)
    return dict.fromkeys(SLAVE) | known | {"slave": address, "slave_end": slave.end}


def refused_row(slave: RefusedSlave) -> dict[str, Any]:
    """Returns the columns of a slave that its master rejected. Name servers may not know the slave."""
    return dict.fromkeys(SLAVE) | {"slave": slave.address, "broker_id": slave.broker_id, "why": slave.why}


def alone(admin: Admin, broker_id: int, address: str) -> dict[str, Any]:
    """Returns the columns of a slave that follows no master."""
    row = dict.fromkeys(SLAVE) | {"slave": address, "broker_id": broker_id}
    try:
        found = admin.ha_status(address)
    except RocketPyError as error:
        return row | {"why": str(error)}
    return row | {"slave_end": found.end, "why": found.not_followed or "not connected to a master"}


TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="ROCKETPY_HA_TOKEN_FILE",
        metavar="FILE",
        help="File with the token of the broker's haTokenFile. Required from another machine than the broker's.",
    ),
]
Master = Annotated[str, typer.Argument(metavar="BROKER", help="Name or HOST:PORT of the master.")]
Slave = Annotated[
    str, typer.Argument(metavar="BROKER", help="HOST:PORT of the slave, or its name if it is the only one.")
]
ROLE_SECONDS = 90
"""Timeout for a broker to stop and to start in its new role."""
PACE_SECONDS = 0.2


def promote(
    broker: Slave,
    sync: Annotated[
        bool, typer.Option("--sync", help="Sends to the new master wait for slaves (SYNC_MASTER).")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Do not check for another running master or a slave with more messages.")
    ] = False,
    token_file: TokenFile = None,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
) -> None:
    """Promote a slave to master of its broker name. Refused while another master answers.

    The broker stops in order and restarts within its process. The role is kept in its store, and overrides its
    configuration.
    """
    token = token_in(token_file)
    with Admin(name_servers=name_server, **WAITING) as admin:
        address = address_of(admin, broker, is_slave=True)
        with refused(address, "demote or stop a master before another one is promoted"):
            if dry_run:
                output.show_one(role_change(admin, address, to_master=True, force=force), as_json=False)
                return
            admin.promote(address, sync=sync, force=force, token=token)
            wait_for_role(admin, address, is_master=True)
    print(f"{address} is the master now")


def demote(
    broker: Master,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", min=1, help="Broker id as a slave. Default: the smallest free one.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Do not wait until a slave has the whole log: messages that no slave has are lost."
        ),
    ] = False,
    token_file: TokenFile = None,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
) -> None:
    """Demote a master to slave of its broker name, once a slave has its whole log. It accepts no messages any more."""
    token = token_in(token_file)
    with Admin(name_servers=name_server, **WAITING) as admin:
        address = address_of(admin, broker, is_slave=False)
        with refused(address, "a slave must follow this master and have its whole log"):
            if dry_run:
                output.show_one(role_change(admin, address, to_master=False, force=force), as_json=False)
                return
            admin.demote(address, broker_id=broker_id, force=force, token=token)
            wait_for_role(admin, address, is_master=False)
    print(f"{address} is a slave now; `rocketpy ha promote` makes another one the master")


def token_in(path: Path | None) -> str | None:
    """Reads a token as brokers do: UTF-8 without surrounding whitespace.

    Raises:
        CommandError: The file cannot be read, or is empty.
    """
    if path is None:
        return None
    hint = "name the file that haTokenFile of the broker names"
    try:
        token = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise CommandError(f"cannot read the token file: {error}", ExitCode.USAGE, hint) from error
    if not token:
        raise CommandError(f"token file is empty: {path}", ExitCode.USAGE, hint)
    return token


STATUS_HINT = "`rocketpy ha status` shows the brokers with their addresses"


def address_of(admin: Admin, broker: str, *, is_slave: bool) -> str:
    """Returns the address of a broker that is given by address or name: of its master, or of its only slave.

    Raises:
        CommandError: The address is not HOST:PORT, or the name has no such broker, or several slaves.
    """
    host, colon, port = broker.rpartition(":")
    if colon:
        if not host or not port.isdecimal():
            raise CommandError(f"expected name or HOST:PORT of a broker: {broker}", ExitCode.USAGE, STATUS_HINT)
        return broker
    known = {one.broker_name: one.addresses for one in admin.brokers()}.get(broker, {})
    found = sorted(address for number, address in known.items() if (number != MASTER_ID) is is_slave)
    if len(found) > 1:
        text = f"broker {broker} has several slaves: {', '.join(found)}"
        raise CommandError(text, ExitCode.USAGE, "name one of them by its address")
    if not found:
        text = f"no {'slave' if is_slave else 'master'} of this name or address: {broker}"
        raise CommandError(text, ExitCode.NOT_FOUND, STATUS_HINT)
    return found[0]


@contextmanager
def refused(address: str, way_out: str) -> Generator[None]:
    """Adds a hint when a broker does not change its role, or when the user interrupts the wait."""
    try:
        yield
    except KeyboardInterrupt:
        text = "interrupted: the role change may continue; `rocketpy ha status` shows the roles"
        output.STDERR.print(text, markup=False, highlight=False)
        raise
    except NotSupportedError as error:
        hint = f"{address} is not a RocketPy broker, perhaps a name server; `rocketpy ha status` shows the brokers"
        raise CommandError(str(error), ExitCode.REFUSED, hint) from error
    except AccessDeniedError as error:
        hint = "add --token-file with the file of the broker's haTokenFile, or run the command on the broker's machine"
        raise CommandError(str(error), ExitCode.REFUSED, hint) from error
    except RefusedError as error:
        hint = f"`rocketpy ha status` shows the roles; {way_out}. --force skips this check"
        raise CommandError(str(error), ExitCode.REFUSED, hint) from error


def wait_for_role(admin: Admin, address: str, *, is_master: bool) -> None:
    """Waits until a broker that is changing its role serves in it."""
    deadline = monotonic() + ROLE_SECONDS
    with output.STDERR.status(f"waiting until {address} serves in its new role"):
        while monotonic() < deadline:
            try:
                if admin.ha_status(address).is_master is is_master:
                    return
            except RocketPyError:
                pass  # it is between its two roles
            time.sleep(PACE_SECONDS)
    raise CommandError(
        f"{address} does not serve in its new role after {ROLE_SECONDS} s",
        ExitCode.UNCERTAIN,
        "see the log of that broker for the cause; `rocketpy ha status` shows the roles",
    )
