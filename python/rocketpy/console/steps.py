"""Changes in three steps: a form, a preview with the same command, and the result read back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketpy.console import commands
from rocketpy.console.view import FormError

if TYPE_CHECKING:
    from starlette.responses import Response

    from rocketpy.console.view import View

__all__ = ["Check", "Preview", "Row", "check_typed", "command_line", "is_preview", "shown_preview"]


@dataclass(frozen=True, slots=True)
class Row:
    """Line of a preview."""

    name: str
    before: str | None
    """Value now; None without one."""
    after: str | None
    """Value after the change; None if it ends."""
    error: str | None = None
    """Reason why this part would fail."""


@dataclass(frozen=True, slots=True)
class Check:
    """Condition of a change."""

    is_met: bool
    text: str


@dataclass(frozen=True, slots=True)
class Preview:
    """Page between a form and its change."""

    title: str
    label: str
    """Text of the button: the action and the object."""
    action: str
    """Address of the form."""
    back: str
    """Address without a change."""
    rows: tuple[Row, ...] = ()
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences about the effect."""
    command: str = ""
    """Command line with the same effect; empty without one."""
    fields: dict[str, str] = field(default_factory=dict[str, str])
    """Values that the second step needs."""
    typed: str = ""
    """Name to type before the button works; empty for none."""
    secret: str = ""
    """Label of a secret that the second step may need; empty for none."""
    is_danger: bool = False


def is_preview(form: dict[str, str]) -> bool:
    """Whether a form asks for the preview: a change needs `step=apply`, from scripts too."""
    return form.get("step") != "apply"


def shown_preview(view: View, preview: Preview) -> Response:
    """Answers with a preview."""
    return view.answer("preview.html", preview)


def check_typed(form: dict[str, str], name: str) -> None:
    """Checks the name that the visitor typed.

    Raises:
        FormError: It is another one.
    """
    if form.get("typed") != name:
        raise FormError(f"type the name to confirm: {name}")


def command_line(view: View, *words: str) -> str:
    """Command line with the same effect, against this cluster.

    Args:
        view: The request.
        words: Command, options and arguments.
    """
    return commands.command_line(map(commands.quoted, words), (), {}, view.console.settings.name_servers)
