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

from rocketpy.base.misuse import explained, shown_name
from rocketpy.base.names import text_error
from rocketpy.base.similar import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Function = TypeVar("Function", bound="Callable[..., Any]")
Class = TypeVar("Class", bound="type[Any]")

WIDTH = 116
"""Columns of a list of options: those of the source without the indentation of a docstring."""
CHECK_ONLY = "check of options, which no client follows because it has an option of this name"
"""Name of an option that does not exist: the extension module refuses it once it has read all others."""


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


def lists_options(
    options: type, defaults: Mapping[str, object], elsewhere: Mapping[str, str] | None = None
) -> Callable[[Function], Function]:
    """Builds a decorator that shows each option in place of `**options`. Type checkers read `Unpack` instead.

    The error of a call with other arguments explains them, as by `explained`. A call with an unknown option is refused.

    Args:
        options: The TypedDict of the options.
        defaults: Default of every option, in display order.
        elsewhere: Options of other calls, each with its place.

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
        return _refuses_unknown(made, written, _known(own, defaults), elsewhere or {})

    return decorate


def _known(own: list[inspect.Parameter], defaults: Mapping[str, object]) -> list[str]:
    """Names of all options for errors: what most calls have, such as name servers, is last."""
    names = [one.name for one in own if one.name != "self" and one.kind not in BY_POSITION]
    first = [one.name for one in own if one.kind is inspect.Parameter.KEYWORD_ONLY and one.name != "name_servers"]
    return [*first, *defaults, *(name for name in names if name not in first)]


BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


def _refuses_unknown(
    function: Function, written: inspect.Signature, known: list[str], elsewhere: Mapping[str, str]
) -> Function:
    """Refuses unknown options of calls whose other arguments fit."""
    names = frozenset(known)
    kind = shown_name(function)

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        unknown = [name for name in options if name not in names]
        if unknown and _fits(written, arguments, options):
            name = unknown[0]
            if name in elsewhere:
                raise TypeError(f"{kind} has no option {name}: {elsewhere[name]}")
            raise TypeError(f'{kind} has no option "{name}"{did_you_mean(name, known)}; options: {", ".join(known)}')
        return function(*arguments, **options)

    return cast("Function", call)


def _fits(written: inspect.Signature, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    try:
        written.bind(*arguments, **options)
    except TypeError:
        return False
    return True


def check_options(make: Callable[..., object], options: Mapping[str, object]) -> None:
    """Checks types of options, and ranges of their types, as the extension module does. Makes no client.

    Args:
        make: Constructor of the extension module, with its other arguments.
        options: The options, whose names are known.

    Raises:
        TypeError: A value has another type.
        InvalidArgumentError: A value is out of range.
        NotSupportedError: An option is not supported yet.
    """
    try:
        make(**options, **{CHECK_ONLY: None})
    except UnicodeEncodeError as error:
        raise text_error(error) from error
    except TypeError as error:
        if CHECK_ONLY not in str(error):
            raise


def takes_options(
    options: type, defaults: Mapping[str, object], elsewhere: Mapping[str, str] | None = None
) -> Callable[[Class], Class]:
    """Builds a class decorator that shows the options of the constructor in its signature and in `help`.

    Args:
        options: The TypedDict of the options.
        defaults: Default of every option, in display order.
        elsewhere: Options of other calls, each with its place.
    """

    def decorate(kind: Class) -> Class:
        kind.__init__ = lists_options(options, defaults, elsewhere)(_refuses_broken_text(kind.__init__))
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
