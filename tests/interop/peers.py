"""The Apache peers of these tests, set up once: jars by Maven, the Go driver, the C++ client in its environment."""

import fcntl
import itertools
import json
import os
import queue
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import rocketpy
from waiting import wait_until

HERE = Path(__file__).parent
REQUIREMENTS = HERE.parents[1] / "requirements"
BUILD = HERE / "java" / "target"
LEVELS_S = [1, 3, 1] + 5 * [1, 2, 1]
"""How long the messages of each delay level wait at the brokers that tests share. The first retry has level 3."""
LEVEL_TABLE = " ".join(f"{seconds}s" for seconds in LEVELS_S)
ADD_OPENS = [
    *(
        f"--add-opens=java.base/{name}=ALL-UNNAMED"
        for name in ("jdk.internal.ref", "java.nio", "java.util", "sun.nio.ch")
    ),
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
]


def missing(what: str) -> None:
    """Skips with the reason, which fails in CI, where `.ci/run` has to install it."""
    pytest.skip(f"{what}; .ci/run installs it")


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Lets one of several test processes do the set-up while the others wait for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Java:
    """The machine's JDK with Apache's jars and the compiled driver on the class path."""

    java: str
    class_path: str
    tuning: tuple[str, ...] = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    """Garbage collection and compilation; the default starts soonest."""

    def command(self, main: str, home: Path, *args: str, options: tuple[str, ...] = ()) -> list[str]:
        home.mkdir(parents=True, exist_ok=True)
        return [
            self.java,
            *ADD_OPENS,
            f"-Duser.home={home}",
            f"-Drocketmq.client.logRoot={home}/logs",
            *self.tuning,
            *options,
            "-cp",
            self.class_path,
            main,
            *args,
        ]

    def drive(self, _home: Path, *args: str) -> list[dict]:
        """Runs the driver to its end; returns the JSON objects that it printed."""
        return finish(self.begin("Driver", *args))

    def start_driver(self, _home: Path, *args: str) -> "Scenario":
        return self.begin("Driver", *args)

    def begin(self, main: str, *args: str) -> "Scenario":
        """Starts a scenario in the JVM that all scenarios of this version share."""
        return Drivers.of(self).begin(main, *args)


