"""Masks secrets in configurations, command lines, logs and environment variables.

Each pattern reads a text in linear time: a name begins where a word begins, and quantifiers give nothing back.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

MASK = "***"
SECRET_NAME = re.compile(r"secret|passw|passphrase|pwd|token(?!izer)|key|credential", re.IGNORECASE)
"""Part of a name whose value is a secret."""
ASSIGNMENT = re.compile(r"""(?<![\w.-])([\w.-]++)[\\"'\])]*+[ \t]*+[=:]++>?[ \t]*+""")
"""Beginning of `name=value` or `name: value`, also within JSON, which may be escaped."""
OPTION = re.compile(r"(?<![\w.-])(-[\w.-]++)[ \t]++(?=\S)")
"""Beginning of `--name value`."""
BEARER = re.compile(r"\b(bearer|basic)[ \t]++\S++", re.IGNORECASE)
URL = re.compile(r"\w://[^\s\"'<>]++")
PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z)", re.DOTALL
)
QUOTES = ('"""', "'''", '"', "'")
"""Beginnings of a text that may have several lines; the longer ones first."""
OPENING, CLOSING = "[{(", "]})"


def masked_text(text: str) -> str:
    r"""Masks in each line what follows the name of a secret, such as token, key or password.

    Examples:
        >>> masked_text('user="x" token=abc, d'), masked_text("redis://me:abc@host/0"), masked_text("https://abc@host")
        ('user="x" token=***', 'redis://me:***@host/0', 'https://***@host')
        >>> masked_text('initUser={"username":"a","password":"b c"}')
        'initUser={"username":"a","password":***'
    """
    return "\n".join(masked_line(line) for line in PRIVATE_KEY.sub(MASK, text).split("\n"))


def masked_line(line: str) -> str:
    """Masks one line."""
    start = value_start(line)
    if start is not None and line[start:].strip():
        line = line[:start] + MASK
    line = URL.sub(lambda url: "://".join(masked_user_info(part) for part in url[0].split("://")), line)
    return BEARER.sub(rf"\1 {MASK}", line)


def value_start(line: str) -> int | None:
    """Returns the position of the first value whose name is that of a secret."""
    found = (match for pattern in (ASSIGNMENT, OPTION) for match in pattern.finditer(line))
    return min((match.end() for match in found if SECRET_NAME.search(match[1])), default=None)


def masked_user_info(part: str) -> str:
    """Masks the password in the part of a URL after `://`, or the user name if it has no password."""
    user_info, at, host = part.rpartition("@")
    user, colon, _ = user_info.partition(":")
    return (f"{user}:{MASK}@" if colon else f"{MASK}@" if at else "") + host


def masked_arguments(command: Sequence[str]) -> list[str]:
    """Masks a command line, argument by argument.

    Examples:
        >>> masked_arguments(["rocketpy", "--set", "accessKey=a b", "--password", "c", "--port", "0"])
        ['rocketpy', '--set', 'accessKey=***', '--password', '***', '--port', '0']
    """
    found: list[str] = []
    for index, argument in enumerate(command):
        before = command[index - 1] if index else ""
        is_secret = before.startswith("-") and "=" not in before and SECRET_NAME.search(before)
        start = value_start(argument)
        if is_secret:
            found.append(MASK)
        else:  # a value may have several lines
            found.append(masked_text(argument) if start is None else argument[:start] + MASK)
    return found


def masked_lines(text: str) -> str:
    r"""Masks a configuration file: all lines of each value whose key names a secret, and secrets within other values.

    Examples:
        >>> masked_lines("brokerName=a\naccessKey = b c d\n")
        'brokerName=a\naccessKey = ***\n'
        >>> masked_lines("password: |\n  b\n  c\nname: a\n")
        'password: ***\nname: a\n'
    """
    return "\n".join(masked_settings(PRIVATE_KEY.sub(MASK, text).split("\n")))


def masked_toml(text: str) -> str:
    """Masks the values of a TOML file and returns them as JSON.

    Raises:
        tomllib.TOMLDecodeError: The text is not TOML.

    Examples:
        >>> masked_toml("tokens = ['a', 'b']")
        '{"tokens": "***"}'
    """
    return json.dumps(masked(tomllib.loads(text)), default=str)


def masked_settings(lines: Sequence[str]) -> Iterator[str]:
    """Yields the lines of a configuration, and one line for each value that is masked."""
    is_secret_section = False
    value: Value | None = None
    for line in lines:
        if value is not None:
            if value.takes(line):
                continue
            yield value.masked
            value = None
        header = line.strip()
        if header.startswith("[") and header.endswith("]"):
            is_secret_section = SECRET_NAME.search(header) is not None
        start = value_start(line)
        if start is None and is_secret_section and (match := ASSIGNMENT.search(line)):
            start = match.end()
        if start is None:
            yield masked_line(line)
        else:
            value = Value(line, start)
    if value is not None:
        yield value.masked


class Value:
    """Value of a secret. It may continue in the next lines: open quote or bracket, backslash, or indented block."""

    def __init__(self, line: str, start: int) -> None:
        self._line, self._start = line, start
        text = line[start:].strip()
        self._is_empty = not text
        self._indent = len(line) - len(line.lstrip(" \t-"))
        self._is_block = line.rstrip().endswith(":") or text.startswith(("|", ">"))
        self._is_last_continued = text.endswith("\\")
        self._quote = next((quote for quote in QUOTES if text.startswith(quote)), "")
        if self._quote and self._quote in text[len(self._quote) :].replace(f"\\{self._quote}", ""):
            self._quote = ""
        self._depth = depth_of(text) if text.startswith(tuple(OPENING)) else 0

    def takes(self, line: str) -> bool:
        """Takes the next line, if it belongs to this value."""
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        is_item = self._is_block and text.startswith("- ") and indent == self._indent
        is_open = self._quote or self._depth > 0 or self._is_last_continued
        if self._is_block and not text:
            return True
        if not (is_open or is_item or (text and indent > self._indent)):
            return False
        if self._quote and self._quote in text:
            self._quote = ""
        if self._depth > 0:
            self._depth += depth_of(text)
        self._is_last_continued = text.endswith("\\")
        self._is_empty = False
        return True

    @property
    def masked(self) -> str:
        """The line of the key, with a masked value."""
        return self._line if self._is_empty else self._line[: self._start].rstrip("\r") + MASK


def depth_of(text: str) -> int:
    """Returns the number of brackets that a text opens and does not close."""
    return sum(text.count(one) for one in OPENING) - sum(text.count(one) for one in CLOSING)


def masked(value: Any) -> Any:
    """Masks JSON values: each value whose name names a secret, and secrets in texts.

    Examples:
        >>> masked({"haTokenFile": "/etc/token", "brokerName": "a", "counts": [1, None]})
        {'haTokenFile': '***', 'brokerName': 'a', 'counts': [1, None]}
    """
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {name: MASK if item and SECRET_NAME.search(name) else masked(item) for name, item in items}
    if isinstance(value, list | tuple):
        return [masked(item) for item in cast("list[Any]", value)]
    return masked_text(value) if isinstance(value, str) else value
