"""`rocketpy status`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from rocketpy import Admin, BrokerStatus, ClusterStatus, GroupStatus
from rocketpy.admin.answers import MissingBroker
from rocketpy.admin.cluster import MASTER_ID
from rocketpy.base.text import printable
from rocketpy.cli.missing import text_of
from rocketpy.cli.options import FIGURES, LOCAL, Json, NameServer
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode

NO_BROKER = "no broker is registered at {}"
START_BROKER = "start one with `rocketpy server` or `rocketpy broker --name-server`"
GROUPS_SHOWN = 20
"""Maximum number of groups on the screen of `status`."""


def status(name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """Show a cluster on one screen: brokers, roles, disk, rates, lag, dead letters, and messages that wait."""
    with Admin(name_servers=name_server, **FIGURES) as admin:
        found = admin.status()
    check_registered(found, name_server)
    if as_json:
        output.show_one(output.plain(found), as_json=True)
        return
    console = output.stdout()
    for part in screen(found, name_server, GROUPS_SHOWN):
        console.print(part, soft_wrap=not isinstance(part, Table))


def check_registered(found: ClusterStatus, name_server: str) -> None:
    """Refuses the status of a cluster without a broker.

    Raises:
        CommandError: No broker is registered.
    """
    if not found.brokers:
        raise CommandError(NO_BROKER.format(name_server), ExitCode.NOT_FOUND, START_BROKER)


def screen(found: ClusterStatus, name_server: str, most_groups: int) -> Iterator[RenderableType]:
    """Yields the parts of the screen.

    Args:
        found: Status of the cluster.
        name_server: Address that the user gave.
        most_groups: Maximum number of groups; those with the most waiting messages are shown.
    """
    if not found.brokers:
        yield Text(printable(NO_BROKER.format(name_server)), style="red")
        return
    yield Text(printable(summary(found, name_server)), style="bold")
    yield Text(printable(waiting(found)))
    yield output.table_of(broker_rows(found.brokers))
    groups = found.groups or ()
    shown = sorted(groups, key=urgency)[:most_groups]
    if shown:
        yield output.table_of([group_row(group) for group in shown])
    if len(groups) > len(shown):
        more = output.counted(len(groups) - len(shown), "more group")
        yield Text(f"{more}, with fewer waiting messages; --json of `rocketpy status` has all")
    for text in (*not_ready(found.brokers), *failures(found.brokers, found.missing), *map(printable, found.errors)):
        yield Text(text, style="red")


def summary(found: ClusterStatus, name_server: str) -> str:
    """Returns the title of the screen."""
    counts = [output.counted(len(found.brokers), "broker")]
    if found.topics is not None:
        counts.append(f"{output.counted(found.topics, 'topic')} including system topics")
    return f"{kind_of(found.brokers)} at {name_server}: {', '.join(counts)}"


def kind_of(brokers: Sequence[BrokerStatus]) -> str:
    """Returns the clusters and versions of the brokers, such as `DefaultCluster (V5_3_3, RocketPy 0.2.0)`."""
    clusters = sorted({one.cluster for one in brokers})
    versions = sorted({one.version for one in brokers if one.version})
    versions += sorted({f"RocketPy {one.rocketpy_version}" for one in brokers if one.rocketpy_version})
    return ", ".join(clusters) + (f" ({', '.join(versions)})" if versions else "")


def waiting(found: ClusterStatus) -> str:
    """Returns the totals of all brokers and groups. An unknown total is a question mark, a minimum has a plus sign."""
    masters = [one for one in found.brokers if one.broker_id == MASTER_ID]
    timers = sum(one.timers or 0 for one in masters)  # Apache has none
    lag, retries, dead = (
        None if found.groups is None else total(getattr(one, name) for one in found.groups)
        for name in ("lag", "retries", "dead_letters")
    )
    more = "+" if found.missing else ""
    noun = "dead letter" if dead == 1 and not more else "dead letters"
    answered = [one for one in masters if not one.error]
    of_timers = "?" if not answered else figure(timers, "+" if len(answered) < len(masters) else "")
    return (
        f"waiting: lag {figure(lag, more)}, retries due {figure(retries, more)}, "
        f"delayed {figure(found.delayed, more)}, timers {of_timers}; {figure(dead, more)} {noun}"
    )


def total(counts: Iterable[int | None]) -> int | None:
    """Returns the sum of counts; None if one of them is unknown."""
    found = list(counts)
    known = [count for count in found if count is not None]
    return sum(known) if len(known) == len(found) else None


def figure(count: int | None, more: str = "") -> str:
    """Returns the text of a count."""
    return "?" if count is None else f"{count:,}{more}"


def broker_rows(brokers: Sequence[BrokerStatus]) -> list[dict[str, Any]]:
    """Returns rows that fit 80 columns. Cluster and versions are columns only where brokers differ in them."""
    varies = {
        column: name
        for column, name in {"cluster": "cluster", "version": "version", "RocketPy": "rocketpy_version"}.items()
        if len({getattr(one, name) for one in brokers if not one.error}) > 1
    }
    return [
        {column: getattr(one, name) for column, name in varies.items()}
        | {
            "broker": one.broker_name,
            "role": "master" if one.broker_id == MASTER_ID else f"slave {one.broker_id}",
            "address": one.address,
            "disk": None if one.disk_used is None else f"{one.disk_used:.0%}",
            "in/s": one.in_per_second and output.Rate(one.in_per_second),
            "out/s": one.out_per_second and output.Rate(one.out_per_second),
        }
        for one in brokers
    ]


def not_ready(brokers: Iterable[BrokerStatus]) -> list[str]:
    """Returns a line for each failing check of a broker that answered, such as that of a drained broker."""
    return [
        printable(f"{one.broker_name} ({one.address}) is not ready: {problem}{way_out(one, problem)}")
        for one in brokers
        for problem in one.problems
    ]


def way_out(broker: BrokerStatus, problem: str) -> str:
    """Returns the command that ends the drain of a master, with its separator; empty for another problem."""
    is_drained = problem.startswith("draining") and broker.broker_id == MASTER_ID
    return f"; `rocketpy broker undrain {broker.broker_name}` ends it" if is_drained else ""


def failures(brokers: Sequence[BrokerStatus], missing: Iterable[MissingBroker] = ()) -> list[str]:
    """Returns a line for each broker that did not answer."""
    found = {one.address: text_of(one) for one in brokers if one.error}
    return list(({one.address: text_of(one) for one in missing} | found).values())


def urgency(group: GroupStatus) -> tuple[int, str]:
    """Sort key: groups with the most waiting messages and dead letters come first."""
    return -((group.lag or 0) + (group.retries or 0) + (group.dead_letters or 0)), group.name


def group_row(group: GroupStatus) -> dict[str, Any]:
    """Returns the table row of a group."""
    return {
        "group": group.name,
        "members": group.members,
        "lag": group.lag,
        "retries due": group.retries,
        "dead letters": group.dead_letters,
    }
