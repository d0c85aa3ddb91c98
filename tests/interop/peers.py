"""The Apache peers of these tests: jars by Maven, the C++ client in an environment of its own, both set up once."""

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BUILD = HERE / "java" / "target"
CPP_PACKAGE = "rocketmq==0.4.4"
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

    def command(self, main: str, home: Path, *args: str, options: tuple[str, ...] = ()) -> list[str]:
        home.mkdir(parents=True, exist_ok=True)
        return [
            self.java,
            *ADD_OPENS,
            f"-Duser.home={home}",
            f"-Drocketmq.client.logRoot={home}/logs",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *options,
            "-cp",
            self.class_path,
            main,
            *args,
        ]

    def drive(self, home: Path, *args: str) -> list[dict]:
        """Runs the driver to its end; returns the JSON objects that it printed."""
        return json_lines(self.command("Driver", home, *args))

    def start_driver(self, home: Path, *args: str) -> subprocess.Popen:
        return start(self.command("Driver", home, *args))


@dataclass(frozen=True)
class Cpp:
    """An interpreter that has the C++ client."""

    python: str

    def drive(self, home: Path, *args: str) -> list[dict]:
        return json_lines([self.python, str(HERE / "cpp_driver.py"), *args], home)


def start(command: list[str], home: Path | None = None) -> subprocess.Popen:
    environment = os.environ | ({"HOME": str(home)} if home else {})
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen) -> list[dict]:
    try:
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert process.returncode == 0, f"exit code {process.returncode}: {err[-4000:]}\n{len(lines)} lines: {lines[-3:]}"
    return lines


def json_lines(command: list[str], home: Path | None = None) -> list[dict]:
    return finish(start(command, home))


def set_up_java() -> Java:
    """Brings the jars with Maven and compiles the driver, both kept until their sources change."""
    tools = {name: shutil.which(name) for name in ("mvn", "javac", "java")}
    for name, path in tools.items():
        if path is None:
            missing(f"{name} is not on the path, and Apache's Java client needs it")
    with only_one(BUILD / "lock"):
        stamp, wanted = (
            BUILD / "stamp",
            (HERE / "java" / "pom.xml").read_text() + (HERE / "java" / "Driver.java").read_text(),
        )
        if not stamp.exists() or stamp.read_text() != wanted:
            subprocess.run(
                ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={BUILD}/lib"],
                cwd=HERE / "java",
                stdout=subprocess.DEVNULL,
                check=True,
            )
            (BUILD / "classes").mkdir(exist_ok=True)
            subprocess.run(
                ["javac", "-cp", f"{BUILD}/lib/*", "-d", f"{BUILD}/classes", str(HERE / "java" / "Driver.java")],
                check=True,
            )
            stamp.write_text(wanted)
    return Java(tools["java"], f"{BUILD}/classes:{BUILD}/lib/*")


def set_up_cpp() -> Cpp:
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        missing("the C++ client's wheel is for Linux on x86-64 only")
    home = HERE / "cpp-env"
    with only_one(BUILD / "cpp.lock"):
        python = home / "bin" / "python"
        if not (home / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
            subprocess.run([str(python), "-m", "pip", "install", "-q", CPP_PACKAGE], check=True)
            (home / "ready").touch()
    return Cpp(str(python))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.2).close()
    except OSError:
        return False
    return True


def has_route(port: int, topic: str) -> bool:
    """Asks a name server for a topic's route (request code 105) with a frame made by hand."""
    header = json.dumps({"code": 105, "version": 479, "opaque": 1, "flag": 0, "extFields": {"topic": topic}}).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)
        stream = connection.makefile("rb")
        _length, header_length = struct.unpack(">II", stream.read(8))
        answer = json.loads(stream.read(header_length & 0xFFFFFF))
    return answer["code"] == 0


def wait_until(condition, process: subprocess.Popen, what: str, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"{what}: ended with {process.returncode}"
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)  # the pace of asking, not a wait for a result


@contextmanager
def rocketpy_server(home: Path) -> Iterator[str]:
    """``rocketpy server`` in a process of its own; yields its name server's address."""
    home.mkdir(parents=True, exist_ok=True)
    ready = home / "ready.json"
    command = [
        sys.executable,
        "-m",
        "rocketpy",
        "server",
        str(home / "store"),
        "--port",
        "0",
        "--name-server-port",
        "0",
    ]
    with (home / "server.log").open("w") as log:
        process = subprocess.Popen([*command, "--ready-file", str(ready)], stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until(ready.exists, process, "rocketpy server")
        yield json.loads(ready.read_text())["name_server"]
    finally:
        process.terminate()
        assert process.wait(timeout=10) == 0, (home / "server.log").read_text()[-4000:]


@contextmanager
def apache_cluster(java: Java, home: Path) -> Iterator[str]:
    """Apache's name server and broker 5.5.0 on free ports of loopback; yields the name server's address."""
    home.mkdir(parents=True, exist_ok=True)
    name_server_port, port = free_port(), free_port()
    (home / "namesrv.conf").write_text(f"listenPort={name_server_port}\nbindAddress=127.0.0.1\n")
    (home / "broker.conf").write_text(
        "\n".join(
            (
                f"listenPort={port}",
                f"haListenPort={free_port()}",
                "bindAddress=127.0.0.1",
                "brokerIP1=127.0.0.1",
                "brokerName=apache",
                "brokerClusterName=apache",
                f"storePathRootDir={home}/store",
                "mappedFileSizeCommitLog=67108864",
                "diskMaxUsedSpaceRatio=95",
            )
        )
    )
    environment = os.environ | {"ROCKETMQ_HOME": str(home), "HOME": str(home)}
    processes: list[subprocess.Popen] = []

    def launch(main: str, *args: str) -> subprocess.Popen:
        command = java.command(main, home, *args, options=("-Xmx1g", "-XX:MaxDirectMemorySize=512m"))
        with (home / f"{main.rsplit('.', 1)[1]}.log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        processes.append(process)
        return process

    try:
        names = launch("org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(home / "namesrv.conf"))
        wait_until(lambda: accepts(name_server_port), names, "Apache's name server")
        address = f"127.0.0.1:{name_server_port}"
        broker = launch("org.apache.rocketmq.broker.BrokerStartup", "-n", address, "-c", str(home / "broker.conf"))
        wait_until(lambda: accepts(port), broker, "Apache's broker")
        wait_until(lambda: has_route(name_server_port, "TBW102"), broker, "Apache's broker's registration")
        yield address
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()