class Scenario:
    """A scenario in the shared JVM; looks like a process to those that wait for it."""

    def __init__(self, drivers: "Drivers") -> None:
        self.returncode: int | None = None
        self.failure = ""
        self._drivers = drivers
        self._lines: queue.SimpleQueue[dict | None] = queue.SimpleQueue()

    def poll(self) -> int | None:
        return self.returncode

    def take(self, answer: dict) -> None:
        """Takes an answer of the JVM."""
        if "line" in answer:
            self._lines.put(answer["line"])
        else:
            self.end(answer.get("failed"))

    def end(self, failure: str | None) -> None:
        self.failure = failure or ""
        self.returncode = 1 if failure else 0
        self._lines.put(None)

    def lines(self, seconds: float = 600) -> Iterator[dict]:
        """The JSON objects that it prints, until its end."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the scenario did not end within {seconds} s: {self._drivers.log}") from None
            if line is None:
                return
            yield line


class Drivers:
    """One JVM that runs the scenarios of this test process, started by the first one. See java/Drivers.java."""

    running: ClassVar[dict[Java, "Drivers"]] = {}
    starting: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, java: Java) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="rocketpy-java-"))
        self.log = self.home / "drivers.log"
        options = (f"-Drocketmq.home.dir={self.home}", f"-Djava.io.tmpdir={self.home}")
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                java.command("Drivers", self.home, options=options),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                cwd=self.home,  # mqadmin leaves files there
            )
        self._lock = threading.Lock()
        self._scenarios: dict[int, Scenario] = {}
        self._ids = itertools.count()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @classmethod
    def of(cls, java: Java) -> "Drivers":
        """The JVM of a version."""
        with cls.starting:
            if java not in cls.running:
                cls.running[java] = cls(java)
            return cls.running[java]

    @classmethod
    def close_all(cls) -> None:
        """Ends the JVMs."""
        while cls.running:
            _, drivers = cls.running.popitem()
            drivers._process.kill()
            drivers._thread.join()
            drivers._process.communicate()
            shutil.rmtree(drivers.home, ignore_errors=True)

    def begin(self, main: str, *args: str) -> Scenario:
        scenario = Scenario(self)
        assert self._process.stdin is not None
        with self._lock:
            number = next(self._ids)
            self._scenarios[number] = scenario
            self._process.stdin.write(json.dumps({"id": number, "main": main, "arguments": args}) + "\n")
            self._process.stdin.flush()
        return scenario

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if text.startswith('{"'):
                answer = json.loads(text)
                scenario = self._scenarios[answer["id"]]
                scenario.take(answer)
                if "line" not in answer:
                    del self._scenarios[answer["id"]]
        for scenario in list(self._scenarios.values()):
            scenario.end(f"the JVM ended with {self._process.wait()}: {self.log.read_text()[-4000:]}")


@dataclass(frozen=True)
class Cpp:
    """An interpreter that has the C++ client."""

    python: str

    def drive(self, home: Path, *args: str) -> list[dict]:
        return finish(self.start_driver(home, *args))

    def start_driver(self, home: Path, *args: str) -> subprocess.Popen:
        home.mkdir(parents=True, exist_ok=True)
        return start(self.command(*args), home)

    def command(self, *args: str) -> list[str]:
        return [self.python, str(HERE / "cpp_driver.py"), *args]


@dataclass(frozen=True)
class Go:
    """The built driver of the Go client."""

    program: str

    def drive(self, home: Path, *args: str) -> list[dict]:
        return finish(self.start_driver(home, *args))

    def start_driver(self, home: Path, *args: str) -> subprocess.Popen:
        home.mkdir(parents=True, exist_ok=True)
        return start([self.program, *args], home)


class StoreDriver:
    """The Java client in one process that does one thing after the other, for stores behind several addresses."""

    def __init__(self, java: Java, home: Path) -> None:
        command = java.command("StoreDriver", home)
        with (home / "driver.log").open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, encoding="utf-8"
            )

    def run(self, address: str, command: str, *arguments: str, questions: Iterable[dict] = ()) -> list[dict]:
        """Returns the objects that it printed."""
        return list(self.begin(address, command, *arguments, questions=questions))

    def begin(self, address: str, command: str, *arguments: str, questions: Iterable[dict] = ()) -> Iterator[dict]:
        """Starts a command; its objects come as it prints them, and have to be taken to the end."""
        request = {"name_server": address, "command": command, "arguments": arguments, "questions": list(questions)}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._lines(command)

    def _lines(self, command: str) -> Iterator[dict]:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            if not text.startswith("{"):
                continue
            line = json.loads(text)
            assert "failed" not in line, f"{command}: {line['failed']}"
            if "done" in line:
                return
            yield line
        raise AssertionError(f"{command}: the driver ended with {self.process.wait()}")

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def start(command: list[str], home: Path | None = None) -> subprocess.Popen:
    environment = os.environ | ({"HOME": str(home)} if home else {})
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen]:
    """A driver that reads lines too, and is killed at the end. An error tells what it wrote to standard error."""
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            yield process
        except Exception as error:
            errors.seek(0)
            error.add_note(f"exit code {process.poll()}: {errors.read()[-4000:]}")
            raise
        finally:
            process.kill()


def finish(process: subprocess.Popen | Scenario) -> list[dict]:
    """Waits for the end of a driver; returns the JSON objects that it printed."""
    if isinstance(process, Scenario):
        found = list(process.lines())
        assert process.returncode == 0, f"{process.failure}\n{len(found)} lines: {found[-3:]}"
        return found
    try:
        out, err = process.communicate(timeout=600)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert process.returncode == 0, f"exit code {process.returncode}: {err[-4000:]}\n{len(found)} lines: {found[-3:]}"
    return found


def lines(process: subprocess.Popen | Scenario) -> Iterator[dict]:
    """The JSON objects of a driver, as it prints them."""
    if isinstance(process, Scenario):
        return process.lines()
    assert process.stdout is not None
    return (json.loads(line) for line in process.stdout if line.startswith("{"))


def stop(process: subprocess.Popen) -> list[dict]:
    """Ends a driver that waits for SIGTERM; returns the JSON objects that it printed."""
    process.terminate()
    return finish(process)


def mqadmin(java: Java, _home: Path, address: str, *command: str) -> str:
    """Runs Apache's tools with a name server; returns what they print."""
    return administer(java, address, *command)[0]


