"""Exit codes of the command line, and the one way in which a command fails: a line `error:`, a line `hint:`, a code."""

import contextlib
import math
import signal
import sys
import traceback
import warnings
from collections.abc import Generator, Mapping
from enum import IntEnum
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, cast

from rocketpy.base.failure import loggable
from rocketpy.base.text import is_unicode, printable
from rocketpy.commandline import streams
from rocketpy.commandline.streams import StreamError

if TYPE_CHECKING:
    from rocketpy.errors import RocketPyError


class ExitCode(IntEnum):
    """Exit codes of the command. `docs/operations.md` lists them."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    UNAVAILABLE = 4
    REFUSED = 5
    UNCERTAIN = 6
    CONFLICT = 7
    DAMAGED = 8
    MISMATCH = 9
    DEFECT = 10
    REJECTED = 11
    NOT_EXECUTABLE = 126
    NO_COMMAND = 127
    HUNG_UP = 129
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


SIGNALS = {
    signal.SIGINT: ExitCode.INTERRUPTED,
    signal.SIGTERM: ExitCode.TERMINATED,
    signal.SIGHUP: ExitCode.HUNG_UP,
}
"""Signals that end a command, and its exit code then."""

NOT_FOUND_CODES = (17, 22, 26, 3001, 3002)
"""TOPIC_NOT_EXIST, QUERY_NOT_FOUND, SUBSCRIPTION_GROUP_NOT_EXIST, USER_NOT_EXIST, POLICY_NOT_EXIST (response codes)."""
INVALID_PARAMETER = 29
"""Response code of a server that rejects a value."""

LINES = "\n"
"""Errors of configurations may have several lines."""

HINTS = {
    ExitCode.FAILURE: "this looks like a defect; please report it with the command and this message",
    ExitCode.USAGE: "add --help to the command to see its options",
    ExitCode.NOT_FOUND: "check the name; `rocketpy topic list` and `rocketpy group list` show the existing names",
    ExitCode.UNAVAILABLE: "check --name-server and that `rocketpy server` runs there, then try again; "
    "`rocketpy --timeout 60 ...` waits longer",
    ExitCode.REFUSED: "the server or the store does not allow this; another value may be accepted",
    ExitCode.UNCERTAIN: "the operation may have succeeded: check before you try again",
    ExitCode.CONFLICT: "used by another process: stop that process, or choose another folder or port",
    ExitCode.DAMAGED: "nothing was changed; run `rocketpy store verify` and `rocketpy store repair`",
    ExitCode.DEFECT: "report this defect with the log of the server; the next start recovers all durable records",
    ExitCode.REJECTED: "all other messages were copied; correct what each reason names, such as a limit of the broker "
    "or a missing topic, then copy the rejected messages again",
    ExitCode.MISMATCH: "messages read differ from messages sent; keep the folder and report this",
}


KEPT_CODES = (ExitCode.UNCERTAIN, ExitCode.DAMAGED, ExitCode.DEFECT)
"""Exit codes that lost output does not replace: a call may have been applied, data is damaged, a server failed."""

NOT_UNICODE = "write it as UTF-8: in a UTF-8 locale, or with the environment variable PYTHONUTF8=1"
"""Hint for text with bytes that the charset of the locale lacks."""


DEFAULT_ADDRESS = "127.0.0.1:9876"
"""Default address of `--name-server`."""
NO_LOCAL_SERVER = (
    f"{DEFAULT_ADDRESS} is the default address: start `rocketpy server DIR` there, or set NAMESRV_ADDR or --name-server"
)

OTHER_SERVER = "check --name-server: a server of another kind or version may listen there; see the log of that server"
"""Hint for an answer that is not one of the protocol."""


class Reported(SystemExit):
    """Ends the process after its error lines are printed."""


class CommandError(Exception):
    """Failure of a command, with its exit code and a hint."""

    def __init__(self, message: str, code: ExitCode, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


def fail(message: str, code: ExitCode, hint: str | None = None) -> NoReturn:
    """Ends the process with the lines `error:` and `hint:` on standard error.

    If output is lost, the error says so, because a caller that reads the output must not trust it. The exit code is
    REFUSED then, except for codes that a caller must not miss.
    """
    lost = streams.flush()
    if lost is not None:
        message, hint = f"{lost}; error before: {message}", lost.hint
        code = code if code in KEPT_CODES else ExitCode.REFUSED
    lines = f"error: {printable(message, keep=LINES)}\nhint: {printable(hint or HINTS[code], keep=LINES)}"
    print(lines, file=sys.stderr, flush=True)
    raise Reported(int(code))


def check_values(given: Mapping[str, Any]) -> None:
    """Rejects text with bytes that are not characters in the charset of the locale, and numbers that are not finite.

    A path may have any bytes.

    Args:
        given: Values by the names that users type, such as `--limit`.

    Raises:
        CommandError: A value is such a text or number.
    """
    for name, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise CommandError(f"{name} must be a finite number, not {value}", ExitCode.USAGE)
        texts = cast("list[object]", value) if isinstance(value, list) else [value]
        for text in texts:
            if isinstance(text, str) and not is_unicode(text):
                raise CommandError(
                    f"{name} is not valid in the charset of the locale: {text}",
                    ExitCode.USAGE,
                    NOT_UNICODE,
                )


def code_of(error: "RocketPyError") -> ExitCode:
    """Returns the exit code for an error of the package."""
    from rocketpy import errors

    if error.may_have_been_applied:
        return ExitCode.UNCERTAIN
    if isinstance(error, errors.PartlySentError) and error.receipts is not None:
        first = next((failure for _, failure in error.receipts.failures()), None)
        if isinstance(first, errors.RocketPyError):
            return code_of(first)
    if isinstance(error, errors.RefusedError) and error.code in NOT_FOUND_CODES:
        return ExitCode.NOT_FOUND
    if isinstance(error, errors.RefusedError) and error.code == INVALID_PARAMETER:
        return ExitCode.USAGE
    kinds: dict[ExitCode, tuple[type[Exception], ...]] = {
        ExitCode.USAGE: (errors.InvalidArgumentError, errors.ConfigError),
        ExitCode.NOT_FOUND: (
            errors.TopicNotFoundError,
            errors.BrokerNotFoundError,
            errors.NotAStoreError,
            errors.OffsetError,
            errors.ScheduleNotFoundError,
        ),
        ExitCode.UNAVAILABLE: (
            errors.RequestTimeoutError,
            errors.ConnectionFailedError,
            errors.ConnectionLostError,
            errors.BrokerBusyError,
        ),
        ExitCode.CONFLICT: (
            errors.GroupConflictError,
            errors.PortInUseError,
            errors.ScheduleConflictError,
            errors.StoreLockedError,
        ),
        ExitCode.DAMAGED: (errors.DamagedDataError,),
        ExitCode.DEFECT: (errors.AssertionFailedError,),
        ExitCode.REFUSED: (errors.RefusedError, errors.NotSupportedError, errors.StoreError, errors.ServerError),
    }
    return next((code for code, kind in kinds.items() if isinstance(error, kind)), ExitCode.FAILURE)


@contextlib.contextmanager
def reported() -> Generator[None, None, None]:
    """Turns an exception of a command into error lines and an exit code."""
    from rocketpy.errors import ConnectionFailedError, ProtocolError, RocketPyError

    try:
        yield
        sys.stdout.flush()
    except CommandError as error:
        fail(str(error), error.code, error.hint)
    except ProtocolError as error:
        fail(str(error), code_of(error), error.hint or OTHER_SERVER)
    except RocketPyError as error:
        is_local = isinstance(error, ConnectionFailedError) and f"connect to {DEFAULT_ADDRESS}:" in str(error)
        fail(str(error), code_of(error), NO_LOCAL_SERVER if is_local else error.hint)
    except KeyboardInterrupt:
        raise SystemExit(int(ExitCode.INTERRUPTED)) from None
    except BrokenPipeError:
        # The reader is gone, as in `rocketpy consume ... | head`.
        streams.discard()
        raise SystemExit(int(ExitCode.BROKEN_PIPE)) from None
    except StreamError as error:
        streams.flush()  # what is left of the same failure
        fail(str(error), ExitCode.REFUSED, error.hint)
    except UnicodeEncodeError as error:
        fail(f"text is not valid Unicode: {error.object}", ExitCode.USAGE, NOT_UNICODE)
    except FileNotFoundError as error:
        fail(f"no such file or folder: {error.filename}", ExitCode.NOT_FOUND, "check the path")
    except PermissionError as error:
        fail(f"not permitted: {error.filename}", ExitCode.REFUSED, "check the owner and mode of the path")
    except OSError as error:
        where = "" if error.filename is None else f": {error.filename}"
        fail(f"{error.strerror or error}{where}", ExitCode.REFUSED, "check the path and the disk")
    except Exception as error:
        traceback.print_exception(*loggable(error))
        fail(f"unexpected {type(error).__name__}", ExitCode.FAILURE)


@contextlib.contextmanager
def ended_by_signals() -> Generator[None]:
    """Turns signals into an exception that leaves every `with`, so that the command's server and Spark end too."""
    from rocketpy.spark.session import end_spark

    came: list[signal.Signals] = []

    def leave(number: int, _frame: FrameType | None) -> NoReturn:
        for each in before:
            signal.signal(each, signal.SIG_IGN)  # once is enough
        came.append(signal.Signals(number))
        warnings.simplefilter("ignore")  # Spark's end is expected now
        end_spark()  # so that no call waits for its answer
        raise KeyboardInterrupt

    # An ignored signal, such as SIGHUP under nohup, stays ignored.
    before = {each: signal.getsignal(each) for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN}
    try:
        for each in before:
            signal.signal(each, leave)
        yield
    except BaseException:
        if not came:
            raise
        # Interrupted calls raise errors of their own, such as a lost connection to Spark.
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if came:
        print(f"stopped by {came[0].name} before completion", file=sys.stderr)
        raise SystemExit(int(SIGNALS[came[0]]))
