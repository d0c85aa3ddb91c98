"""`rocketpy user`: list, show, add, update, delete, rotate, finish-rotation."""

import json
import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from rocketpy import Admin, Policy, SettingChange, User, _rocketpy
from rocketpy.admin.accounts import secret, user_name
from rocketpy.base.text import printable
from rocketpy.cli import passwords
from rocketpy.cli.change_output import show_changes
from rocketpy.cli.options import LOCAL, WAITING, DryRun, Json, NameServer, Yes, confirm
from rocketpy.cli.passwords import Generate, PasswordFile
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]
IsSuper = Annotated[
    bool | None, typer.Option("--super/--normal", help="Whether the user may do everything, without policies.")
]
IsEnabled = Annotated[bool | None, typer.Option("--enable/--disable", help="Whether its requests are accepted.")]
NO_USER = "`rocketpy user list` shows the users"
USERS_FILE = ".json"
"""End of the name of a users file that does not exist yet. Another name may be a mistyped store."""
SECURE_FOLDER = "secure"
"""Folder in the store of `rocketpy server --secure`, with credentials of its users."""
NO_PLACE = f"check the path; the name of a new users file ends with {USERS_FILE}"
SERVER = "server"
"""Column of brokers and name servers."""


def list_users(name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """List the users, compared at all masters and name servers."""
    with Admin(name_servers=name_server, **WAITING) as admin:
        users = admin.users()
        servers_with_users(admin)
    rows = [row_of(one, as_json=as_json) for one in users]
    output.show(rows, as_json=as_json, empty=f"no users at {name_server}")


def show(name: Name, name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """Show one user and its policies."""
    from rocketpy.cli import acl

    found, policies = user_and_policies(name, name_server)
    if as_json:
        [row], rows = output.rows_of([found]), output.rows_of(policies)
        output.show_one(row | {"policies": rows}, as_json=True)
        return
    output.show_one(row_of(found, as_json=False), as_json=False)
    if not found.is_super or policies:
        rows = [acl.row_of(one, as_json=False) for one in policies]
        output.show(rows, as_json=False, title="policies", empty="no policies: every request of the user is denied")


def user_and_policies(name: str, name_server: str) -> tuple[User, list[Policy]]:
    """Returns a user and its policies.

    Raises:
        CommandError: No server has the user.
    """
    with Admin(name_servers=name_server, **WAITING) as admin:
        found = admin.user(name)
        if found is None:
            raise CommandError(f"no such user: {name}", ExitCode.NOT_FOUND, NO_USER)
        return found, admin.policies(name)


def add(
    name: Name,
    is_super: IsSuper = False,
    password_file: PasswordFile = None,
    generate: Generate = None,
    offline: Annotated[
        Path | None,
        typer.Option(
            "--offline",
            metavar="DIR|FILE",
            help="Write the users of a stopped server: its store folder, or the file of its authConfigPath.",
        ),
    ] = None,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Create a user at all masters and name servers. Without policies it may do nothing: see `rocketpy acl grant`.

    With --offline, create it in the store of a stopped broker or in a users file, or replace its password and enable
    it: the way in when no administrator can log in.
    """
    user_name(name)
    password = passwords.password_of(password_file, generate)
    secret("password", password.text)
    if offline is not None:
        add_offline(offline, name, password, is_super=bool(is_super), dry_run=dry_run, as_json=as_json)
        return
    with Admin(name_servers=name_server, **WAITING) as admin:
        servers = servers_with_users(admin)
        with saved_unless(dry_run, name, password, as_json=as_json):
            changes = admin.create_user(name, password.text, is_super=bool(is_super), dry_run=dry_run)
    made = {one.broker_name for one in changes}
    others = [server for server in servers if server not in made]
    if others:
        text = f"user {name} existed at {', '.join(others)}, with the password from before"
        note(f"{text}; `rocketpy user update {name}` gives all servers the same one")
    show_made(changes, name, dry_run=dry_run, as_json=as_json)


def update(
    name: Name,
    is_super: IsSuper = None,
    is_enabled: IsEnabled = None,
    new_password: Annotated[
        bool, typer.Option("--password", help="Ask for a new password. The former one ends at once: see `rotate`.")
    ] = False,
    password_file: PasswordFile = None,
    generate: Generate = None,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Change a user at all masters and name servers: its kind, its state or its password."""
    wants_password = new_password or password_file is not None or generate is not None
    password = passwords.password_of(password_file, generate) if wants_password else None
    if is_super is None and is_enabled is None and password is None:
        hint = "add --super, --normal, --enable, --disable, --password, --password-file or --generate"
        raise CommandError("nothing to change", ExitCode.USAGE, hint)
    kept = password or passwords.Password("")
    text = None if password is None else password.text
    with Admin(name_servers=name_server, **WAITING) as admin:
        servers_with_users(admin)
        with saved_unless(dry_run, name, kept, as_json=as_json):
            changes = admin.update_user(name, password=text, is_super=is_super, is_enabled=is_enabled, dry_run=dry_run)
    show_made(changes, name, dry_run=dry_run, as_json=as_json)


def delete(
    name: Name, yes: Yes = False, dry_run: DryRun = False, name_server: NameServer = LOCAL, as_json: Json = False
) -> None:
    """Delete a user and its policies at all masters and name servers. Its requests fail from now on.

    Slaves of an ASYNC_MASTER copy the change within seconds, and answer its reads until then.
    """
    with Admin(name_servers=name_server, **WAITING) as admin:
        if not dry_run:
            confirm(f"delete user {printable(name)} and its policies?", yes=yes)
        servers_with_users(admin)
        changes = admin.delete_user(name, dry_run=dry_run)
    show_made(changes, name, dry_run=dry_run, as_json=as_json)


def rotate(
    name: Name,
    password_file: PasswordFile = None,
    generate: Generate = None,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Give a user a second password. Both are valid until `rocketpy user finish-rotation NAME`.

    Change the clients in between, one after the other. Servers refuse a second rotation until then.
    """
    password = passwords.password_of(password_file, generate)
    with Admin(name_servers=name_server, **WAITING) as admin:
        servers_with_users(admin)
        with saved_unless(dry_run, name, password, as_json=as_json):
            changes = admin.rotate_user(name, password.text, dry_run=dry_run)
    show_made(changes, name, dry_run=dry_run, as_json=as_json)


def finish_rotation(
    name: Name, dry_run: DryRun = False, name_server: NameServer = LOCAL, as_json: Json = False
) -> None:
    """End the former password of a user that has two. Clients that still use it fail from now on."""
    with Admin(name_servers=name_server, **WAITING) as admin:
        servers_with_users(admin)
        changes = admin.finish_rotation(name, dry_run=dry_run)
    show_made(changes, name, dry_run=dry_run, as_json=as_json)


def add_offline(
    place: Path, name: str, password: passwords.Password, *, is_super: bool, dry_run: bool, as_json: bool
) -> None:
    """Creates or changes a user in the users file of a server that is stopped, or in its store."""
    is_new_file = place.suffix == USERS_FILE and place.parent.is_dir()
    if not (place.exists() or is_new_file):
        raise CommandError(f"no such store or users file: {place}", ExitCode.NOT_FOUND, NO_PLACE)
    with saved_unless(dry_run, name, password, as_json=as_json):
        file, is_new = _rocketpy.put_user_offline(str(place), name, password.text, is_super, dry_run)
    if not dry_run:
        for path in renew_credentials(place, name, password.text):
            note(f"{path} has the new password")
    kind = f"{'super' if is_super else 'normal'}, enabled"
    change = SettingChange(file, f"user {name}", None if is_new else "former password", kind)
    show_made([change], name, dry_run=dry_run, as_json=as_json)


def renew_credentials(store: Path, name: str, secret_key: str) -> list[Path]:
    """Replaces the password in the credentials files that `rocketpy server --secure` made for a user in its store."""
    renewed: list[Path] = []
    for path in sorted((store / SECURE_FOLDER).glob("*.json")):
        try:
            before: Any = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(before, dict) and cast("dict[str, Any]", before).get("accessKey") == name:
            replace_private(path, json.dumps({"accessKey": name, "secretKey": secret_key}))
            renewed.append(path)
    return renewed


def replace_private(path: Path, text: str) -> None:
    """Replaces a file that only its owner may read. After a failure the former one is there."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def saved_unless(
    dry_run: bool, name: str, password: passwords.Password, *, as_json: bool
) -> AbstractContextManager[None]:
    """Returns the context of the change alone, which keeps a generated password."""
    return passwords.saved(name, password._replace(target=None) if dry_run else password, as_json=as_json)


def show_made(changes: list[SettingChange], name: str, *, dry_run: bool, as_json: bool) -> None:
    """Prints the changes of a user."""
    show_changes(changes, f"user {name}", dry_run=dry_run, as_json=as_json, place=SERVER)


def servers_with_users(admin: Admin) -> list[str]:
    """Returns the servers with users, and prints a note with the name servers without.

    Commands call it before a change: the caller may change or delete its own user.
    """
    servers = admin.account_servers()
    names = [one.name for one in servers if not one.keeps_users]
    if names:
        text = "set authenticationEnabled=true there, or replace a name server of Apache"
        note(f"name server without users answers everybody: {', '.join(names)}; {text}")
    return [one.name for one in servers if one.keeps_users]


def note(text: str) -> None:
    """Prints a note on standard error."""
    print(f"note: {printable(text)}", file=sys.stderr)


def row_of(user: User, *, as_json: bool) -> dict[str, Any]:
    """Returns the columns of a user."""
    if as_json:
        [row] = output.rows_of([user])
        return row
    return {
        "name": user.name,
        "kind": "super" if user.is_super else "normal",
        "state": "enabled" if user.is_enabled else "disabled",
        "passwords": 2 if user.is_rotating else 1,
        "differs at": list(user.differs_at),
    }
