"""Runs command lines: of `rocketpy`, and of each Spark job."""

import contextlib
import inspect
import logging
import re
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import typer

from rocketpy.base.similar import FOREIGN, did_you_mean, meant
from rocketpy.commandline import streams
from rocketpy.commandline.exits import ExitCode, Reported, check_values, fail, reported

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""Error class of click, of which typer may carry its own copy and exports only the subclass."""

NO_COMMAND = re.compile(r"No such command '([^']+)'$")
"""Message of typer for an unknown command without a similar one."""
STARTS = ("earliest", "latest")
"""Values that other command lines write into the name of an option."""


def guarded(function: Callable[..., None]) -> Callable[..., None]:
    """Runs a command so that each failure ends in its error lines and its exit code."""
    signature = inspect.signature(function)

    def run(**options: Any) -> None:
        with reported():
            check_values({label_of(signature.parameters[name]): value for name, value in options.items()})
            function(**options)

    run.__doc__ = function.__doc__
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


def label_of(parameter: inspect.Parameter) -> str:
    """Returns what users type for a parameter: `--name-server` of an option, `topic` of an argument.

    Args:
        parameter: Parameter of a command, with the option or argument of typer in its annotation.
    """
    label = parameter.name.replace("_", "-")
    for mark in getattr(parameter.annotation, "__metadata__", ()):
        if isinstance(mark, typer.models.OptionInfo):
            return next((name for name in mark.param_decls or () if name.startswith("--")), f"--{label}").split("/")[0]
    return label


def run_app(app: typer.Typer, name: str, arguments: Sequence[str] | None) -> int:
    """Runs one command line: each failure ends in its lines `error:` and `hint:` and its exit code.

    Args:
        app: The commands.
        name: Name of the command, as users type it.
        arguments: Command line; default: that of the process.

    Returns:
        The exit code.
    """
    if arguments is None:
        streams.prepare()
    with client_warnings_off():
        try:
            with reported():  # also the help, which typer prints
                return run_line(app, name, sys.argv[1:] if arguments is None else list(arguments))
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)


def run_line(app: typer.Typer, name: str, arguments: list[str]) -> int:
    """Runs one command line; reports wrong usage."""
    try:
        return app(args=arguments, prog_name=name, standalone_mode=False) or int(ExitCode.OK)
    except USAGE_ERROR as error:
        return usage_error(error, is_empty=arguments == [])


@contextlib.contextmanager
def client_warnings_off() -> Generator[None]:
    """Suppresses the log warnings of clients: commands report failures and retries themselves."""
    clients = logging.getLogger("rocketpy.client")
    level = clients.level
    clients.setLevel(logging.ERROR)
    try:
        yield
    finally:
        clients.setLevel(level)


def usage_error(error: Any, *, is_empty: bool) -> int:
    """Reports a wrong command line in the form of all other errors.

    Args:
        error: Error from typer. Without a command, typer has already printed the help.
        is_empty: Whether the command line is empty; then only the help is printed.

    Returns:
        The exit code.
    """
    is_bare = type(error).__name__ == "NoArgsIsHelpError"
    if is_bare and is_empty:
        return int(ExitCode.USAGE)
    message = "a command is missing" if is_bare else str(error.format_message()).rstrip(".")
    path = error.ctx.command_path if error.ctx else "rocketpy"
    if type(error).__name__ == "NoSuchOption" and error.ctx:
        message = no_such_option(error.option_name, error.ctx)
    elif error.ctx and (unknown := NO_COMMAND.match(message)):
        message += did_you_mean(unknown[1], error.ctx.command.commands)
    try:
        hint = one_of_list(message, error.ctx) or f"run `{path} --help` to see its options"
        fail(message[:1].lower() + message[1:], ExitCode.USAGE, hint)
    except Reported as end:
        return int(str(end.code))


def one_of_list(message: str, context: Any) -> str | None:
    """Hint for a name after `list`, such as `dlq list GROUP`: the command of the same part that shows one.

    Args:
        message: The usage error.
        context: Context of click, or None.
    """
    extra = re.fullmatch(r"Got unexpected extra arguments? \((\S+)\)", message.replace("(s)", ""))
    if extra is None or context is None or context.info_name != "list" or context.parent is None:
        return None
    shows = next((verb for verb in ("show", "describe") if verb in context.parent.command.commands), None)
    return f"`{context.parent.command_path} {shows} {extra[1]}` shows one" if shows else None


def no_such_option(name: str, context: Any) -> str:
    """Error for an option that a command lacks: it names the option that does the same, or has a similar name.

    Args:
        name: The option, as `--partitions`.
        context: Context of click, with the command.
    """
    written = name.removeprefix("--")
    form = elsewhere(written, context) or argument_form(written, context)
    if form is None:
        known = flags_of(context.command.params)
        head, _, value = written.partition("-")
        same = f"{head} {value}" if head in known and value in STARTS else None
        form = " or ".join(f"--{one}" for one in ([same] if same else meant(written, known)))
    return f"no such option: {name}" + (f" (did you mean {form}?)" if form else "")


def flags_of(parameters: Iterable[Any]) -> list[str]:
    """Options among the parameters of a command, without hyphens."""
    return [flag.removeprefix("--") for one in parameters for flag in one.opts if flag.startswith("--")]


def parameters_below(command: Any) -> Generator[Any]:
    """Yields the parameters of the commands of a group, whatever their depth."""
    for one in getattr(command, "commands", {}).values():
        yield from one.params
        yield from parameters_below(one)


def elsewhere(written: str, context: Any) -> str | None:
    """Form of an option that is a command here, or an option of the commands below; None if it is neither."""
    if written in getattr(context.command, "commands", {}):
        return f"`{context.command_path} {written}`"
    below = flags_of(parameters_below(context.command))
    names = [one for one in (written, *FOREIGN.get(written.replace("-", "_"), ())) if one in below]
    return f"--{names[0]} after the command" if names else None


def argument_form(written: str, context: Any) -> str | None:
    """Form of an option that is an argument of the command; None if it is not."""
    names = [one.name for one in context.command.params if one.param_type_name == "argument"]
    return f"`{context.command_path} {written.upper()}`" if written in names else None
