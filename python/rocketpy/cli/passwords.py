"""Passwords of users: asked on a terminal, read from a file or standard input, or generated. Never an argument."""

import contextlib
import os
import secrets
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from rocketpy.base.text import printable
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.errors import RocketPyError

PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file", metavar="FILE", help="File with the password, or - for standard input. Default: ask twice."
    ),
]
Generate = Annotated[
    Path | None,
    typer.Option(
        "--generate",
        metavar="FILE",
        help="Generate the password, and write it with the name into this new file, which clients read with "
        "--credentials; - prints it once.",
    ),
]
MAX_BYTES = 64 << 10
"""Maximum size of a password file."""
NEEDED = "add --password-file FILE, --password-file - for standard input, or --generate FILE"


class Password(NamedTuple):
    """A password, and where a generated one is written."""

    text: str
    target: Path | None = None


def password_of(file: str | None, generate: Path | None) -> Password:
    """Returns the password that the options of a command name.

    Raises:
        CommandError: Both options are given, none is given without a terminal, or the password cannot be read.
    """
    if file is not None and generate is not None:
        raise CommandError("--password-file and --generate cannot be given together", ExitCode.USAGE, NEEDED)
    if generate is not None:
        return Password(secrets.token_urlsafe(24), generate)
    return Password(asked() if file is None else read_from(file))


def read_from(file: str) -> str:
    """Reads a password: the first and only line of a file or of standard input."""
    if file == "-":
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        with Path(file).open("rb") as source:
            data = source.read(MAX_BYTES + 1)
    place = "standard input" if file == "-" else file
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise CommandError(f"password is not UTF-8: {place}", ExitCode.USAGE, NEEDED) from None
    if len(data) > MAX_BYTES or len(lines) != 1 or not lines[0].strip():
        raise CommandError(f"expected one line with a password: {place}", ExitCode.USAGE, NEEDED)
    return lines[0]


def asked() -> str:
    """Reads a password twice from a terminal, without an echo.

    Raises:
        CommandError: Standard input is not a terminal, or the passwords differ.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandError("no password is given", ExitCode.USAGE, NEEDED)
    import getpass

    try:
        first = getpass.getpass("password: ")
        second = getpass.getpass("the same again: ")
    except EOFError:
        raise CommandError("no password is given", ExitCode.USAGE, NEEDED) from None
    if first != second:
        raise CommandError("passwords differ", ExitCode.USAGE, "run the command again")
    return first


@contextlib.contextmanager
def saved(name: str, password: Password, *, as_json: bool) -> Generator[None]:
    """Writes the file of a generated password before the change of the user, and names it after the change.

    The context holds the change alone: an error with nothing applied removes the file. After any other
    failure the file stays, because it may have the only copy of a password that is valid.

    Raises:
        CommandError: The file exists.
    """
    if password.target is None:
        yield
        return
    reserve(name, password)
    try:
        yield
    except BaseException as error:
        if isinstance(error, RocketPyError) and not error.may_have_been_applied:
            if not is_printed(password):
                password.target.unlink(missing_ok=True)
        else:
            print(f"note: password of {printable(name)} may have been changed", file=sys.stderr)
            show_generated(name, password, as_json=as_json)
        raise
    show_generated(name, password, as_json=as_json)


def is_printed(password: Password) -> bool:
    """Whether a generated password is printed instead of written to a file."""
    return str(password.target) == "-"


def reserve(name: str, password: Password) -> None:
    """Writes the file of a generated password. A full disk must not leave a user without a known password.

    Raises:
        CommandError: The file exists.
    """
    target = password.target
    if target is None or is_printed(password):
        return
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandError(f"file exists: {target}", ExitCode.REFUSED, "name another file with --generate") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(credentials_text(name, password))
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def show_generated(name: str, password: Password, *, as_json: bool) -> None:
    """Prints a generated password as a credentials file, to standard error with `--json`; or names its file."""
    if is_printed(password):
        print(credentials_text(name, password), end="", file=sys.stderr if as_json else sys.stdout)
    else:
        text = printable(f"credentials of {name} written to {password.target}")
        output.STDERR.print(text, markup=False, highlight=False)


def credentials_text(name: str, password: Password) -> str:
    """Returns name and password as the lines of a credentials file."""
    return f"accessKey={name}\nsecretKey={password.text}\n"
