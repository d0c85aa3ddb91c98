"""`rocketpy acl`: list, show, grant, revoke."""

from typing import Annotated, Any

import typer

from rocketpy import Admin, Policy
from rocketpy.admin.accounts import decision_text
from rocketpy.cli.change_output import show_changes
from rocketpy.cli.options import LOCAL, WAITING, DryRun, Json, NameServer
from rocketpy.cli.user import SERVER, servers_with_users, user_and_policies
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode

User = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")]
RESOURCE = "Topic:orders, Topic:ord*, Topic:*, Group:billing, Cluster:*, or * for everything."
IsDefault = Annotated[bool, typer.Option("--default", help="A default, which counts only if no other policy matches.")]


def list_policies(name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """List the policies of all users, compared at all masters and name servers."""
    with Admin(name_servers=name_server, **WAITING) as admin:
        policies = admin.policies()
        servers_with_users(admin)
    rows = [row_of(one, as_json=as_json) for one in policies]
    output.show(rows, as_json=as_json, empty=f"no policies at {name_server}", in_blocks=True)


def show(user: User, name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """Show the policies of one user."""
    found, policies = user_and_policies(user, name_server)
    rows = [row_of(one, as_json=as_json) for one in policies]
    without = "it may do everything" if found.is_super else "every request is denied"
    output.show(rows, as_json=as_json, empty=f"no policies of {user}: {without}", in_blocks=True)


def grant(
    user: User,
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help=RESOURCE)],
    actions: Annotated[
        str,
        typer.Argument(metavar="ACTION[,ACTION]", help="Some of Pub, Sub, Create, Update, Delete, Get, List, or All."),
    ],
    deny: Annotated[bool, typer.Option("--deny", help="Deny the actions instead of allowing them.")] = False,
    sources: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="ADDRESS", help="Only from this address or network; may be repeated."),
    ] = None,
    is_default: IsDefault = False,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Allow or deny a user actions on a resource, at all masters and name servers.

    The policy counts at once; slaves of an ASYNC_MASTER copy it within seconds. It replaces the policy of the user for
    the same resource. A producer needs Pub on its topic; a consumer needs Sub on its topic and on its group; an
    administrator needs Create, Update, Delete and Get.
    """
    with Admin(name_servers=name_server, **WAITING) as admin:
        servers_with_users(admin)
        changes = admin.grant(
            user, resource, actions, is_allowed=not deny, sources=sources or (), is_default=is_default, dry_run=dry_run
        )
    show_changes(changes, f"policy of {user}", dry_run=dry_run, as_json=as_json, place=SERVER)


def revoke(
    user: User,
    resource: Annotated[
        str | None, typer.Argument(metavar="[RESOURCE]", help="Resource of the policy, as `acl show` prints it.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All policies of the user, instead of a resource.")] = False,
    is_default: IsDefault = False,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Remove a policy of a user at all masters and name servers.

    The removal counts at once; slaves of an ASYNC_MASTER copy it within seconds, and follow the policy until then.
    """
    if everything is (resource is not None):
        raise CommandError("give either RESOURCE or --all", ExitCode.USAGE, f"`rocketpy acl show {user}` shows them")
    with Admin(name_servers=name_server, **WAITING) as admin:
        servers_with_users(admin)
        changes = admin.revoke(user, resource, is_default=is_default, dry_run=dry_run)
    if not changes:
        what = f"policies of {user}" if resource is None else f"policy of {user} for {resource}"
        raise CommandError(f"no {what}", ExitCode.NOT_FOUND, f"`rocketpy acl show {user}` shows the policies")
    show_changes(changes, f"policies of {user}", dry_run=dry_run, as_json=as_json, place=SERVER)


def row_of(policy: Policy, *, as_json: bool) -> dict[str, Any]:
    """Returns the columns of a policy."""
    if as_json:
        [row] = output.rows_of([policy])
        return row
    return {
        "user": policy.user,
        "resource": policy.resource,
        "decision": decision_text(policy.actions, policy.is_allowed, policy.sources),
        "type": "default" if policy.is_default else "custom",
        "differs at": list(policy.differs_at),
    }
