"""Command lines that do the same as a page: shown with each preview, safe to paste into a shell."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Option", "command_line"]

Option: TypeAlias = str | bool | list[str]
"""Value of an option: True is a flag, a list repeats the option, False and an empty text are left out."""


def command_line(words: Iterable[str], names: Iterable[str], options: Mapping[str, Option], name_servers: str) -> str:
    """Quotes a command line of `rocketpy`.

    Args:
        words: The command, such as `group` and `reset`.
        names: Its arguments. Arguments with a leading dash follow `--`.
        options: Values by option.
        name_servers: Addresses for `--name-server`; the default of the command line is left out.

    Examples:
        >>> command_line(["group", "reset"], ["-x;y"], {"topic": "a b", "force": True}, "10.0.0.5:9876")
        "rocketpy group reset --topic='a b' --force --name-server=10.0.0.5:9876 -- '-x;y'"
        >>> command_line(["group", "delete"], ["mailer"], {"yes": False}, "127.0.0.1:9876")
        'rocketpy group delete mailer'
        >>> command_line(["topic", "create"], ["a"], {"attribute": ["x=1", "y=2"]}, "127.0.0.1:9876")
        'rocketpy topic create a --attribute=x=1 --attribute=y=2'
    """
    given = list(names)
    pairs = [(name, one) for name, value in options.items() for one in (value if isinstance(value, list) else [value])]
    parts = [f"--{name}" if value is True else f"--{name}={quoted(str(value))}" for name, value in pairs if value]
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
