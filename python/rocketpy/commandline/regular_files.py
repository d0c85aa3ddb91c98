"""Reads of files that users name, which may be pipes or devices."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from rocketpy.errors import InvalidArgumentError


def opened(path: Path) -> BinaryIO:
    """Opens a regular file to read. A pipe without a writer does not block.

    Raises:
        InvalidArgumentError: The path is another kind of file, such as a pipe, a device or a folder.
        OSError: The file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidArgumentError(f"not a regular file: {path}")
    return os.fdopen(descriptor, "rb")
