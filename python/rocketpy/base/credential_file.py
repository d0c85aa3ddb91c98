"""Credentials from a file or from the environment, for clients that are given none."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    from rocketpy.security import Credentials

FILE = "ROCKETPY_CREDENTIALS"
ACCESS_KEY = "ROCKETPY_ACCESS_KEY"
SECRET_KEY = "ROCKETPY_SECRET_KEY"
SECURITY_TOKEN = "ROCKETPY_SECURITY_TOKEN"

KEYS = {"accessKey": "access_key", "secretKey": "secret_key", "securityToken": "security_token"}
"""Keys of a file, and the arguments of `Credentials`."""
MAX_BYTES = 64 << 10
"""Maximum size of a file."""
SHAPE = "write the lines accessKey=NAME and secretKey=SECRET, or a JSON object with these keys"
LINE = re.compile(r"\s*([A-Za-z_.-]+)\s*([=:])\s*(.*?)\s*")
"""Line of properties or of a flat YAML file, such as Apache's tools.yml."""


def of_environment() -> Credentials | None:
    """Credentials of the environment: of a file, else of two variables; None without them.

    Raises:
        InvalidArgumentError: The file cannot be used, or one of the variables is missing.
    """
    from rocketpy.security import Credentials

    if path := os.environ.get(FILE):
        return of_file(path)
    access_key, secret_key = os.environ.get(ACCESS_KEY), os.environ.get(SECRET_KEY)
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        present, missing = (SECRET_KEY, ACCESS_KEY) if secret_key else (ACCESS_KEY, SECRET_KEY)
        raise InvalidArgumentError(f"{present} is set without {missing}", hint=f"set {missing}, or {FILE} for a file")
    return Credentials(access_key, secret_key, os.environ.get(SECURITY_TOKEN) or None)


def of_file(path: str | os.PathLike[str]) -> Credentials:
    """Reads credentials; see `Credentials.from_file`."""
    from rocketpy.security import Credentials

    text = private_text(Path(path))
    pairs = json_pairs(text, path) if text.lstrip().startswith("{") else line_pairs(text, path)
    unknown = next((key for key in pairs if key not in KEYS), None)
    if unknown is not None:
        raise InvalidArgumentError(f"unknown key {unknown} in credentials file: {path}", hint=SHAPE)
    missing = next((key for key in ("accessKey", "secretKey") if not pairs.get(key)), None)
    if missing is not None:
        raise InvalidArgumentError(f"{missing} is missing in credentials file: {path}", hint=SHAPE)
    return Credentials(**{KEYS[key]: value for key, value in pairs.items() if value})


def private_text(path: Path) -> str:
    """Text of a file that only its owner can read.

    A group may read the file of another owner, as in a volume of Kubernetes with `fsGroup`.

    Raises:
        InvalidArgumentError: Other users can read the file, or it cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe without a writer does not block
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise InvalidArgumentError(f"credentials file is not a regular file: {path}", hint="check the path")
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidArgumentError(f"cannot read credentials file ({reason}): {path}", hint="check the path") from None
    forbidden = stat.S_IRWXO | (stat.S_IRWXG if found.st_uid == os.geteuid() else 0)
    if found.st_mode & forbidden:
        raise InvalidArgumentError(
            f"other users can read credentials file: {path}",
            hint=f"run `chmod 600 {path}`; replace the secret if they did",
        )
    if len(data) > MAX_BYTES:
        raise InvalidArgumentError(f"credentials file exceeds {MAX_BYTES} bytes: {path}", hint=SHAPE)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidArgumentError(f"credentials file is not UTF-8: {path}", hint=SHAPE) from None


def json_pairs(text: str, path: object) -> dict[str, str]:
    """Values of a JSON object by key."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # its text would quote the secret
        raise InvalidArgumentError(f"credentials file is not JSON: {path}", hint=SHAPE) from None
    pairs = {key: value for key, value in cast("dict[str, object]", found).items() if value is not None}
    wrong = next((key for key, value in pairs.items() if not isinstance(value, str)), None)
    if wrong is not None:
        raise InvalidArgumentError(f"{wrong} must be text in credentials file: {path}", hint=SHAPE)
    return cast("dict[str, str]", pairs)


def line_pairs(text: str, path: object) -> dict[str, str]:
    """Values of `key=value` or `key: value` lines by key."""
    pairs: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or line.strip() == "---":
            continue
        found = LINE.fullmatch(line)
        if found is None:
            raise InvalidArgumentError(f"line {number} is not key=value in credentials file: {path}", hint=SHAPE)
        key, separator, value = found.groups()
        pairs[key] = value if separator == "=" else yaml_text(value)
    return pairs


def yaml_text(value: str) -> str:
    """Text of a YAML scalar: quoted, or up to a comment.

    Examples:
        >>> yaml_text("'a # b'"), yaml_text("12345678 # test"), yaml_text('"it"')
        ('a # b', '12345678', 'it')
    """
    for quote in "'\"":
        if value.startswith(quote) and (end := value.find(quote, 1)) > 0:
            return value[1:end]
    return re.split(r"\s#", value, maxsplit=1)[0]
