"""Configuration of running brokers and name servers: keys with the layers of their values."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ConfigUpdate", "ConfigValue"]


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A key of a running broker or name server."""

    key: str
    value: bool | int | str | tuple[str, ...] | None
    """Value in force, in the unit of the key; None if it is not set. Values of an Apache server are texts."""
    default: bool | int | str | tuple[str, ...] | None
    """Default value."""
    origin: str
    """Layer of the value: `default`, `Apache's default`, `file`, `environment`, `live` or `command line`; empty at an
    Apache server."""
    source: str | None
    """File or variable of the layer; None for the others."""
    live_value: str | None
    """Live value as text; None without one. It is not in force while the command line sets the key, or before a
    restart."""
    can_set: bool
    """Whether the key may have a live value. Keys of identity, files, addresses and secrets may not."""
    needs_restart: bool
    """Whether a change takes effect at the next start."""
    is_used: bool
    """Whether the key has an effect; false for Apache's keys without a meaning here."""

    @property
    def is_live(self) -> bool:
        """Whether the key has a live value."""
        return self.live_value is not None


@dataclass(frozen=True, slots=True)
class ConfigUpdate:
    """Outcome of a change of live values."""

    values: tuple[ConfigValue, ...]
    """The named keys after the change; after a dry run as they were."""
    note: str | None
    """Note of the server, such as keys that wait for a restart; None without one."""


def typed(text: str) -> str | float:
    """Converts a figure of a broker.

    Examples:
        >>> typed("12"), typed("0.42"), typed("true"), typed("0.0 1.5 2.0"), typed("007")
        (12, 0.42, True, '0.0 1.5 2.0', '007')
    """
    if text in {"true", "false"}:
        return text == "true"
    for kind in (int, float):
        try:
            number: int | float = kind(text)
        except ValueError:
            continue
        if str(number) == text and text not in {"nan", "inf", "-inf"}:
            return number
    return text
