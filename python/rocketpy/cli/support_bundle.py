"""`rocketpy support-bundle`."""

import importlib.metadata
import io
import itertools
import json
import os
import platform
import sys
import tarfile
import tomllib
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketpy import Admin, ConsumerRunningInfo, GroupNotFoundError, InvalidArgumentError, RocketPyError
from rocketpy.base.instant import now_ms
from rocketpy.base.text import printable
from rocketpy.cli.doctor import CHECKS, Subject, outcome_of
from rocketpy.cli.flags import COMMANDS
from rocketpy.cli.options import FIGURES, LOCAL, Json, NameServer
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.commandline.regular_files import opened
from rocketpy.commandline.secrets import masked, masked_arguments, masked_lines, masked_text, masked_toml

DISTRIBUTIONS = ("rocketpy-mq", "rich", "typer", "pyarrow", "pyspark", "pandas", "polars", "opentelemetry-api")
VARIABLES = ("NAMESRV_ADDR", "ROCKETPY_", "RUST_LOG", "TZ", "LANG", "LC_ALL")
"""Beginnings of the names of environment variables that change what RocketPy does."""
LOG_BYTES = 4 << 20
"""Maximum size of the end of a log that is read."""
CONFIG_BYTES = 1 << 20
"""Maximum size of a configuration file."""
CONTENTS = "contents.txt"
CONCURRENT_GROUPS = 8
"""Maximum number of groups whose members are requested at a time."""
NO_STACKS = "no stacks reported by this client"
SERVER_COMMANDS = {("rocketpy", name) for name in COMMANDS}
"""Words of the command line of a server, one after the other."""
ALWAYS_MISSING = {
    "bodies, keys and properties of messages": "a bundle never has them",
    "stacks of producers": "the protocol has no request for them; stacks.txt has those of consumers",
    "stacks of servers within RocketPy": "a running server does not report them; threads.json has its threads",
}
"""Parts that no bundle contains, with the reason."""


class Bundle:
    """Files of an archive, and the parts that could not be collected."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.files: dict[str, bytes] = {}
        self.contents: dict[str, str] = {}
        self.missing: dict[str, str] = {}

    def add_json(self, path: str, about: str, collect: Callable[[], Any]) -> None:
        """Adds a file with JSON, without secrets; a failure becomes a missing part."""
        with self.part(path):
            self.add(path, about, json.dumps(masked(output.plain(collect())), indent=2) + "\n")

    def add(self, path: str, about: str, text: str) -> None:
        """Adds a file whose text has no secrets."""
        self.files[path], self.contents[path] = text.encode(errors="replace"), about

    @contextmanager
    def part(self, path: str) -> Generator[None]:
        """Records a failure within as a missing part: the bundle as a whole never fails."""
        try:
            yield
        except RocketPyError as error:
            self.missing[path] = masked_text(str(error))
        except Exception as error:
            self.missing[path] = masked_text(f"{type(error).__name__}: {error}")

    def write(self, file: Path) -> None:
        """Writes the archive; only its owner may read it."""
        self.contents[CONTENTS] = "this list"
        self.add(CONTENTS, "this list", self.listing())
        made_at = now_ms() // 1000
        part = file.with_name(f"{file.name}.part")
        part.unlink(missing_ok=True)
        try:
            with (
                os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream,
                tarfile.open(fileobj=stream, mode="w:gz") as archive,
            ):
                for path, data in sorted(self.files.items()):
                    member = tarfile.TarInfo(f"{self.name}/{path}")
                    member.size, member.mtime, member.mode = len(data), made_at, 0o600
                    archive.addfile(member, io.BytesIO(data))
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)

    def listing(self) -> str:
        """Returns the text of the contents and of the missing parts."""
        found = [f"{path}: {about}" for path, about in sorted(self.contents.items())]
        absent = [f"{path}: {why}" for path, why in (self.missing | ALWAYS_MISSING).items()]
        masks = "Values whose names contain secret, passphrase, password, pwd, token, key or credential are ***."
        lines = [self.name, "", "Contents:", *found, "", masks, "", "Not included:", *absent]
        return "".join(f"{printable(line)}\n" for line in lines)


def support_bundle(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Archive to write (.tar.gz); default: a name with the time.")
    ] = None,
    logs: Annotated[
        list[Path] | None,
        typer.Option("--log", metavar="PATH", help="Log file, or a folder with *.log files; may be repeated."),
    ] = None,
    configs: Annotated[
        list[Path] | None,
        typer.Option("--config", metavar="FILE", help="Configuration file of a server; may be repeated."),
    ] = None,
    lines: Annotated[int, typer.Option("--lines", min=1, max=1_000_000, help="Last lines of each log.")] = 1000,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Collect versions, configuration, logs and status for a bug report, without message bodies and secrets.

    A broker that does not answer, or a missing log, is named in the list of missing parts.
    """
    name = f"rocketpy-support-{datetime.fromtimestamp(now_ms() / 1000, UTC):%Y%m%d-%H%M%S}"
    file = file or Path(f"{name}.tar.gz")
    if file.exists():
        raise CommandError(f"{file} already exists", ExitCode.USAGE, "choose another name for the archive")
    if not file.parent.is_dir():
        raise CommandError(f"no such folder: {file.parent}", ExitCode.NOT_FOUND, "create it, or choose another path")
    bundle = Bundle(name)
    with output.STDERR.status("collecting"):
        add_machine(bundle, name_server)
        for path in configs or []:
            add_config(bundle, path)
        for path in logs or []:
            add_logs(bundle, path, lines)
        add_cluster(bundle, name_server)
    bundle.write(file)
    size = file.stat().st_size
    if as_json:
        facts = {
            "file": str(file),
            "bytes": size,
            "contents": bundle.contents,
            "missing": bundle.missing | ALWAYS_MISSING,
        }
        output.show_one(facts, as_json=True)
        return
    print(bundle.listing())
    print(printable(f"{file}: {output.counted(size, 'byte')}"))


