"""Masked fields: rules of the console's configuration hide bodies, fields of JSON bodies and properties by topic."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from rocketpy.console.filters import FilterError
from rocketpy.console.json_text import MASKED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rocketpy.console.filters import Filter, Path

__all__ = ["Mask", "MaskRule", "mask_of"]

HIDDEN = MASKED.strip('"')
PROPERTY_OF = {"tag": "TAGS", "key": "KEYS"}
"""Properties that hold the tag and the keys."""


@dataclass(frozen=True, slots=True)
class MaskRule:
    """Rule of the configuration.

    Args:
        topics: Pattern of topic names with `*` and `?`.
        hides_body: Whether the whole body is hidden.
        paths: Paths of hidden fields in JSON bodies: `customer.card`. Lists do not count: `items.price` is the price of
            each element.
        properties: Names of hidden properties; `TAGS` and `KEYS` are the tag and the keys.
        open_to: Roles that see the fields nevertheless.
    """

    topics: str
    hides_body: bool = False
    paths: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    open_to: tuple[str, ...] = ("admin",)


@dataclass(frozen=True, slots=True)
class Mask:
    """What a visitor may not see of the messages of one topic."""

    hides_body: bool = False
    paths: frozenset[tuple[str, ...]] = frozenset()
    names: frozenset[str] = frozenset()
    """Names of hidden properties."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is hidden."""
        return not (self.hides_body or self.paths or self.names)

    @property
    def has_paths(self) -> bool:
        """Whether fields of JSON bodies are hidden."""
        return bool(self.paths)

    def is_masked(self, path: tuple[str, ...]) -> bool:
        """Whether the value of a path in a JSON body is hidden."""
        return path in self.paths

    def text(self, name: str, value: str) -> str:
        """Value of a property, or `•••`."""
        return HIDDEN if name in self.names else value

    def properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Properties with `•••` for hidden values."""
        return {name: self.text(name, value) for name, value in properties.items()}

    def check(self, tested: Filter) -> None:
        """Refuses a filter that tests a hidden field: its hits would tell the value.

        Raises:
            FilterError: The filter tests a hidden field.
        """
        for path in tested.paths:
            if self._hides(path):
                raise FilterError(f"your role may not test `{path}`", path.at)

    def hides_search(self, root: str) -> bool:
        """Whether a search by `tag` or `key` would tell a hidden value."""
        return PROPERTY_OF[root] in self.names

    def _hides(self, path: Path) -> bool:
        if path.root in PROPERTY_OF:
            return PROPERTY_OF[path.root] in self.names
        if path.root == "properties":
            return str(path.steps[0]) in self.names
        if self.hides_body or (self.paths and not path.steps):
            return True
        names = tuple(step for step in path.steps if isinstance(step, str))
        return any(names[: len(masked)] == masked[: len(names)] for masked in self.paths)


def mask_of(rules: Iterable[MaskRule], topic: str, role: str = "") -> Mask:
    """Mask of a topic for a role, by the rules whose pattern matches its name.

    Args:
        rules: Rules of the configuration.
        topic: Name of the topic.
        role: Role of the visitor.

    Examples:
        >>> mask = mask_of([MaskRule("shop-*", paths=("customer.card",), properties=("token",))], "shop-orders")
        >>> mask.properties({"token": "s3cret", "region": "eu"})
        {'token': '•••', 'region': 'eu'}
    """
    matching = [rule for rule in rules if fnmatchcase(topic, rule.topics) and role not in rule.open_to]
    return Mask(
        any(rule.hides_body for rule in matching),
        frozenset(tuple(path.split(".")) for rule in matching for path in rule.paths),
        frozenset(name for rule in matching for name in rule.properties),
    )
