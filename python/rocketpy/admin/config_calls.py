"""Calls of `Admin` and `AsyncAdmin` about the configuration of running servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rocketpy import _rocketpy
from rocketpy.admin.live_config import ConfigUpdate, typed
from rocketpy.admin.move_calls import MoveCalls
from rocketpy.base.hints import set_hint
from rocketpy.base.names import check_type
from rocketpy.base.signature import shown_as
from rocketpy.base.similar import nearest
from rocketpy.errors import ConfigError, InvalidArgumentError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketpy.admin.live_config import ConfigValue

__all__ = ["ConfigCalls"]


def settings_text(changes: Mapping[str, str | float]) -> dict[str, str]:
    """Values of settings as brokers write them."""
    check_type("changes", changes, Mapping, "a dict by name")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in changes.items()}


def as_wanted(known: ConfigValue, text: str) -> bool | int | str:
    """Value that a dry run would set, of the type of the present one."""
    value = typed(text)
    return value if isinstance(known.value, bool | int) and isinstance(value, bool | int) else text


def key_list(keys: str | Iterable[str]) -> list[str]:
    """Keys as a list; one text is one key."""
    found = [keys] if isinstance(keys, str) else list(keys)
    for key in found:
        check_type("a key", key, str, "a str")
        if not key or ";" in key:
            raise InvalidArgumentError(f"not a key: {key!r}", hint="`rocketpy config show` lists the keys")
    return found


def check_spellings(names: Iterable[str]) -> None:
    """Checks that no key is named twice.

    Raises:
        InvalidArgumentError: Two names are spellings of one key.
    """
    known: dict[str, str] = {}
    for name in names:
        key = proper(name.strip())
        if key in known:
            raise InvalidArgumentError(f"{known[key]} and {name} are the same key: {key}", hint="name the key once")
        known[key] = name


def unknown_key(error: RefusedError, keys: Iterable[str]) -> str | None:
    """Key that a server refused because it does not exist; None for another error."""

    def is_known(key: str) -> bool:
        try:
            return bool(_rocketpy.config_key_name(key))
        except ConfigError:
            return False

    return next((key for key in keys if key in str(error) and not is_known(key)), None)


def hint_of_unknown(key: str) -> str:
    """Hint for a key that does not exist: the most similar one.

    Examples:
        >>> hint_of_unknown("fileReservdTime")
        'did you mean fileReservedTime? If not, `rocketpy config list SERVER` lists the keys of the server'
    """
    near = nearest(key, (one["name"] for one in _rocketpy.config_keys(None, [], False)[0]))
    lists = "`rocketpy config list SERVER` lists the keys of the server"
    return lists if near is None else f"did you mean {near}? If not, {lists}"


def proper(key: str) -> str:
    """Proper name of a key; the key itself if only Apache's server knows it."""
    try:
        return _rocketpy.config_key_name(key)
    except ConfigError:
        return key


@shown_as("AsyncAdmin")
class ConfigCalls(MoveCalls):
    """Calls about configuration, written once for threads and event loops: see `AdminCalls`."""

    __slots__ = ()

    async def config(self, server: str) -> list[ConfigValue]:
        """Every key of a running broker or name server, sorted by name, with the layer of its value.

        Layers, the last wins: defaults, file, environment, live values, command line.

        Args:
            server: Name or `host:port` of the broker, or `host:port` of the name server.

        Raises:
            BrokerNotFoundError: No broker of that name is registered.
            ConnectionFailedError: The server cannot be reached. A retry is safe.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     found = {one.key: one for one in admin.config("broker-a")}
            ...     key = found["fileReservedTime"]
            ...     key.value, key.origin, key.needs_restart, found["maxTopics"].needs_restart
            (72, 'default', False, True)
        """
        return await self._ask(self._native_admin().config, server)

    async def set_config(
        self, server: str, changes: Mapping[str, str | float], *, at_restart: bool = False, dry_run: bool = False
    ) -> ConfigUpdate:
        """Sets live values of a running broker or name server, all or none. The call may be repeated.

        Live values are in force at once and after restarts. They override file and environment; the command line
        overrides them. An Apache broker writes the values into its file, and ignores unknown names.

        Args:
            server: As for `config`.
            changes: The new value of each key, with a unit if you like (`"10MB"`); True and False as `true` and
                `false`.
            at_restart: Whether to accept keys that take effect at the next start.
            dry_run: Whether to check the change only.

        Raises:
            InvalidArgumentError: Two names are spellings of one key.
            RefusedError: A name is unknown, a value is invalid, or a key cannot be set: the message names it. Nothing
                was changed.
            NotSupportedError: `at_restart` or `dry_run` at an Apache server.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     update = admin.set_config("broker-a", {"fileReservedTime": 48})
            ...     [(one.key, one.value, one.origin) for one in update.values]
            ...     [(one.value, one.origin) for one in admin.unset_config("broker-a", "fileReservedTime").values]
            [('fileReservedTime', 48, 'live')]
            [(72, 'default')]
        """
        texts = settings_text(changes)
        check_spellings(texts)
        return await self._change(server, texts, [], list(texts), at_restart, dry_run)

    async def unset_config(self, server: str, keys: str | Iterable[str], *, dry_run: bool = False) -> ConfigUpdate:
        """Removes live values: the value of the lower layer is in force at once. The call may be repeated.

        Args:
            server: As for `config`.
            keys: Key, or keys.
            dry_run: Whether to check the change only.

        Raises:
            RefusedError: A name is unknown. Nothing was changed.
            NotSupportedError: An Apache server has no live values.
        """
        names = key_list(keys)
        return await self._change(server, {}, names, names, False, dry_run)

    async def _change(
        self, server: str, texts: dict[str, str], unset: list[str], keys: list[str], at_restart: bool, dry_run: bool
    ) -> ConfigUpdate:
        try:
            note = await self._ask(self._native_admin().change_config, server, texts, unset, at_restart, dry_run)
        except RefusedError as error:
            if (key := unknown_key(error, keys)) is not None:
                set_hint(error, hint_of_unknown(key))
            raise
        wanted = {proper(key) for key in keys}
        values = [one for one in await self.config(server) if one.key in wanted]
        if dry_run:
            asked = {proper(key): text for key, text in texts.items()}
            values = [replace(one, value=as_wanted(one, asked[one.key])) if one.key in asked else one for one in values]
        return ConfigUpdate(tuple(values), note)

    async def broker_config(self, address: str) -> dict[str, str]:
        """Settings of one broker, as text by Apache's names: `brokerName`, `flushDiskType` and others.

        `config` has them typed, with the layer of each.

        Args:
            address: Name or `host:port` of the broker; see `brokers`.
        """
        return await self._ask(self._native_admin().broker_config, address)

    async def update_broker_config(self, address: str, changes: Mapping[str, str | float]) -> None:
        """Changes settings of one broker while it runs, by Apache's names: `set_config` without its options.

        Args:
            address: Name or `host:port` of the broker; see `brokers`.
            changes: The new value of each setting; True and False as `true` and `false`.

        Raises:
            RefusedError: A name is unknown, a value is invalid, or a setting cannot change while the broker runs.
                Nothing was changed.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.update_broker_config("broker-a", {"transactionCheckMax": 20})
            ...     admin.broker_config("broker-a")["transactionCheckMax"]
            '20'
        """
        await self._ask(self._native_admin().update_broker_config, address, settings_text(changes))