def administer(java: Java, address: str, *command: str) -> tuple[str, str]:
    """As `mqadmin`; returns standard output and standard error of the tool."""
    [line] = finish(java.begin("mqadmin", address, *command))
    return line["printed"], line["errors"]


def set_up_java() -> Java:
    """Brings the jars with Maven and compiles the drivers, both kept until their sources change."""
    tools = tools_for_java()
    sources = sorted((HERE / "java").glob("*.java"))
    wanted = "".join(path.read_text() for path in [HERE / "java" / "pom.xml", *sources])
    with only_one(BUILD / "lock"):
        stamp = BUILD / "stamp"
        if not stamp.exists() or stamp.read_text() != wanted:
            bring_jars(HERE / "java", BUILD / "lib")
            (BUILD / "classes").mkdir(exist_ok=True)
            subprocess.run(
                ["javac", "-cp", f"{BUILD}/lib/*", "-d", f"{BUILD}/classes", *map(str, sources)],
                check=True,
            )
            stamp.write_text(wanted)
    return Java(tools["java"], f"{BUILD}/classes:{BUILD}/lib/*")


def set_up_apache_4_9() -> Java:
    """Brings the servers of Apache 4.9, which run with the jars of their own version only."""
    return Java(tools_for_java()["java"], f"{jars_of('apache-4.9')}/*")


def set_up_client_4_9() -> Java:
    """Brings the client of Apache 4.9, for the drivers of 5.5.0: what 4.9 has not, they use only when asked to."""
    classes = set_up_java().class_path.partition(":")[0]
    [json_of_drivers] = (BUILD / "lib").glob("fastjson2-[0-9]*.jar")
    return Java(tools_for_java()["java"], f"{classes}:{jars_of('client-4.9')}/*:{json_of_drivers}")


def jars_of(project: str) -> Path:
    """Brings the jars of one of the projects beside the drivers, and keeps them until it changes."""
    tools_for_java()
    wanted, lib, stamp = (HERE / "java" / project / "pom.xml").read_text(), BUILD / project, BUILD / f"stamp-{project}"
    with only_one(BUILD / f"lock-{project}"):
        if not stamp.exists() or stamp.read_text() != wanted:
            bring_jars(HERE / "java" / project, lib)
            stamp.write_text(wanted)
    return lib


def tools_for_java() -> dict[str, str]:
    tools = {name: shutil.which(name) for name in ("mvn", "javac", "java")}
    for name, path in tools.items():
        if path is None:
            missing(f"{name} is not on the path, and Apache's Java client needs it")
    return {name: path for name, path in tools.items() if path is not None}


def bring_jars(project: Path, to: Path) -> None:
    subprocess.run(
        ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={to}"],
        cwd=project,
        stdout=subprocess.DEVNULL,
        check=True,
    )


def set_up_cpp() -> Cpp:
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        missing("the C++ client's wheel is for Linux on x86-64 only")
    return Cpp(set_up_environment(HERE / "cpp-env", REQUIREMENTS / "client-cpp.txt"))


def set_up_environment(home: Path, requirements: Path) -> str:
    """Makes a virtual environment with the packages of a file, and keeps it until that changes; returns its Python."""
    python, stamp, wanted = home / "bin" / "python", home / "stamp", requirements.read_text()
    with only_one(BUILD / f"lock-{home.name}"):
        if not stamp.exists() or stamp.read_text() != wanted:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
            subprocess.run([str(python), "-m", "pip", "install", "-q", "-r", str(requirements)], check=True)
            stamp.write_text(wanted)
    return str(python)