def add_machine(bundle: Bundle, name_server: str) -> None:
    """Adds versions, environment and the checks of `rocketpy doctor`."""
    bundle.add_json("versions.json", "versions of RocketPy, Python, system and packages", versions)
    bundle.add_json("environment.json", "environment variables of RocketPy", environment)
    subject = Subject(Path(), name_server)
    checks = "checks of this machine, as `rocketpy doctor` makes them"
    with bundle.part("doctor.json"):
        outcomes = {name: outcome_of(check, subject)._asdict() for name, check in CHECKS.items()}
        bundle.add_json("doctor.json", checks, lambda: outcomes)
    threads = "threads of the servers on this machine: state, processor time, kernel function"
    bundle.add_json("threads.json", threads, local_servers)


def versions() -> dict[str, Any]:
    """Returns the versions of all parts."""
    from rocketpy import __version__
    from rocketpy._rocketpy import __commit__, __profile__

    packages: dict[str, str | None] = {}
    for name in DISTRIBUTIONS:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = None
    return {
        "rocketpy": __version__,
        "commit": __commit__,
        "profile": __profile__,
        "python": sys.version,
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "packages": packages,
    }


def environment() -> dict[str, str]:
    """Returns the environment variables that change what RocketPy does."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)}


def local_servers() -> list[dict[str, Any]]:
    """Returns the servers that run as commands on this machine, with their threads.

    Raises:
        CommandError: None is found, or the system has no `/proc`.
    """
    found = [server_of(path) for path in sorted(Path("/proc").glob("[0-9]*"))]
    if not any(found):
        raise CommandError("no process of `rocketpy server`, `broker` or `namesrv` on this machine", ExitCode.NOT_FOUND)
    return [one for one in found if one]


def server_of(process: Path) -> dict[str, Any] | None:
    """Returns a server process with its threads; None for another or an ended process."""
    try:
        command = [os.fsdecode(word) for word in (process / "cmdline").read_bytes().split(b"\0")[:-1]]
        names = [Path(word).name for word in command]
        if not any(pair in SERVER_COMMANDS for pair in itertools.pairwise(names)):
            return None
        threads = [thread for path in sorted((process / "task").iterdir()) if (thread := thread_of(path))]
    except OSError:
        return None
    return {"pid": int(process.name), "command": masked_arguments(command), "threads": threads}


def thread_of(task: Path) -> dict[str, Any] | None:
    """Returns the state of a thread, or None if it has ended. Its kernel function may be hidden from other users."""
    try:
        name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
        waits_in = (task / "wchan").read_text().strip("0")
    except OSError:
        return None
    fields = rest.split()
    return {"name": name, "state": fields[0], "ticks": int(fields[11]) + int(fields[12]), "waits_in": waits_in or None}


def add_config(bundle: Bundle, path: Path) -> None:
    """Adds a configuration file of a server, without secrets."""
    name = free_name(bundle, "configuration", path)
    with bundle.part(name):
        with opened(path) as stream:
            data = stream.read(CONFIG_BYTES + 1)
        if len(data) > CONFIG_BYTES:
            raise InvalidArgumentError(f"configuration exceeds {CONFIG_BYTES >> 20} MiB: {path}")
        text = data.decode(errors="replace")
        about = f"configuration {path}"
        if path.suffix == ".toml":
            with suppress(tomllib.TOMLDecodeError):
                bundle.add(name, f"{about} as JSON", masked_toml(text))
                return
        bundle.add(name, about, masked_lines(text))


def add_logs(bundle: Bundle, path: Path, lines: int) -> None:
    """Adds the end of a log, or of each log of a folder."""
    with bundle.part(f"logs of {path}"):
        for one in sorted(path.glob("*.log")) if path.is_dir() else [path]:
            name = free_name(bundle, "logs", one)
            with bundle.part(name):
                text = last_lines(one, lines)
                count = output.counted(len(text.splitlines()), "line")
                bundle.add(name, f"last {count} of {one}", text)


def free_name(bundle: Bundle, folder: str, path: Path) -> str:
    """Returns a name in the archive that no other file has."""
    names = [f"{folder}/{path.name}", *(f"{folder}/{number}-{path.name}" for number in range(2, 10_000))]
    return next(name for name in names if name not in bundle.files and name not in bundle.missing)


def last_lines(path: Path, lines: int) -> str:
    """Reads the end of a file without secrets: complete lines, at most LOG_BYTES."""
    with opened(path) as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - LOG_BYTES))
        text = stream.read(LOG_BYTES).decode(errors="replace")
    if size > LOG_BYTES:
        text = text.partition("\n")[2]
    return "".join(masked_text(text).splitlines(keepends=True)[-lines:])  # a private key may begin before these lines


def add_cluster(bundle: Bundle, name_server: str) -> None:
    """Adds the status of the cluster and the reports of each broker."""
    with bundle.part("status of the cluster"), Admin(name_servers=name_server, **FIGURES) as admin:
        bundle.add_json("status.json", "brokers, lag of groups and waiting messages", admin.status)
        bundle.add_json("topics.json", "topics with messages, rate and groups", admin.topic_status)
        add_members(bundle, admin)
        for broker in admin.brokers():
            for broker_id, address in sorted(broker.addresses.items()):
                add_broker(bundle, admin, f"brokers/{broker.broker_name}-{broker_id}", address)


def add_members(bundle: Bundle, admin: Admin) -> None:
    """Adds the live members of each group with their versions, and the stacks of their threads."""
    found: list[tuple[str, ConsumerRunningInfo]] = []
    with bundle.part("members.json"):
        found = members(admin)
        about = "live members of each group with their versions"
        bundle.add_json("members.json", about, lambda: [member_row(group, one) for group, one in found])
    with bundle.part("stacks.txt"):
        texts = [
            f"group {group}, member {one.client_id}:\n{one.jstack or one.error or NO_STACKS}\n" for group, one in found
        ]
        bundle.add("stacks.txt", "stacks of the members' threads", masked_text("\n".join(texts)))


def members(admin: Admin) -> list[tuple[str, ConsumerRunningInfo]]:
    """Returns the live members of each group, with their stacks. A group that was deleted meanwhile has none."""

    def of_group(name: str) -> list[ConsumerRunningInfo]:
        try:
            return admin.running_members(name, jstack=True)
        except GroupNotFoundError:
            return []

    groups = [group.name for group in admin.groups(partial=True) if group.members]
    with ThreadPoolExecutor(CONCURRENT_GROUPS, "rocketpy-bundle") as pool:
        return [(name, one) for name, found in zip(groups, pool.map(of_group, groups), strict=True) for one in found]


def member_row(group: str, member: ConsumerRunningInfo) -> dict[str, Any]:
    """Returns a member with its group. Names are values: a group named `tokens` has no secret."""
    subscriptions = [{"topic": topic, "tags": tags} for topic, tags in member.subscriptions.items()]
    facts = output.plain(member)
    del facts["jstack"]
    return {"group": group, **facts, "subscriptions": subscriptions}


def add_broker(bundle: Bundle, admin: Admin, folder: str, address: str) -> None:
    """Adds the figures, configuration and replication status of one broker."""
    for name, about, call in (
        ("figures", "figures", admin.broker_figures),
        ("configuration", "configuration", admin.broker_config),
        ("replication", "log and slaves", admin.ha_status),
    ):
        if f"{folder}/figures.json" in bundle.missing:
            bundle.missing[f"{folder}/{name}.json"] = "not requested: the broker did not report its figures"
        else:
            bundle.add_json(f"{folder}/{name}.json", f"{about} of {address}", partial(call, address))
