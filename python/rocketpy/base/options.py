"""Keyword options, declared once as fields of a TypedDict with type, default and meaning.

    class ClientOptions(TypedDict, total=False):
        api_timeout: Annotated["Duration", Default(3.0)]
        "Time for a call. Default 3 s."

Type checkers and editors read it through `Unpack[ClientOptions]`. Signatures and the lists of options in docstrings are
made of it here; a test compares the extension module, which reads the values, with it.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, ForwardRef, TypeVar, cast

from rocketpy.base.misuse import explained
from rocketpy.base.names import text_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Function = TypeVar("Function", bound="Callable[..., Any]")
Class = TypeVar("Class", bound="type[Any]")

WIDTH = 116
"""Columns of a list of options: those of the source without the indentation of a docstring."""


class Default:
    """Default value of an option. The extension module declares the same value."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Default({self.value!r})"


def defaults_of(options: type, inherited: Mapping[str, object] | None = None) -> Any:
    """Default of every option, in display order: own options first, then those of the base.

    Args:
        options: The TypedDict of the options.
        inherited: Defaults of the base.

    Examples:
        >>> from rocketpy.config import ClientOptions
        >>> defaults_of(ClientOptions)["api_timeout"]
        3.0
    """
    inherited = inherited or {}
    declared = {name: hint.__metadata__[0].value for name, hint in options.__annotations__.items()}
    return {name: value for name, value in declared.items() if name not in inherited} | dict(inherited)


def lists_options(options: type, defaults: Mapping[str, object]) -> Callable[[Function], Function]:
    """Builds a decorator that shows each option in place of `**options`. Type checkers read `Unpack` instead.

    The error of a call with other arguments explains them, as by `explained`.

    Args:
        options: The TypedDict of the options.
        defaults: Default of every option, in display order.

    Examples:
        >>> from rocketpy.config import CLIENT_DEFAULTS, ClientOptions
        >>> @lists_options(ClientOptions, CLIENT_DEFAULTS)
        ... def ask(topic, **options): ...
        >>> list(inspect.signature(ask).parameters)[:2]
        ['topic', 'instance_name']
    """

    def decorate(function: Function) -> Function:
        written = inspect.signature(function)
        own = [one for one in written.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        listed = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=value,
                annotation=cast("ForwardRef", options.__annotations__[name].__origin__).__forward_arg__,
            )
            for name, value in defaults.items()
        ]
        made = explained(function)
        made.__signature__ = written.replace(parameters=[*own, *listed])  # type: ignore[attr-defined]
        return made

    return decorate


def takes_options(options: type, defaults: Mapping[str, object]) -> Callable[[Class], Class]:
    """Builds a class decorator that shows the options of the constructor in its signature and in `help`.

    Args:
        options: The TypedDict of the options.
        defaults: Default of every option, in display order.
    """

    def decorate(kind: Class) -> Class:
        kind.__init__ = lists_options(options, defaults)(_refuses_broken_text(kind.__init__))
        if kind.__doc__ is not None:  # as under `python -OO`
            kind.__doc__ = cast("Any", _Docstring(kind.__doc__, options, tuple(defaults)))
        return kind

    return decorate


def _refuses_broken_text(make: Function) -> Function:
    """Names the text that has a lone surrogate, such as the name of a group."""

    @wraps(make)
    def init(*arguments: Any, **options: Any) -> None:
        try:
            make(*arguments, **options)
        except UnicodeEncodeError as error:
            raise text_error(error) from error

    return cast("Function", init)


class _Docstring:
    """Docstring of a class with the list of its options, built at the first access."""

    __slots__ = ("_names", "_options", "_written")

    def __init__(self, written: str, options: type, names: tuple[str, ...]) -> None:
        self._written, self._options, self._names = written, options, names

    def __get__(self, instance: object, owner: type) -> str:
        return _with_options(self._written, self._options, self._names)


@cache
def _with_options(written: str, options: type, names: tuple[str, ...]) -> str:
    """Docstring with the list of options after its arguments."""
    text, said = inspect.cleandoc(written), meanings(options)
    listed = (
        textwrap.fill(
            f"{name}: {said.get(name, '')}",
            WIDTH,
            initial_indent=" " * 4,
            subsequent_indent=" " * 8,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for name in names
    )
    parts = text.split("\n\n")
    behind = next(at for at, part in enumerate(parts, 1) if part.startswith("Args:"))
    return "\n\n".join([*parts[:behind], "\n".join(["Options:", *listed]), *parts[behind:]])


@cache
def meanings(options: type) -> dict[str, str]:
    """First paragraph below each field of a TypedDict and its bases. Empty without source code."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[options.__module__]))
    except OSError:
        return {}
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    found: dict[str, str] = {}
    waiting = [options.__name__]
    while waiting:
        node = classes.get(waiting.pop())
        if node is None:
            continue
        waiting += [base.id for base in node.bases if isinstance(base, ast.Name)]
        for field, text in zip(node.body, node.body[1:], strict=False):
            match field, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(meaning))):
                    found.setdefault(name, " ".join(meaning.split("\n\n")[0].split()))
                case _:
                    pass
    return found
