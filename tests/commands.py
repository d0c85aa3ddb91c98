"""Commands in the process of the test."""

import contextlib
import io

from rocketpy.cli.app import run


def command(*arguments: object) -> tuple[int, str, str]:
    """Runs a command; returns its exit code and its output, whose bodies may be any bytes."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    printed = []
    for stream in (out, err):
        stream.flush()
        printed.append(stream.buffer.getvalue().decode(errors="replace"))  # type: ignore[attr-defined]
    return code, *printed
