"""Bodies as values of a type: JSON by the standard library, or by pydantic.

Messages of a consumer with a codec have a `value`; `decoded` decodes messages from any source.

Examples:
    >>> import rocketpy
    >>> from dataclasses import dataclass
    >>> from rocketpy.codec import JsonCodec, decoded
    >>> @dataclass
    ... class Order:
    ...     item: str
    ...     amount: int = 1
    >>> orders = JsonCodec(Order)
    >>> server = getfixture("rocketpy_server")
    >>> with server.producer("shop") as producer:
    ...     for body in [orders.encode(Order("book", 2)), b"no JSON", orders.encode(Order("pen"))]:
    ...         _ = producer.send(rocketpy.Message("codec-doc", body, order_key="one queue"))
    >>> aside = []
    >>> with server.consumer("billing", "codec-doc") as consumer:
    ...     messages = consumer.messages(idle_timeout=1)
    ...     for order, message in decoded(messages, orders, on_error=lambda message, error: aside.append(message)):
    ...         print(message.queue_offset, order)
    ...     consumer.commit()
    0 Order(item='book', amount=2)
    2 Order(item='pen', amount=1)
    >>> [message.body for message in aside]
    [b'no JSON']
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar, overload

from rocketpy._rocketpy import Message
from rocketpy.base.arrow import import_optional
from rocketpy.base.hints import set_hint
from rocketpy.base.signature import check_function
from rocketpy.codec.json_types import Readers, json_of
from rocketpy.errors import DecodeError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rocketpy._rocketpy import ReceivedMessage

__all__ = ["Codec", "Decoded", "JsonCodec", "PydanticCodec", "decoded"]

T = TypeVar("T")

MAY_OVERFLOW = re.compile(r"[0-9][eE]|[0-9]{309}")
"""Texts without it have no number that a float cannot hold: most bodies need no check of each number."""
SHOWN_CHARACTERS = 40
"""Maximum number of characters of a number that an error shows."""
OTHER_BODY = "message.body has the bytes; for text in another charset write message.body.decode(charset)"
"""Hint for a body that is not what `message.text` or `message.json()` reads."""
SHOWN_PROBLEMS = 3
"""Maximum number of problems of one body that an error names."""


class Codec(Protocol[T]):
    """Encodes values as bodies, and decodes messages to values.

    Your own class needs only these two methods, and no base class.
    """

    def encode(self, value: T) -> bytes:
        """Encodes a value as a message body."""
        ...

    def decode(self, message: ReceivedMessage) -> T:
        """Decodes the value of a message. Any exception counts as an undecodable body."""
        ...


class JsonCodec(Generic[T]):
    """JSON, read by the standard library into values of a type.

    Types: those of JSON (`str`, `int`, `float`, `bool`, `None`, `list`, `dict` by text), dataclasses, enums by value,
    `Literal`, unions, tuples (as lists), `datetime`, `date`, `UUID` and `Decimal` (as text). Values are checked and
    never converted, except whole numbers to float. A dataclass uses its defaults for missing fields, and ignores
    unknown fields, so that producers may add fields first.

    Args:
        kind: Type of the values. Default: any JSON value.

    Raises:
        TypeError: The type, or the type of a field, is not supported.

    Examples:
        >>> JsonCodec(dict[str, int]).encode({"a": 1})
        b'{"a":1}'
    """

    @overload
    def __init__(self: JsonCodec[Any]) -> None: ...
    @overload
    def __init__(self, kind: type[T]) -> None: ...
    def __init__(self, kind: Any = Any) -> None:
        self._kind = kind
        self._name = getattr(kind, "__qualname__", None) or repr(kind)
        self._read = Readers().of(kind, self._name)

    def encode(self, value: T) -> bytes:
        """Encodes a value as JSON in UTF-8. Fields are not checked: type checkers do that.

        Raises:
            InvalidArgumentError: JSON cannot represent the value, such as infinity, a set, or an object that contains
                itself.
        """
        try:
            return json.dumps(
                value, default=json_of, allow_nan=False, ensure_ascii=False, separators=(",", ":")
            ).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"a {type(value).__qualname__} does not encode as JSON: {error}") from error

    def decode(self, message: ReceivedMessage) -> T:
        """Decodes the value of a message.

        Raises:
            DecodeError: The body is not JSON, or not of the type. A retry does not help.
        """
        try:
            value: T = self._read(parsed(message.body), "$")
        except Exception as error:  # also those of a dataclass that checks itself
            raise decode_error(message, self._name, str(error) or type(error).__name__) from None
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return (JsonCodec, (self._kind,))

    def __repr__(self) -> str:
        return f"<JsonCodec of {self._name}>"


class PydanticCodec(Generic[T]):
    """JSON, checked and converted by pydantic. Requires pydantic 2.

    Args:
        kind: A model, or any other type that pydantic supports. Fields with an alias are written and read by the alias.
        strict: Whether to disable conversions, such as the text `"1"` to a number.

    Raises:
        RocketPyError: pydantic is not installed.

    Examples:
        >>> import pydantic
        >>> class Order(pydantic.BaseModel):
        ...     item: str
        ...     amount: int = 1
        >>> PydanticCodec(Order).encode(Order(item="book"))
        b'{"item":"book","amount":1}'
    """

    def __init__(self, kind: type[T], *, strict: bool = False) -> None:
        self._pydantic = import_optional("pydantic", "pydantic")
        self._kind = kind
        self._name = getattr(kind, "__qualname__", None) or repr(kind)
        self._adapter = self._pydantic.TypeAdapter(kind)
        self._strict = strict

    def encode(self, value: T) -> bytes:
        """Encodes a value as JSON in UTF-8.

        Raises:
            InvalidArgumentError: The value is not of the type, or JSON cannot represent it.
        """
        try:
            body: bytes = self._adapter.dump_json(value, by_alias=True, warnings="error")
        except Exception as error:
            raise InvalidArgumentError(
                f"a {type(value).__qualname__} does not encode as {self._name}: {error}"
            ) from error
        return body

    def decode(self, message: ReceivedMessage) -> T:
        """Decodes the value of a message.

        Raises:
            DecodeError: The body is not JSON, or not of the type. A retry does not help.
        """
        try:
            value: T = self._adapter.validate_json(message.body, strict=self._strict or None)
        except self._pydantic.ValidationError as error:  # its own text shows the body
            problems = error.errors(include_url=False, include_input=False, include_context=False)
            reason = "; ".join(f"{path_of(one['loc'])} {one['msg']}" for one in problems[:SHOWN_PROBLEMS])
            more = len(problems) - SHOWN_PROBLEMS
            raise decode_error(message, self._name, f"{reason}; and {more} more" if more > 0 else reason) from None
        except Exception as error:  # of a validator
            raise decode_error(message, self._name, str(error) or type(error).__name__) from None
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return (functools.partial(PydanticCodec, strict=self._strict), (self._kind,))

    def __repr__(self) -> str:
        return f"<PydanticCodec of {self._name}>"


class Decoded(Iterator[tuple[T, "ReceivedMessage"]]):
    """Iterates over values and their messages. After an error it continues with the next message."""

    __slots__ = ("_codec", "_messages", "_on_error")

    def __init__(
        self,
        messages: Iterable[ReceivedMessage],
        codec: Codec[T],
        on_error: Callable[[ReceivedMessage, DecodeError], object] | None,
    ) -> None:
        self._messages = iter(messages)
        self._codec = codec
        self._on_error = on_error

    def __next__(self) -> tuple[T, ReceivedMessage]:
        for message in self._messages:
            try:
                return decode(self._codec, message), message
            except DecodeError as error:
                if self._on_error is None:
                    raise
                failed = error
            self._on_error(message, failed)
        raise StopIteration


def decoded(
    messages: Iterable[ReceivedMessage],
    codec: Codec[T],
    *,
    on_error: Callable[[ReceivedMessage, DecodeError], object] | None = None,
) -> Decoded[T]:
    """Decodes messages one by one.

    Without `on_error` an undecodable body raises `DecodeError`. The consumer has then passed the message: continue with
    the same iterator or another, and the next `commit` covers it. A program that ends with the error receives the
    message again at its next start, and ends again. With `on_error` the iteration continues.

    Args:
        messages: A consumer, `consumer.messages(...)`, or the messages of a poll.
        codec: The codec.
        on_error: Called with an undecodable message and the error, to log it or send it elsewhere. An exception of this
            function ends the iteration.

    Returns:
        An iterator of pairs of value and message.

    Raises:
        DecodeError: Raised on iteration: a body is undecodable, and `on_error` is None.
    """
    if on_error is not None:
        check_function("on_error", on_error, "a function of a message and an error", 2)
    return Decoded(messages, codec, on_error)


def decode(codec: Codec[T], message: ReceivedMessage) -> T:
    """Decodes the value of a message with any codec.

    Raises:
        DecodeError: The codec raised an exception.
    """
    try:
        return codec.decode(message)
    except DecodeError:
        raise
    except Exception as error:
        raise decode_error(message, repr(codec), str(error) or type(error).__name__) from error


def decoder(codec: Codec[T]) -> Callable[[ReceivedMessage], T]:
    """Decoder for a consumer with this codec.

    Raises:
        TypeError: The value is not a codec. Not every caller has a type checker.
    """
    if isinstance(codec, type) or not callable(getattr(codec, "decode", None)):
        raise TypeError(f"codec must be an object with encode and decode, such as JsonCodec(Order), not {codec!r}")
    return functools.partial(decode, codec)


def parsed(body: bytes) -> Any:
    """Value of a body in JSON, in an encoding that `json.loads` accepts.

    Raises:
        ValueError: The body is not JSON.
        RecursionError: It is nested too deeply.
    """
    text = body.decode(json.detect_encoding(body), "surrogatepass")  # as `json.loads` does
    parse_float = finite if MAY_OVERFLOW.search(text) else None
    return json.loads(text, parse_constant=refuse_constant, parse_float=parse_float)


def json_value(message: Message | ReceivedMessage) -> Any:
    """Value of `message.json()`.

    Raises:
        DecodeError: The body is not JSON.
    """
    try:
        return parsed(message.body)
    except (ValueError, RecursionError) as error:
        raise body_error(message, "JSON", str(error)) from None


def not_text(message: Message | ReceivedMessage, at: int) -> DecodeError:
    """Error of `message.text` for a body that is not UTF-8 from a byte on."""
    return body_error(message, "text in UTF-8", f"byte {at} begins no character")


def body_error(message: Message | ReceivedMessage, kind: str, reason: str) -> DecodeError:
    """Error of a body of another kind."""
    if isinstance(message, Message):
        error = DecodeError(f"the body of a message to {message.topic} does not decode as {kind}: {reason}")
    else:
        error = decode_error(message, kind, reason)
    set_hint(error, OTHER_BODY)
    return error


def decode_error(message: ReceivedMessage, kind: str, reason: str) -> DecodeError:
    """Error of an undecodable body, without the body itself."""
    error = DecodeError(
        f"the body of message {message.msg_id} does not decode as {kind}: {reason} (topic {message.topic}, "
        f"queue {message.queue_id} of {message.broker_name}, offset {message.queue_offset})",
        hint="a retry does not help: store error.message elsewhere and continue; the next commit covers it",
    )
    error.message = message
    return error


def refuse_constant(text: str) -> NoReturn:
    """Refuses NaN and infinity, which only Python's parser accepts as JSON."""
    raise ValueError(f"JSON has no {text}")


def finite(text: str) -> float:
    """Reads a number. One that no float can hold, such as `1e400`, is not infinity."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:SHOWN_CHARACTERS]} is out of the range of a float")
    return number


def path_of(places: tuple[int | str, ...]) -> str:
    """Path in a body: `$.items[3].price`."""
    return "$" + "".join(f"[{place}]" if isinstance(place, int) else f".{place}" for place in places)
