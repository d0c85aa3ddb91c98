"""Addresses of name servers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, cast

VARIABLE = "NAMESRV_ADDR"
"""Apache's tools and clients read it too."""


def name_server_list(given: Iterable[str] | str | None) -> list[str]:
    """The given addresses as a list, or those of the environment.

    Args:
        given: A list of `host:port`, or one text with several separated by `;` or `,`.

    Raises:
        TypeError: It is neither.

    Examples:
        >>> name_server_list("a:9876;b:9876")
        ['a:9876', 'b:9876']
    """
    if given is None:
        given = os.environ.get(VARIABLE, "")
    if isinstance(given, str):
        given = given.replace(";", ",").split(",")
    return [address.strip() for address in texts(given) if address.strip()]


def texts(given: object) -> list[str]:
    """Checks what callers without a type checker may give."""
    is_list = isinstance(given, Iterable) and not isinstance(given, bytes)
    listed = list(cast("Iterable[Any]", given)) if is_list else None
    if listed is None or any(type(one) is not str for one in listed):
        raise TypeError(f'name_servers must be text such as "127.0.0.1:9876", or a list of such, not: {given!r}')
    return listed
