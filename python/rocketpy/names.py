"""Addresses of name servers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

VARIABLE = "NAMESRV_ADDR"
"""Apache's tools and clients read it too."""


def name_server_list(given: Iterable[str] | str | None) -> list[str]:
    """The given addresses as a list, or those of the environment.

    Args:
        given: A list of `host:port`, or one text with several separated by `;` or `,`.

    Examples:
        >>> name_server_list("a:9876;b:9876")
        ['a:9876', 'b:9876']
    """
    if given is None:
        given = os.environ.get(VARIABLE, "")
    if isinstance(given, str):
        given = given.replace(";", ",").split(",")
    return [address.strip() for address in given if address.strip()]