def set_up_go(kind: str = "plain") -> Go:
    """Builds the driver, and the client with it; kept until its sources change.

    Args:
        kind: `plain` for the client of `go.mod`, `encrypted` for one with TLS, of `encrypted.mod`.
    """
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        missing("go is not on the path, and Apache's Go client needs it")
    folder = HERE / "go"
    modules = "go.mod" if kind == "plain" else f"{kind}.mod"
    sources = (modules, modules.replace(".mod", ".sum"), "driver.go", f"{kind}.go")
    wanted = "".join((folder / name).read_text() for name in sources)
    program, stamp = BUILD / f"go-driver-{kind}", BUILD / f"stamp-go-{kind}"
    with only_one(BUILD / f"lock-go-{kind}"):
        if not stamp.exists() or stamp.read_text() != wanted:
            environment = os.environ | {"GOFLAGS": "-mod=readonly"}
            build = [go, "build", f"-modfile={modules}", f"-tags={kind}", "-o", str(program), "."]
            subprocess.run(build, cwd=folder, env=environment, check=True)
            stamp.write_text(wanted)
    return Go(str(program))


def connect(port: int, timeout: float) -> socket.socket:
    """Connects to a port of loopback, of IPv4 or else of IPv6."""
    try:
        return socket.create_connection(("127.0.0.1", port), timeout)
    except ConnectionRefusedError:
        return socket.create_connection(("::1", port), timeout)


def accepts(port: int) -> bool:
    try:
        connect(port, timeout=0.2).close()
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Answer:
    """What a server answers to one request."""

    code: int
    remark: str | None
    body: bytes


def ask(port: int, code: int, body: bytes = b"", **fields: object) -> int:
    """As `exchange`; returns the code of the answer."""
    return exchange(port, code, body, **fields).code


def exchange(port: int, code: int, body: bytes = b"", **fields: object) -> Answer:
    """Sends one request with a frame made by hand."""
    texts = {name: str(value) for name, value in fields.items()}
    common = {"code": code, "language": "JAVA", "version": 409, "opaque": 1, "flag": 0}
    header = json.dumps(common | {"extFields": texts}).encode()
    with connect(port, timeout=60) as connection:
        connection.sendall(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)
        stream = connection.makefile("rb")
        length, header_length = struct.unpack(">II", stream.read(8))
        header_length &= 0xFFFFFF
        answer = json.loads(stream.read(header_length))
        return Answer(answer["code"], answer.get("remark"), stream.read(length - 4 - header_length))


def port_of_broker(admin: rocketpy.Admin) -> int:
    """Of a cluster's only broker."""
    [broker] = admin.brokers()
    return int(broker.addresses[0].rsplit(":", 1)[1])


def has_route(port: int, topic: str) -> bool:
    """Asks a name server for a topic's route."""
    return ask(port, 105, topic=topic) == 0


def make_topic(port: int, topic: str) -> bool:
    """Asks a broker for a topic of two queues; Apache's broker then tells its name server about it at once."""
    answer = ask(
        port,
        17,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=2,
        writeQueueNums=2,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order="false",
    )
    return answer == 0


def allow_retries(port: int, group: str, times: int) -> bool:
    """Sets how often a broker retries the messages of a group."""
    wanted = {"groupName": group, "retryMaxTimes": times}
    return ask(port, 200, json.dumps(wanted).encode()) == 0


def server_command() -> list[str]:
    """The installed package's server, or the program that INTEROP_SERVER names, for work on the server."""
    program = os.environ.get("INTEROP_SERVER")
    return [program, "server"] if program else [sys.executable, "-m", "rocketpy", "server"]


@contextmanager
def rocketpy_server(home: Path, *flags: str, store: Path | None = None, clean: bool = True) -> Iterator[str]:
    """``rocketpy server`` in a process of its own; yields its name server's address. Ends by SIGTERM, or by kill -9."""
    home.mkdir(parents=True, exist_ok=True)
    ready = home / "ready.json"
    ready.unlink(missing_ok=True)
    command = [*server_command(), str(store or home / "store"), "--port", "0", "--name-server-port", "0", *flags]
    with (home / "server.log").open("a") as log:
        process = subprocess.Popen([*command, "--ready-file", str(ready)], stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until(ready.exists, f"rocketpy server: {(home / 'server.log')}", process=process)
        yield json.loads(ready.read_text())["name_server"]
    finally:
        if clean:
            process.terminate()
            assert process.wait(timeout=90) == 0, (home / "server.log").read_text()[-4000:]
        else:
            process.kill()
            process.wait()
