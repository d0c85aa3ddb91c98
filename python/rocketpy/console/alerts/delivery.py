"""Delivery of notifications: each channel by itself, at least once, with growing pauses while its receiver fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rocketpy.base.clock import monotonic
from rocketpy.base.failure import text_of
from rocketpy.base.text import printable
from rocketpy.console.alerts.webhook import DeliveryError
from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketpy.console.alerts.records import Channel, Notice
    from rocketpy.console.alerts.store import AlertStore

logger = logging.getLogger("rocketpy.console")

BATCH = 50
"""Maximum number of notifications in one call or mail."""
FIRST_PAUSE, MAX_PAUSE = 1.0, 300.0
"""Pause after the first failure, and the maximum pause, in seconds."""
IDLE_SECONDS = 60.0
"""Maximum sleep without a new notification, in seconds."""


class Sink(Protocol):
    """Receiver of notifications."""

    def send(self, notices: Sequence[Notice], cluster: str) -> None:
        """Sends notifications, or raises a `DeliveryError`. Runs in a thread."""
        ...


@dataclass(slots=True)
class ChannelState:
    """How the deliveries of a channel go."""

    failures: int = 0
    """Number of failures in a row."""
    error: str | None = None
    """Reason of the last failure; None after a success."""
    next_at: float = 0.0
    """Time of the next attempt, by the clock of the delivery."""
    is_busy: bool = False


def pause_after(failures: int, spread: float = 1.0) -> float:
    """Pause after failures in a row, in seconds.

    Args:
        failures: Number of failures, from 1.
        spread: Random factor, 0.8 to 1.2, so that consoles do not retry in step.

    Examples:
        >>> [pause_after(count) for count in (1, 2, 3, 9, 100)]
        [1.0, 2.0, 4.0, 256.0, 300.0]
    """
    return min(MAX_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 20)) * spread


class Delivery:
    """Delivers the notifications of a store.

    Args:
        store: Store of the notifications.
        sink_of: Makes the sink of a channel; may raise an `InvalidArgumentError`.
        cluster: Gives the name of the cluster.
        clock: Gives the time in seconds, for pauses.
    """

    def __init__(
        self,
        store: AlertStore,
        sink_of: Callable[[Channel], Sink],
        cluster: Callable[[], str] = str,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._store, self._sink_of, self._cluster, self._clock = store, sink_of, cluster, clock
        self._states: dict[str, ChannelState] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()

    def state(self, channel: str) -> ChannelState:
        """How the deliveries of a channel go."""
        return self._states.setdefault(channel, ChannelState())

    def wake(self) -> None:
        """Says that there are new notifications."""
        self._wake.set()

    def retry_now(self, channel: str) -> None:
        """Ends the pause of a channel, after a change of it or on demand."""
        self._states[channel] = ChannelState(is_busy=self.state(channel).is_busy)
        self.wake()

    async def run(self) -> None:
        """Delivers until it is cancelled."""
        try:
            while True:
                self._wake.clear()
                pause = self.start_due()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), pause)
        finally:
            for task in self._tasks:
                task.cancel()

    def start_due(self) -> float:
        """Starts the deliveries that are due, and returns the seconds until the next one."""
        now, pause = self._clock(), IDLE_SECONDS
        for channel in self._store.channels:
            state = self.state(channel.name)
            if state.is_busy or not self._store.notices(channel.name, 1):
                continue
            if state.next_at > now:
                pause = min(pause, state.next_at - now)
                continue
            state.is_busy = True
            task = asyncio.create_task(self._deliver(channel))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return max(pause, 0.01)

    async def test(self, channel: Channel, notice: Notice) -> None:
        """Sends one notification now, without the queue.

        Raises:
            DeliveryError: The receiver did not accept it.
        """
        try:
            sink = self._sink_of(channel)
        except InvalidArgumentError as error:
            raise DeliveryError(str(error)) from None
        await in_thread(lambda: sink.send([notice], self._cluster()))

    async def _deliver(self, channel: Channel) -> None:
        state = self.state(channel.name)
        try:
            notices = self._store.notices(channel.name, BATCH)
            sink = self._sink_of(channel)
            await in_thread(lambda: sink.send(notices, self._cluster()))
            await asyncio.to_thread(self._store.delivered, notices)
        except (DeliveryError, InvalidArgumentError) as error:
            self._failed(state, channel.name, str(error))
        except Exception as error:  # a defect of a sink must not end the others
            self._failed(state, channel.name, text_of(error))
        else:
            state.failures, state.error, state.next_at = 0, None, 0.0
        finally:
            state.is_busy = False
            current = self._states.get(channel.name)
            if current is not None:
                current.is_busy = False  # `retry_now` may have replaced the state
            self.wake()

    def _failed(self, state: ChannelState, channel: str, reason: str) -> None:
        state.failures += 1
        state.error = printable(reason)
        state.next_at = self._clock() + pause_after(state.failures, random.uniform(0.8, 1.2))
        if state.failures == 1:
            logger.warning("notification not delivered: channel %s: %s", printable(channel), state.error)


async def in_thread(call: Callable[[], None]) -> None:
    """Runs a blocking call in a thread that does not delay the end of the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish(error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        outcome: BaseException | None = None
        try:
            call()
        except BaseException as error:
            outcome = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(finish, outcome)

    threading.Thread(target=run, name="rocketpy-console-delivery", daemon=True).start()
    await done
