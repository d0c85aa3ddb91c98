"""Errors of calls whose arguments fit no parameter: they name the wrong argument first, then the missing ones."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rocketpy.base.similar import ADVICE, FOREIGN, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Never

Function = TypeVar("Function", bound="Callable[..., Any]")

SHOWN_CHARACTERS = 64
"""Maximum length of a text that an error shows as the value of an argument."""
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
ONE_MESSAGE = (
    "{}(message) takes one message and options by name: write {}(rocketpy.Message(topic, body)), with queue=, timeout= "
    "and other options by name"
)
DICT = "{} takes options by name, not as a dict: write {}(..., name_servers='host:9876') with other options by name"
NO_MESSAGE = (
    "{}.commit() takes no message: it commits all messages returned so far. To commit up to one message, write "
    "commit_offsets({{message.queue: message.queue_offset + 1}})"
)


MESSAGE_PARTS = {"body", "topic", "value"}
"""Options of the sends of other clients that the message has here."""


def one_message(call: Callable[..., object], options: Mapping[str, object]) -> TypeError:
    """Error of a send with a topic and a body, as in other clients, in place of a message, or with other options.

    Args:
        call: The method.
        options: Options that it lacks.
    """
    name = call.__qualname__
    usage = ONE_MESSAGE.format(name, call.__name__)
    if not options:
        return TypeError(usage)
    said = no_options(call, [one for one in options if one not in MESSAGE_PARTS])
    return TypeError("; ".join([*said, usage] if MESSAGE_PARTS & {*options} else said))


def no_message(call: Callable[..., object], options: Mapping[str, object]) -> TypeError:
    """Error of a commit of a message, or with other options.

    Args:
        call: The method.
        options: Options that it lacks.
    """
    if options and "message" not in options:
        return no_option(call, options)
    return TypeError(NO_MESSAGE.format(call.__qualname__.partition(".")[0]))


def no_option(call: Callable[..., object], options: Mapping[str, object]) -> TypeError:
    """Error of a call with options that the method lacks.

    Args:
        call: The method.
        options: These options.
    """
    return TypeError("; ".join(no_options(call, options)))


def no_options(call: Callable[..., object], options: Iterable[str]) -> list[str]:
    """Text for each option that a method lacks."""
    known = [one for one in inspect.signature(call).parameters if one != "self" and not one.startswith("_")]
    name = call.__qualname__.removeprefix("AsyncAdmin.")  # `Admin` runs the same calls
    return [f"{name} has no option {one!r}{did_you_mean(one, known)}" for one in options]


def explained_attribute(owner: object, name: str, parts: Iterable[str] = ()) -> object:
    """`__getattr__` of a class whose methods are seldom called: extends the error for a missing attribute.

    Args:
        owner: The object.
        name: Name of the attribute.
        parts: Attributes of attributes that count as known names, such as `queue.queue_id`.
    """
    try:
        return object.__getattribute__(owner, name)
    except AttributeError as error:
        known = public_names(type(owner))
        if name.startswith("_") or name in known:
            raise
        raise missing_attribute(str(error), owner, name, [*known, *parts]) from None


def missing_attribute(text: str, owner: object, name: str, known: Iterable[str]) -> AttributeError:
    """Python's error for a missing attribute, with the name here or advice."""
    return AttributeError(text + did_you_mean(name, known), name=name, obj=owner)


def public_names(owner: type) -> list[str]:
    """Public attributes of a class."""
    return [one for one in dir(owner) if not one.startswith("_")]


def is_foreign(owner: type, name: str) -> bool:
    """Whether an attribute of a class is a name of another client."""
    return isinstance(inspect.getattr_static(owner, name, None), ForeignName)


class ForeignName:
    """Attribute name of another client: an access fails as for any missing attribute, with the name here or advice."""

    __slots__ = ("name",)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Never:
        kind = f"type object {owner.__name__!r}" if instance is None else f"{owner.__name__!r} object"
        text = f"{kind} has no attribute {self.name!r}"
        raise missing_attribute(text, owner if instance is None else instance, self.name, public_names(owner))


