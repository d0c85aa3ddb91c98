"""`rocketpy ha`: status."""

from typing import Any

from rocketpy import Admin
from rocketpy.cli import output
from rocketpy.cli.options import LOCAL, WAITING, Json, NameServer

MASTER_ID = 0


def status(name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """Show how far the slaves of each master have its log. A master without a slave has a line without one."""
    rows: list[dict[str, Any]] = []
    with Admin(name_servers=name_server, **WAITING) as admin:
        for broker in admin.brokers():
            address = broker.addresses.get(MASTER_ID)
            if address is None:
                continue
            found = admin.ha_status(address)
            master = {"broker_name": broker.broker_name, "master": address, "master_end": found.end}
            slaves = [
                {
                    "slave": slave.address,
                    "slave_end": slave.end,
                    "lag_bytes": slave.lag_bytes,
                    "is_near": slave.is_near,
                    "bytes_per_second": slave.bytes_per_second,
                }
                for slave in found.slaves
            ]
            rows += [master | slave for slave in slaves] or [master | dict.fromkeys(NOBODY)]
    output.show(rows, as_json=as_json, title=output.counted(sum(row["slave"] is not None for row in rows), "slave"))


NOBODY = ("slave", "slave_end", "lag_bytes", "is_near", "bytes_per_second")
"""The columns of a slave."""
