"""Masks secrets in configurations, logs and environment variables."""

import re
from collections.abc import Mapping
from typing import Any, cast

MASK = "***"
NAMES = r"[\w.-]{0,64}(?:secret|passw|token|key|credential)[\w.-]{0,64}"
"""Bounded, so that a long word costs no quadratic time."""
SECRET_NAME = re.compile(NAMES, re.IGNORECASE)
SECRET_LINE = re.compile(rf"^(\s*{NAMES}\s*[=:]\s*)\S.*$", re.IGNORECASE | re.MULTILINE)
"""Line of a configuration file whose key names a secret."""
SECRET_PAIR = re.compile(rf"""({NAMES}\\*["']?\s*[=:]\s*)(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;}}]+)""", re.IGNORECASE)
"""Pair within a line: `name=value`, or part of a JSON object, which may be escaped."""
BEARER = re.compile(r"\b(bearer|basic)\s+\S+", re.IGNORECASE)
USER_INFO = re.compile(r"(\w://[^\s:/@]*:)[^\s@/]+@")
"""Password in a URL."""
PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


def masked_text(text: str) -> str:
    r"""Masks the values of names that contain secret, password, token, key or credential.

    Examples:
        >>> masked_text('took 5 ms token=abc user="x"'), masked_text("redis://me:abc@host/0")
        ('took 5 ms token=*** user="x"', 'redis://me:***@host/0')
        >>> masked_text('initUser={"username":"a","password":"b c"}')
        'initUser={"username":"a","password":***}'
    """
    text = PRIVATE_KEY.sub(MASK, text)
    text = USER_INFO.sub(rf"\1{MASK}@", BEARER.sub(rf"\1 {MASK}", text))
    return SECRET_PAIR.sub(rf"\1{MASK}", text)


def masked_lines(text: str) -> str:
    r"""Masks a configuration file: the whole line after a key that names a secret, and pairs in other lines.

    Examples:
        >>> masked_lines("brokerName=a\naccessKey = b c d\n")
        'brokerName=a\naccessKey = ***\n'
    """
    return masked_text(SECRET_LINE.sub(rf"\1{MASK}", text))


def masked(value: Any) -> Any:
    """Masks JSON values: each value whose name names a secret, and pairs in texts.

    Examples:
        >>> masked({"haTokenFile": "/etc/token", "brokerName": "a", "counts": [1, None]})
        {'haTokenFile': '***', 'brokerName': 'a', 'counts': [1, None]}
    """
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {name: MASK if item and SECRET_NAME.fullmatch(name) else masked(item) for name, item in items}
    if isinstance(value, list | tuple):
        return [masked(item) for item in cast("list[Any]", value)]
    return masked_text(value) if isinstance(value, str) else value
