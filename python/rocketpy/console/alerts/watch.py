"""Watch of a cluster: applies the rules to each snapshot, stores the outcome and delivers notifications."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from rocketpy.base.failure import text_of
from rocketpy.base.instant import now_ms
from rocketpy.console.alerts.delivery import Delivery
from rocketpy.console.alerts.engine import Engine, Moment, Step
from rocketpy.console.alerts.readings import readings_of
from rocketpy.console.alerts.records import Channel, Notice, Silence
from rocketpy.console.alerts.rules import Rule, new_id
from rocketpy.console.alerts.smtp import SERVER, Mail, addresses, mail_server_of
from rocketpy.console.alerts.webhook import Webhook, parsed
from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from rocketpy.console.alerts.delivery import Sink
    from rocketpy.console.alerts.records import Alert
    from rocketpy.console.alerts.smtp import MailServer
    from rocketpy.console.alerts.store import AlertStore
    from rocketpy.console.snapshot import Snapshot

logger = logging.getLogger("rocketpy.console")

KEPT_SILENCES_MS = 7 * 24 * 3600 * 1000
"""Time for which silences stay listed after their end."""


class AlertWatch:
    """Alerts of one cluster.

    Args:
        store: Store of rules and history.
        mail: Mail server; None: mail channels fail.
        is_on: Whether the rules are evaluated and notifications sent.
        context: TLS settings of webhooks and mail, for tests.
        clock: Gives the time in milliseconds since 1970 UTC.

    Raises:
        InvalidArgumentError: The environment names a mail server that cannot be used.
    """

    def __init__(
        self,
        store: AlertStore,
        *,
        mail: MailServer | None = None,
        is_on: bool = True,
        context: ssl.SSLContext | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self.store, self.is_on = store, is_on
        self.mail = mail or mail_server_of(os.environ)
        self.failure: str | None = None
        """Reason why the last snapshot was not evaluated; None if it was."""
        self._context, self._clock, self._cluster = context, clock, ""
        self._engine = Engine(store.alerts, store.counts, store.brokers)
        self._lock = asyncio.Lock()
        self.delivery = Delivery(store, self.sink_of, lambda: self._cluster)
        self._delivering: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts the delivery."""
        if self.is_on:
            self._delivering = asyncio.create_task(self.delivery.run())

    async def close(self) -> None:
        """Ends the delivery and closes the store."""
        if self._delivering is not None:
            self._delivering.cancel()
            with suppress(asyncio.CancelledError):
                await self._delivering
        await asyncio.to_thread(self.store.close)

    @property
    def alerts(self) -> list[Alert]:
        """Alerts that are pending or firing, the oldest first."""
        return sorted(self._engine.alerts, key=lambda one: (one.since_ms, one.rule_id, one.subject))

    @property
    def active(self) -> int:
        """Number of alerts that fire and are not silenced."""
        return sum(one.phase == "firing" and not self.is_silenced(one) for one in self._engine.alerts)

    @property
    def not_tracked(self) -> int:
        """Number of subjects over the maximum of alerts."""
        return self._engine.not_tracked

    def now(self) -> int:
        """Time in milliseconds since 1970 UTC."""
        return self._clock()

    def rule(self, rule_id: str) -> Rule | None:
        """Rule of an id."""
        return next((rule for rule in self.store.rules if rule.id == rule_id), None)

    def is_silenced(self, alert: Alert) -> bool:
        """Whether an alert is silenced now."""
        return any(one.covers(alert.rule_id, alert.subject, self._clock()) for one in self.store.silences)

    def sink_of(self, channel: Channel) -> Sink:
        """Sink of a channel.

        Raises:
            InvalidArgumentError: The channel cannot be used.
        """
        if channel.kind == "webhook":
            return Webhook(channel.target, context=self._context)
        if self.mail is None:
            raise InvalidArgumentError("console has no mail server", hint=f"set {SERVER} for the console")
        return Mail(self.mail, channel.target, context=self._context)

    async def look(self, snapshot: Snapshot) -> None:
        """Applies the rules to a snapshot. A defect is logged: the collector continues."""
        if not self.is_on:
            return
        try:
            self._cluster = snapshot.cluster or self._cluster
            async with self._lock:
                step = self._engine.step(readings_of(snapshot), self.store.rules, self._moment())
                await self._commit(step)
            self.failure = None
        except Exception as error:
            if self.failure is None:
                logger.exception("rules not evaluated")
            self.failure = text_of(error)

    async def put_rule(self, rule: Rule) -> None:
        """Creates or changes a rule. Alerts of a rule end if it watches something else now.

        Raises:
            InvalidArgumentError: There are too many rules.
            ConfigError: The store cannot be written.
        """
        async with self._lock:
            before = self.rule(rule.id)
            await asyncio.to_thread(self.store.put, rule)
            watched = before and (before.condition, before.subject, before.is_enabled)
            if before is not None and watched != (rule.condition, rule.subject, rule.is_enabled):
                await self._commit(self._engine.end_rule(before, self._moment()))

    async def delete_rule(self, rule: Rule) -> None:
        """Deletes a rule and ends its alerts.

        Raises:
            ConfigError: The store cannot be written.
        """
        async with self._lock:
            await asyncio.to_thread(self.store.delete, rule)
            await self._commit(self._engine.end_rule(rule, self._moment()))

    async def put_silence(self, silence: Silence) -> None:
        """Creates or changes a silence, and removes those that ended long ago."""
        async with self._lock:
            for one in self.store.silences:
                if one.until_ms < self._clock() - KEPT_SILENCES_MS:
                    await asyncio.to_thread(self.store.delete, one)
            await asyncio.to_thread(self.store.put, silence)

    async def end_silence(self, silence: Silence) -> None:
        """Ends a silence now; one that has not begun is deleted."""
        async with self._lock:
            now = self._clock()
            if silence.from_ms >= now:
                await asyncio.to_thread(self.store.delete, silence)
            elif silence.until_ms > now:
                await asyncio.to_thread(self.store.put, replace(silence, until_ms=now))

    async def put_channel(self, channel: Channel) -> None:
        """Creates or changes a channel.

        Raises:
            InvalidArgumentError: Its target is refused, or there are too many channels.
        """
        check_target(channel)
        async with self._lock:
            await asyncio.to_thread(self.store.put, channel)
        self.delivery.retry_now(channel.name)

    async def delete_channel(self, channel: Channel) -> None:
        """Deletes a channel and what waits for it.

        Raises:
            InvalidArgumentError: Rules name the channel.
        """
        async with self._lock:
            users = [rule.name for rule in self.store.rules if rule.channel == channel.name]
            if users:
                raise InvalidArgumentError(
                    f"cannot delete channel {channel.name}: rule {users[0]} uses it", hint="change the rule first"
                )
            await asyncio.to_thread(self.store.delete, channel)

    async def forget_broker(self, name: str) -> None:
        """Forgets a broker that was removed on purpose."""
        async with self._lock:
            await self._commit(self._engine.forget_broker(name))

    async def test(self, channel: Channel) -> None:
        """Sends a test to a channel.

        Raises:
            DeliveryError: The receiver did not accept it.
        """
        now = self._clock()
        text = f"Test of channel {channel.name}: nothing is wrong."
        await self.delivery.test(
            channel, Notice(new_id(), now, "test", channel.name, "", "Test", "test", "", 0, 0, now, text)
        )

    def _moment(self) -> Moment:
        return Moment(self._clock(), self.store.silences, [one.name for one in self.store.channels])

    async def _commit(self, step: Step) -> None:
        if not step:
            return
        await asyncio.to_thread(self.store.commit, step)
        if step.notices:
            self.delivery.wake()


def check_target(channel: Channel) -> None:
    """Checks the URL or the addresses of a channel.

    Raises:
        InvalidArgumentError: They are refused.
    """
    if channel.kind == "webhook":
        parsed(channel.target)
    else:
        addresses(channel.target)
