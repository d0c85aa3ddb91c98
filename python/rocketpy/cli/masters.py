"""Masters of a cluster, by name or address."""

from rocketpy import Admin
from rocketpy.admin.cluster import MASTER_ID
from rocketpy.commandline.exits import CommandError, ExitCode

HINT = "`rocketpy cluster list` shows the brokers with their names and addresses"


def masters(admin: Admin, broker: str | None = None) -> list[tuple[str, str]]:
    """Returns name and address of each master, or of the one with this name or address.

    Raises:
        CommandError: There is none.
    """
    known = [(one.broker_name, one.addresses.get(MASTER_ID)) for one in admin.brokers()]
    found = [(name, address) for name, address in known if address is not None and broker in {None, name, address}]
    if not found:
        text = "the cluster has no master" if broker is None else f"no master of this name or address: {broker}"
        raise CommandError(text, ExitCode.NOT_FOUND, HINT)
    return found
