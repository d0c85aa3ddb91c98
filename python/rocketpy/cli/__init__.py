"""The command `rocketpy`.

`server`, `namesrv` and `broker` start before typer and rich are imported; the reason is in
`docs/decisions/server-commands-start-first.md`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code (`docs/operations.md` lists them)."""
    is_process = arguments is None
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:  # Ctrl-C may come while modules are imported
        from rocketpy.cli.flags import BROKER_VERBS, COMMANDS
        from rocketpy.commandline import streams

        is_verb = arguments[:1] == ["broker"] and arguments[1:2] in [[verb] for verb in BROKER_VERBS]
        is_start = bool(arguments) and arguments[0] in COMMANDS and not is_verb
        is_server = is_start and not {"--help", "-h"}.intersection(arguments)
        if is_process:
            streams.prepare(is_server=is_server)
        if is_server:
            from rocketpy.cli import serve

            return serve.run(arguments)
        from rocketpy.cli import app

        return app.run(arguments)
    except KeyboardInterrupt:
        return 130
