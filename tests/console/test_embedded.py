"""Console beside a server in one process: a console that cannot start says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketpy.console import Settings
from rocketpy.console.embedded import EmbeddedConsole
from rocketpy.errors import ServerError

if TYPE_CHECKING:
    from pathlib import Path


def test_console_that_cannot_start_raises_its_reason(tmp_path: Path):
    data = tmp_path / "data"
    data.write_text("a file, where the folder should be")
    console = EmbeddedConsole(Settings("127.0.0.1:1", data=data))
    with pytest.raises(ServerError, match="cannot start console: ") as error, console:
        pass
    assert error.value.__cause__ is not None