class WithoutForeign(ABCMeta):
    """Class of classes that do not list names of other clients."""

    def __dir__(cls) -> list[str]:
        return [one for one in super().__dir__() if not is_foreign(cls, one)]


class ForeignNames(metaclass=WithoutForeign):
    """Base of classes that explain names of other clients.

    A `__getattr__` would slow down each call of a method. These attributes cost nothing until an access.
    """

    __slots__ = ()

    def __dir__(self) -> list[str]:
        return [one for one in super().__dir__() if not is_foreign(type(self), one)]


for _name in {**FOREIGN, **ADVICE}:
    setattr(ForeignNames, _name, _foreign := ForeignName())
    _foreign.__set_name__(ForeignNames, _name)


def explained(function: Function) -> Function:
    """Explains calls of a method whose arguments do not fit its signature. Errors inside the method stay as they are.

    Examples:
        >>> class Reader:
        ...     @explained
        ...     def __init__(self, group, *, start=0): ...
        >>> Reader(group_id="g")
        Traceback (most recent call last):
        TypeError: Reader has no option 'group_id' (did you mean group?); Reader(group) lacks group
    """
    code = inspect.unwrap(function).__code__

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except (TypeError, ValueError) as error:
            if len(arguments) > 1 and isinstance(arguments[1], dict):
                raise TypeError(DICT.format(*[call.__qualname__.removesuffix(".__init__")] * 2)) from None
            if isinstance(error, ValueError) or has_begun(error.__traceback__, code):
                raise
            given = arguments[1:] if "self" in inspect.signature(call).parameters else arguments
            raise TypeError(misfit_text(call, given, options) or str(error)) from None

    return cast("Function", call)


def shown_name(function: Callable[..., object]) -> str:
    """Name of a function in errors: `Producer` for its constructor, `schedule.add` for a function of a module."""
    name = function.__qualname__.removesuffix(".__init__")
    return name if "." in name or name[0].isupper() else f"{function.__module__.rpartition('.')[2]}.{name}"


def has_begun(traceback: TracebackType | None, code: object) -> bool:
    """Whether the function with this code was running when an exception was raised."""
    while traceback is not None:
        if traceback.tb_frame.f_code is code:
            return True
        traceback = traceback.tb_next
    return False


def misfit_text(function: Callable[..., object], arguments: Sequence[object], options: Mapping[str, object]) -> str:
    """Explanation of a call that does not fit; empty if only Python knows what is wrong.

    Args:
        function: A method or a function of a module.
        arguments: Arguments by position, without `self`.
        options: Arguments by name.
    """
    name = shown_name(function)
    parameters = {
        one: parameter
        for one, parameter in inspect.signature(function).parameters.items()
        if one != "self" and not one.startswith("_")
    }
    positional = [one for one in parameters.values() if one.kind in POSITIONAL]
    required = [one.name for one in positional if one.default is inspect.Parameter.empty]
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    usage = f"{name}({', '.join(required)})"
    given = dict(zip([one.name for one in positional], arguments, strict=False))
    unknown = [
        one for one in options if one not in parameters and (not takes_any or set(FOREIGN.get(one, ())) & {*required})
    ]
    said = [f"{name} has no option {option!r}{did_you_mean(option, parameters)}" for option in unknown]
    said += [
        f"{usage} has {option} twice: {shown(given[option])} by position, {shown(options[option])} by name"
        for option in options
        if option in given
    ]
    if len(arguments) > len(positional):
        said.append(f"{usage} takes {len(positional)} by position, not {len(arguments)}: pass the others by name")
    missing = [one for one in required if one not in given and one not in options]
    if missing:
        values = " and ".join(f"{shown(value)} is the {one}" for one, value in given.items())
        said.append(f"{usage} lacks {' and '.join(missing)}" + (f", {values}" if values else ""))
    return "; ".join(said)


def shown(value: object) -> str:
    """Value of an argument in an error: a short text, or else the name of its type."""
    return repr(value) if isinstance(value, str) and len(value) <= SHOWN_CHARACTERS else f"<{type(value).__name__}>"
