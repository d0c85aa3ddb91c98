"""Masks of dead letters: the rules of the original topic and of the dead-letter topic hold together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketpy.base.message_facts import letter_facts
from rocketpy.console.jobs import JobRefusedError
from rocketpy.console.masking import HIDDEN, Mask, mask_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from rocketpy.admin.dead_letters import DeadLetter
    from rocketpy.console.masking import MaskRule

__all__ = ["LetterMasks"]

KEYS, TAG, ERROR = "KEYS", "TAGS", "DLQ_ERROR"


class LetterMasks:
    """Rules for one role.

    Args:
        rules: Rules of the configuration.
        role: Role of the visitor.
    """

    def __init__(self, rules: Iterable[MaskRule], role: str) -> None:
        self._rules = tuple(rule for rule in rules if role not in rule.open_to)
        self._role = role
        self._known: dict[tuple[str, str | None], Mask] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no rule holds for the role."""
        return not self._rules

    @property
    def hides_keys(self) -> bool:
        """Whether a rule hides keys: a filter by key would tell them."""
        return any(KEYS in rule.properties for rule in self._rules)

    def of(self, letter: DeadLetter) -> Mask:
        """Mask of one letter."""
        topics = letter.message.topic, letter.topic
        if topics not in self._known:
            parts = [mask_of(self._rules, one, self._role) for one in topics if one is not None]
            self._known[topics] = Mask(
                any(one.hides_body for one in parts),
                frozenset[tuple[str, ...]]().union(*(one.paths for one in parts)),
                frozenset[str]().union(*(one.names for one in parts)),
            )
        return self._known[topics]

    def hides_error(self, letter: DeadLetter) -> bool:
        """Whether the error of the handler is hidden: it may quote the body."""
        mask = self.of(letter)
        return mask.hides_body or mask.has_paths or ERROR in mask.names

    def properties(self, letter: DeadLetter) -> dict[str, str]:
        """Properties of a letter as the role may see them."""
        found = self.of(letter).properties(letter.message.properties)
        if self.hides_error(letter) and ERROR in found:
            found[ERROR] = HIDDEN
        return found

    def facts(self, letter: DeadLetter) -> dict[str, Any]:
        """Fields of a letter for the export. A body with hidden fields is left out as a whole."""
        facts, mask = letter_facts(letter), self.of(letter)
        if mask.is_empty:
            return facts
        facts["properties"] = self.properties(letter)
        facts["tag"] = facts["tag"] and mask.text(TAG, facts["tag"])
        facts["keys"] = [HIDDEN] if KEYS in mask.names and facts["keys"] else facts["keys"]
        if self.hides_error(letter):
            facts["error"] = facts["error"] and HIDDEN
        if mask.hides_body or mask.has_paths:
            facts.pop("body_base64", None)
            facts |= {"body": None, "body_error": "hidden by a rule of the console"}
        return facts

    async def copyable(self, letters: AsyncIterator[DeadLetter], to: str | None) -> AsyncIterator[DeadLetter]:
        """The same letters. Refuses one with hidden fields whose copy another topic would show.

        Raises:
            JobRefusedError: A letter has hidden fields, and its target is not its original topic.
        """
        async for letter in letters:
            if to is not None and to != letter.topic and not self.of(letter).is_empty:
                text = (
                    f"cannot resend {letter.message.msg_id} to topic {to}: some of its fields are hidden from your role"
                )
                raise JobRefusedError(text, hint="resend it to its original topic")
            yield letter
