"""The clients of a Python worker of Spark: one connection to each broker, shared by all that the process reads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketpy.admin.admin import Admin
    from rocketpy.config import ClientOptions, Credentials, Tls
    from rocketpy.spark.options import ReadOptions

_admins: dict[tuple[object, ...], Admin] = {}
_securities: dict[tuple[Credentials | None, Tls | bool | None], int] = {}
"""Numbers of users and TLS settings of this process: clients of one instance name have the same."""


def client_options(options: ReadOptions) -> ClientOptions:
    """Returns the options of every client of this process: clients of one instance name share connections.

    Args:
        options: Read options with name servers.
    """
    security = options.client.get("credentials"), options.client.get("tls")
    number = "" if security == (None, None) else f"-{_securities.setdefault(security, len(_securities))}"
    same_settings = f"{options.client.get('connect_timeout', '')}{number}"
    return {"instance_name": f"spark-{os.getpid()}-{same_settings}", **options.client}  # type: ignore[typeddict-item]


def shared_admin(options: ReadOptions) -> Admin:
    """Returns the administration client of this process for a cluster. The client and its connections stay open.

    Args:
        options: Read options with name servers.
    """
    from rocketpy.admin.admin import Admin

    key = (os.getpid(), options.name_servers, *sorted(options.client.items()))
    if key not in _admins:
        _admins[key] = Admin(name_servers=options.name_servers, **client_options(options))
    return _admins[key]
