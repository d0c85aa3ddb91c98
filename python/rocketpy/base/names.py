"""Checks of name server addresses, names and argument types."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    from types import UnionType

    from rocketpy.admin.cluster import BrokerInfo

ADDRESSES = 'text such as "127.0.0.1:9876", or a list of such'
"""Accepted values of the argument `name_servers`, for errors."""
VARIABLE = "NAMESRV_ADDR"
"""Environment variable of name server addresses, which Apache's tools and clients read too."""
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""Scheme of an address, also after `Path` has merged its two slashes."""
RETRY_PREFIX = "%RETRY%"
"""Prefix of the topic that each consumer group has for its retries."""
SYSTEM_PREFIXES = (RETRY_PREFIX, "%DLQ%", "rmq_sys_", "RMQ_SYS_")
SYSTEM_TOPICS = {"TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest"}


def name_server_list(given: Iterable[str] | str | None) -> list[str]:
    """Converts the given addresses, or those of the environment, to a list.

    Args:
        given: A list of `host:port`, or one text with several separated by `;` or `,`.

    Raises:
        TypeError: The value is neither.

    Examples:
        >>> name_server_list("a:9876;b:9876")
        ['a:9876', 'b:9876']
    """
    if given is None:
        given = os.environ.get(VARIABLE, "")
    if isinstance(given, str):
        given = given.replace(";", ",").split(",")
    return [address.strip() for address in text_list("name_servers", given, ADDRESSES) if address.strip()]


def text_list(name: str, given: object, wanted: str) -> list[str]:
    """Checks a value of a caller without a type checker.

    Args:
        name: Name of the argument.
        given: Value of the argument.
        wanted: Accepted values, for the error.

    Raises:
        TypeError: The value is not a list of texts.
    """
    is_list = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    listed = list(cast("Iterable[Any]", given)) if is_list else None
    if listed is None or not all(isinstance(one, str) for one in listed):
        raise TypeError(f"{name} must be {wanted}, not: {given!r}")
    check_unicode(*listed)
    return listed


def text_error(error: UnicodeEncodeError) -> InvalidArgumentError:
    """Returns the error for a text with a lone surrogate, which Python makes of a byte that is not text."""
    return InvalidArgumentError(
        f"text is not valid Unicode: {error.object!r}",
        hint='decode bytes with their charset, or replace invalid bytes: data.decode(errors="replace")',
    )


def check_unicode(*texts: object) -> None:
    """Rejects texts with a lone surrogate. Other types are not checked.

    Raises:
        InvalidArgumentError: A text has one.
    """
    for text in texts:
        if isinstance(text, str) and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise text_error(error) from error


def column_list(columns: Iterable[str] | None) -> list[str] | None:
    """Converts names of columns to a list; None for the default columns.

    Raises:
        TypeError: The value is not a list of texts.
    """
    return None if columns is None else text_list("columns", columns, "a list of names")


def grouping_lists(groupings: Iterable[Iterable[str]]) -> list[list[str]]:
    """Converts choices of groups to lists; duplicate groups of a choice count once.

    Raises:
        TypeError: The value is not a list of lists of texts.

    Examples:
        >>> grouping_lists([("topic", "tag", "topic"), ["hour"]])
        [['topic', 'tag'], ['hour']]
    """
    check_type("groupings", groupings, Iterable, "a list of lists of names")
    return [list(dict.fromkeys(text_list("each of groupings", groups, "a list of names"))) for groups in groupings]


def path_text(name: str, given: str | os.PathLike[str]) -> str:
    """Converts a path to text.

    Raises:
        TypeError: The value is not a path.
    """
    try:
        return os.fspath(given)
    except TypeError:
        raise TypeError(f"{name} must be a path, not {type(given).__name__}") from None


def check_folder(name: str, given: str | os.PathLike[str]) -> None:
    """Refuses the address of a remote file system, which would become a local folder of that name.

    Args:
        name: Name of the argument.
        given: Value of the argument.

    Raises:
        InvalidArgumentError: The value begins with a scheme.
    """
    address = SCHEME.match(path_text(name, given))
    if address is not None:
        raise InvalidArgumentError(
            f"{name} must be the path of a folder, not an address of {address[1]}",
            hint="give a folder of this machine, or one that is mounted on the driver and on all workers",
        )


def check_type(name: str, given: object, kind: type | UnionType, wanted: str) -> None:
    """Checks a value of a caller without a type checker.

    Raises:
        TypeError: The value has another type.
    """
    if not isinstance(given, kind):
        raise TypeError(f"{name} must be {wanted}, not {type(given).__name__}")


def is_system_topic(topic: str) -> bool:
    """Whether a topic belongs to the system rather than to an application.

    Args:
        topic: Its name.
    """
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIXES)


def application_topics(topics: Iterable[str], brokers: Iterable[BrokerInfo]) -> list[str]:
    """Filters out system topics, including those named after brokers and clusters.

    Args:
        topics: All topics.
        brokers: All brokers.
    """
    own = {name for broker in brokers for name in (broker.broker_name, broker.cluster)}
    own |= {f"{name}_REPLY_TOPIC" for name in own}
    return [topic for topic in topics if topic not in own and not is_system_topic(topic)]
