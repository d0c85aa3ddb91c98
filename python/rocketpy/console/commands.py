"""Command lines that do the same as a page: shown with each preview, safe to paste into a shell."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["command_line"]


def command_line(
    words: Iterable[str], names: Iterable[str], options: Mapping[str, str | bool], name_servers: str
) -> str:
    """Quotes a command line of `rocketpy`.

    Args:
        words: The command, such as `group` and `reset`.
        names: Its arguments. Arguments with a leading dash follow `--`.
        options: Values by option; True is a flag, False and an empty text are left out.
        name_servers: Addresses for `--name-server`; the default of the command line is left out.

    Examples:
        >>> command_line(["group", "reset"], ["-x;y"], {"topic": "a b", "force": True}, "10.0.0.5:9876")
        "rocketpy group reset --topic='a b' --force --name-server=10.0.0.5:9876 -- '-x;y'"
        >>> command_line(["group", "delete"], ["mailer"], {"yes": False}, "127.0.0.1:9876")
        'rocketpy group delete mailer'
    """
    given = list(names)
    parts = [
        f"--{name}" if value is True else f"--{name}={quoted(str(value))}" for name, value in options.items() if value
    ]
    if name_servers not in {"", "127.0.0.1:9876", "localhost:9876"}:
        parts.append(f"--name-server={quoted(name_servers)}")
    arguments = [quoted(name) for name in given]
    if any(name.startswith("-") for name in given):
        return " ".join(["rocketpy", *words, *parts, "--", *arguments])
    return " ".join(["rocketpy", *words, *arguments, *parts])


def quoted(text: str) -> str:
    r"""Quotes a word for a POSIX shell; control characters become escapes of `$'...'`.

    Examples:
        >>> quoted("orders"), quoted("it's"), quoted("a\nb")
        ('orders', '\'it\'"\'"\'s\'', "$'a\\x0ab'")
    """
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(escaped, text))}'"


def escaped(character: str) -> str:
    """Writes a character for `$'...'`."""
    if character.isprintable() and character not in "\\'":
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="replace"))
