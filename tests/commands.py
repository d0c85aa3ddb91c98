"""Commands in the process of the test."""

import contextlib
import io

from rocketpy.cli.app import make_app, run


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


def command_lines() -> list[str]:
    """Every command, as users type it."""
    app = make_app()
    names = [str(one.name) for one in app.registered_commands]
    groups = [(group.name, group.typer_instance) for group in app.registered_groups]
    names += [str(name) for name, group in groups if group and group.registered_callback]  # `broker`
    return names + [f"{name} {one.name}" for name, group in groups if group for one in group.registered_commands]
