"""A standalone cluster of Spark: a master with its driver, a broker and two workers, each a machine of its own.

Real are the network (every byte between machines crosses a switch; nothing listens on loopback), the Python
environments (each machine has RocketPy's wheel installed in its own, all under the same path), the processes of Spark,
SIGKILL, and the link that is cut. Shared are one kernel, one clock, one disk where no folder is mounted over it, and
the files of Spark, pyarrow and pandas.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketpy
from machines import Machines, ip
from rocketpy.spark import JavaNotFoundError, prepare_java
from rocketpy.spark.session import QUICK_JVM
from rocketpy.testing import SMALL_FILES
from waiting import wait_until

HEAD, BROKER, WORKER, OTHER_WORKER = (f"10.78.0.{number}" for number in range(1, 5))
MASTER = f"spark://{HEAD}:7077"
NAME_SERVER = f"{BROKER}:9876"
CORES = 2
"""Of each worker."""
MESSAGES = 12_000
SUMS = [MESSAGES, sum(range(MESSAGES))]
TOPIC, TARGET = "numbers", "copies"
SOURCE = {"name_server": NAME_SERVER, "topic": TOPIC}
SILENCE_SECONDS = 15
"""After this time without a heartbeat an executor counts as lost."""
SETTINGS = {
    "spark.cores.max": 2 * CORES,
    "spark.driver.bindAddress": HEAD,
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.driver.host": HEAD,
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.executor.heartbeatInterval": "1s",
    "spark.executor.memory": "512m",
    "spark.network.timeout": f"{SILENCE_SECONDS}s",
    "spark.network.timeoutInterval": "1s",
    "spark.scheduler.minRegisteredResourcesRatio": 1,
    "spark.sql.shuffle.partitions": 1,
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.ui.enabled": "false",
}
ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("cluster_driver.py")


class Cluster:
    """What runs on the machines. All of it ends with the machines."""

    def __init__(self, machines: Machines, folder: Path, wheel: Path) -> None:
        self._machines = machines
        self._folder = folder
        self._mounts: dict[str, dict[Path, Path]] = {BROKER: {}}
        self._processes: list[subprocess.Popen] = []
        self.python = folder / "environment" / "bin" / "python"
        self.store = folder / "store"
        (folder / "environment").mkdir()
        installed = make_environment(folder / "installed", wheel)
        for machine in (HEAD, WORKER, OTHER_WORKER):
            self.mount(machine, environment_of(machine, folder, installed), folder / "environment")

    def mount(self, machine: str, what: Path, where: Path) -> None:
        """Lets all that starts there later see another folder under a path."""
        self._mounts.setdefault(machine, {})[where] = what

    def start(self, name: str, machine: str, *command: str | Path, **options: Any) -> subprocess.Popen:
        """Starts a process on a machine; its log has its name."""
        mounts = [shlex.join(map(str, ("mount", "--bind", there, at))) for at, there in self._mounts[machine].items()]
        script = " && ".join([*mounts, 'exec "$@"'])
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PYSPARK_PYTHON": str(self.python),
            "PYTHONWARNINGS": "default",
            "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JVM} -Dspark.worker.timeout={SILENCE_SECONDS}",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self._folder / f"{name}-files"),
            "SPARK_LOCAL_HOSTNAME": machine,
            "SPARK_LOCAL_IP": machine,
            "SPARK_LOG_DIR": str(self._folder),
            "SPARK_NO_DAEMONIZE": "1",
        }
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*self._machines.on(machine), "sh", "-c", script, "sh", *command],
                **{"stdout": log, "stderr": log, "env": environment | options.pop("env", {}), **options},
            )
        self._processes.append(process)
        return process

    def end(self) -> None:
        """Kills all that runs on the machines."""
        self._machines.kill_all()
        for process in self._processes:
            with process:  # which closes its pipes
                process.kill()

    def start_broker(self) -> None:
        """Starts a broker and its name server, and waits until it is ready."""
        ready = self._folder / "broker.json"
        settings = [word for name, value in SMALL_FILES.items() for word in ("--set", f"{name}={value}")]
        process = self.start(
            *("broker", BROKER, sys.executable, "-m", "rocketpy", "server", self.store, "--host", BROKER),
            *("--port", "10911", "--name-server-port", "9876", "--ready-file", ready, *settings),
            env={"PYTHONPATH": str(Path(rocketpy.__file__).parents[1])},
        )
        wait_until(ready.exists, "the broker is ready", process=process)

    def start_spark(self) -> None:
        """Starts the master and the workers."""
        spark_class = Path(sys.executable).with_name("spark-class")
        package = "org.apache.spark.deploy"
        self.start("master", HEAD, spark_class, f"{package}.master.Master", "--host", HEAD, "--port", "7077")
        for worker in (WORKER, OTHER_WORKER):
            self.start(
                *(worker, worker, spark_class, f"{package}.worker.Worker", MASTER, "--host", worker),
                *("--cores", str(CORES), "--memory", "600m", "--work-dir", self._folder / f"{worker}-work"),
            )

    def executor(self, worker: str) -> int:
        """Process id of the executor of a worker."""
        pids = ip("netns", "pids", self._machines.names[worker]).split()
        (found,) = [pid for pid in pids if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return int(found)


def make_environment(environment: Path, wheel: Path) -> Path:
    """A virtual environment with RocketPy's wheel; other packages are those of the tests."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    packages = packages_of(environment)
    install = ("install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--no-compile")
    subprocess.run([sys.executable, "-m", "pip", *install, "--target", packages, wheel], check=True)
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return environment


