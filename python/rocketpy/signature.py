"""Signatures of calls whose keyword options a TypedDict lists, as `help()`, notebooks and IDEs show them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ForwardRef, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Function = TypeVar("Function", bound="Callable[..., Any]")


def lists_options(options: type, defaults: Mapping[str, object]) -> Callable[[Function], Function]:
    """Makes a decorator that shows each option in the place of `**options`. Type checkers read `Unpack` instead.

    Args:
        options: The TypedDict of the options.
        defaults: The default of every option, in the order to show.

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
                annotation=cast("ForwardRef", options.__annotations__[name]).__forward_arg__,
            )
            for name, value in defaults.items()
        ]
        function.__signature__ = written.replace(parameters=[*own, *listed])  # type: ignore[attr-defined]
        return function

    return decorate
