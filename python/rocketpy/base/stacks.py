"""Stacks of the threads of this process."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["stacks_of_threads"]

MAX_FRAMES = 100
"""Maximum number of frames of a thread."""
MAX_CHARACTERS = 1 << 20
"""Maximum length of the text."""


def stacks_of_threads() -> str:
    """Returns the Python stacks of all threads, the newest call first: files, lines and functions, without values.

    Threads without a Python frame are left out, and so is the calling thread.

    Examples:
        >>> import threading
        >>> def work():
        ...     started.set()
        ...     stop.wait()
        >>> started, stop = threading.Event(), threading.Event()
        >>> thread = threading.Thread(target=work, name="worker")
        >>> thread.start()
        >>> _ = started.wait()
        >>> text = stacks_of_threads()
        >>> stop.set()
        >>> thread.join()
        >>> '"worker"' in text, " in work" in text, "MainThread" in text
        (True, True, False)
    """
    names = {thread.ident: thread for thread in threading.enumerate()}
    own = threading.get_ident()
    parts: list[str] = []
    for ident, frame in sys._current_frames().items():
        if ident == own:
            continue
        thread = names.get(ident)
        name = "unknown" if thread is None else thread.name
        daemon = " daemon" if thread is not None and thread.daemon else ""
        parts.append("\n".join([f'"{name}" thread {ident}{daemon}', *lines_of(frame), ""]))
    text = "\n".join(parts)
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}\n... cut off\n"


def lines_of(frame: FrameType | None) -> Iterator[str]:
    """Yields a line for each frame of a stack."""
    for _ in range(MAX_FRAMES):
        if frame is None:
            return
        code = frame.f_code
        yield f'    File "{code.co_filename}", line {frame.f_lineno}, in {code.co_qualname}'
        frame = frame.f_back
    yield "    ... more frames"