def environment_of(machine: str, folder: Path, installed: Path) -> Path:
    """A copy of the environment that knows its machine."""
    environment = folder / f"environment-{machine}"
    shutil.copytree(installed, environment, symlinks=True)
    (packages_of(environment) / "machine").write_text(machine)
    return environment


def packages_of(environment: Path) -> Path:
    (packages,) = environment.glob("lib/python*/site-packages")
    return packages


class Driver:
    """The driver on the head."""

    def __init__(self, cluster: Cluster) -> None:
        words = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
        submit = shlex.join(["--master", MASTER, *words, "pyspark-shell"])
        self.process = cluster.start(
            *("driver", HEAD, cluster.python, "-P", DRIVER),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYSPARK_SUBMIT_ARGS": submit},
        )

    def begin(self, step: str, **arguments: object) -> None:
        self.process.stdin.write(json.dumps({"step": step, **arguments}) + "\n")
        self.process.stdin.flush()

    def end(self) -> Any:
        """What came of the step that was begun."""
        line = self.process.stdout.readline()
        assert line, f"the driver ended with {self.process.wait()}"
        return json.loads(line)

    def run(self, step: str, **arguments: object) -> Any:
        self.begin(step, **arguments)
        return self.end()


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    try:
        prepare_java()
    except JavaNotFoundError as missing:
        pytest.skip(str(missing))
    with Machines([HEAD, BROKER, WORKER, OTHER_WORKER]) as machines:
        yield machines


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(machines: Machines, folder: Path) -> Iterator[Cluster]:
    """With a broker and Spark. One worker has another store behind the path of the broker's, and nothing behind a
    second path to it."""
    wheels = [wheel for folder in ("wheels-dev", "wheels") for wheel in (ROOT / "target" / folder).glob("*.whl")]
    if not wheels:
        pytest.skip("no wheel to install on the machines: make test")
    unlike, elsewhere, empty = folder / "unlike", folder / "elsewhere", folder / "empty"
    with rocketpy.Server(unlike, settings=SMALL_FILES) as server, server.producer("unlike") as producer:
        with server.admin() as admin:
            admin.create_topic(TOPIC)
        producer.send(rocketpy.Message(TOPIC, b"another store"))
    cluster = Cluster(machines, folder, max(wheels, key=lambda wheel: wheel.stat().st_mtime))
    try:
        for path in (cluster.store, elsewhere, empty):
            path.mkdir()
        (elsewhere / "store").symlink_to(cluster.store)
        cluster.mount(OTHER_WORKER, unlike, cluster.store)
        cluster.mount(OTHER_WORKER, empty, elsewhere)
        cluster.start_broker()
        cluster.start_spark()
        yield cluster
    finally:
        cluster.end()


@pytest.fixture(scope="module")
def driver(cluster: Cluster) -> Iterator[Driver]:
    """Of a topic with all numbers and an empty one."""
    driver = Driver(cluster)
    assert driver.run("fill", **SOURCE, messages=MESSAGES, targets=[TARGET]) is None
    yield driver
    driver.process.stdin.close()
    assert driver.process.wait() == 0


def begin_to_add_up(driver: Driver, barrier: Path) -> Path:
    """Returns when both workers are in the middle of their tasks, and then the file that lets them go on."""
    barrier.mkdir()
    driver.begin("add_up", **SOURCE, barrier=str(barrier))
    wait_until(
        lambda: {file.name for file in barrier.iterdir()} == {WORKER, OTHER_WORKER}, "tasks", process=driver.process
    )
    return barrier / "open"


@pytest.fixture(scope="module")
def cut_off(machines: Machines, driver: Driver, folder: Path) -> dict:
    """What came of a step in whose middle a worker was cut off. It stays so: the other one alone is left."""
    opens = begin_to_add_up(driver, folder / "a worker is cut off")
    machines.set_link(WORKER, "down")
    opens.touch()
    return driver.end()


def test_a_scan_has_a_task_for_each_core_of_the_cluster(driver: Driver):
    assert driver.run("plan", **SOURCE) == {"cores": 2 * CORES, "partitions": 2 * CORES}


def test_the_result_is_right_when_an_executor_is_killed(cluster: Cluster, driver: Driver, tmp_path: Path):
    opens = begin_to_add_up(driver, tmp_path / "an executor is killed")
    os.kill(cluster.executor(WORKER), signal.SIGKILL)
    opens.touch()
    assert driver.end()["sums"] == SUMS


def test_a_stream_copies_every_row(driver: Driver, tmp_path: Path):
    copied = driver.run("copy", **SOURCE, target=TARGET, state=str(tmp_path / "state"))
    assert copied == {"rows": MESSAGES}
    barrier = tmp_path / "copied"
    barrier.mkdir()
    (barrier / "open").touch()
    assert driver.run("add_up", **{**SOURCE, "topic": TARGET}, barrier=str(barrier))["sums"] == SUMS


def test_the_result_is_right_when_a_worker_is_cut_off(cut_off: dict):
    assert cut_off == {"sums": SUMS, "machines": [OTHER_WORKER]}


def test_a_worker_whose_folder_is_another_store_or_empty_says_so(
    cut_off: dict, cluster: Cluster, driver: Driver, folder: Path
):
    assert driver.run("count", **SOURCE) == {"rows": MESSAGES}
    unlike = driver.run("count", path=str(cluster.store), topic=TOPIC)
    assert f"the driver's plan is for another store than {cluster.store}" in unlike["error"]
    gone = driver.run("count", path=str(folder / "elsewhere" / "store"), topic=TOPIC)
    assert f"the store of the driver's plan is missing: {folder / 'elsewhere'}" in gone["error"]
