"""`rocketpy cluster`: list."""

from typing import Any

from rocketpy import Admin, RocketPyError
from rocketpy.cli import output
from rocketpy.cli.options import LOCAL, WAITING, Json, NameServer
from rocketpy.config import ClientOptions

FIGURES: ClientOptions = {"api_timeout": 3.0, "connect_timeout": 3.0}
"""A broker that does not answer is shown as such."""


def list_brokers(name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """List the brokers of a cluster: where they are, and how many messages a second they take and give."""
    with Admin(name_servers=name_server, **WAITING) as admin, Admin(name_servers=name_server, **FIGURES) as quick:
        topics = len(admin.topics())
        rows = [
            {"cluster": one.cluster, "broker_name": one.broker_name, "broker_id": number, "address": address}
            | figures(quick, address)
            for one in admin.brokers()
            for number, address in sorted(one.addresses.items())
        ]
    title = f"{output.counted(len(rows), 'broker')}, {output.counted(topics, 'topic')} with those of the system"
    output.show(rows, as_json=as_json, title=title)


def figures(admin: Admin, address: str) -> dict[str, Any]:
    """What one broker tells of itself. Rates are those of the last 10 seconds."""
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
    """The first of a broker's three rates, those of 10 s, 1 min and 10 min.

    Examples:
        >>> rate("12.5 3.0 0.0"), rate(""), rate(None)
        (12.5, None, None)
    """
    return float(text.split()[0]) if text and text.strip() else None
