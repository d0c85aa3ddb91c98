"""Names that exist here for names that do not: those of other clients, and misspelt ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FOREIGN = {
    "auto_commit_interval_ms": ("auto_commit",),
    "auto_offset_reset": ("start",),
    "bootstrap_server": ("name_servers", "name-server"),
    "bootstrap_servers": ("name_servers", "name-server"),
    "brokers": ("name_servers",),
    "broker_list": ("name_servers", "name-server"),
    "compression_type": ("compression",),
    "consumer_group": ("group",),
    "enable_auto_commit": ("auto_commit",),
    "from_beginning": ("from",),
    "group_id": ("group",),
    "headers": ("properties",),
    "key": ("order_key", "keys"),
    "linger_ms": ("linger",),
    "max_messages": ("count",),
    "max_request_size": ("max_message_size",),
    "namesrv_addr": ("name_servers",),
    "num_partitions": ("queues",),
    "partition_key": ("order_key",),
    "partition": ("queues",),
    "partitions": ("queues",),
    "producer_group": ("group",),
    "topics": ("topic",),
    "value_deserializer": ("codec",),
}
"""Names here for the names of other clients. Command line flags have hyphens in place of underscores."""
MAX_NAMES = 10_000
"""Maximum number of names that a misspelt name is compared with."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Known name that is most similar to a misspelt one, whatever its case; None without one.

    Args:
        name: The misspelt name.
        known: Names that exist; those after the first 10,000 of similar length are left out.

    Examples:
        >>> nearest("mials", ["orders", "Mails"])
        'Mails'
    """
    import difflib  # only for an error

    most = max(2, len(name) // 2)  # no name with a greater difference in length is similar
    lower = {one.lower(): one for one in known if abs(len(one) - len(name)) <= most}
    found = difflib.get_close_matches(name.lower(), list(lower)[:MAX_NAMES], 1)
    return lower[found[0]] if found else None


def meant(name: str, known: Iterable[str]) -> list[str]:
    """Known names for an unknown one: its equivalents here, or else the most similar name."""
    known = list(known)
    here = [one for one in FOREIGN.get(name.replace("-", "_"), ()) if one in known]
    near = None if here else nearest(name, known)
    return here if near is None else [near]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Clause that suggests a known name for an unknown one; empty without one.

    Args:
        name: The unknown name.
        known: Names that exist.

    Examples:
        >>> did_you_mean("bootstrap_servers", ["name_servers", "start"])
        ' (did you mean name_servers?)'
    """
    names = meant(name, known)
    return f" (did you mean {' or '.join(names)}?)" if names else ""
