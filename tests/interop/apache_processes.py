"""Apache's name server and broker as processes of the tests."""

import functools
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from peers import HERE, LEVEL_TABLE, Java, accepts, has_route, make_topic, only_one
from ports import free_port
from waiting import wait_until


def write_properties(path: Path, settings: Mapping[str, object]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def launch_apache(
    java: Java, home: Path, main: str, arguments: tuple[str, ...], memory: tuple[str, ...]
) -> subprocess.Popen:
    """Starts one of Apache's servers, with its output in a file of `home`."""
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for name in ("namesrv", "broker"):
        (home / "conf" / f"logback_{name}.xml").write_text("<configuration/>")  # 4.9 does not start without
    command = java.command(main, home, *arguments, options=memory)
    environment = os.environ | {"ROCKETMQ_HOME": str(home), "HOME": str(home)}
    with (home / f"{main.rsplit('.', 1)[1]}.log").open("a") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


APACHE_MEMORY = ("-Xmx1g", "-XX:MaxDirectMemorySize=512m")


def launch_apache_broker(
    java: Java,
    home: Path,
    name_server: str,
    settings: Mapping[str, object],
    memory: tuple[str, ...] = APACHE_MEMORY,
) -> tuple[subprocess.Popen, int]:
    """Starts Apache's broker on free ports of loopback; returns the process and its port, which it may not serve yet.

    The store is `home/store` and the configuration `home/broker.conf`.
    """
    port = write_broker_conf(home, settings)
    arguments = ("-n", name_server, "-c", str(home / "broker.conf"))
    return launch_apache(java, home, "org.apache.rocketmq.broker.BrokerStartup", arguments, memory), port


def write_broker_conf(home: Path, settings: Mapping[str, object]) -> int:
    """Writes `home/broker.conf` of a broker of Apache on loopback with its store in `home/store`; returns its port."""
    home.mkdir(parents=True, exist_ok=True)
    port = free_port(1, 3) + 2  # it listens on port - 2 too, 4.9 also on port + 1
    defaults = {
        "listenPort": port,
        "haListenPort": free_port(),
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "brokerName": "apache",
        "brokerClusterName": "apache",
        "storePathRootDir": home / "store",
        "mappedFileSizeCommitLog": 67108864,
        "diskMaxUsedSpaceRatio": 95,
        "osPageCacheBusyTimeOutMills": 60_000,  # a new file on a disk that stalls is no error in these tests
        "waitTimeMillsInSendQueue": 60_000,
    }
    write_properties(home / "broker.conf", defaults | dict(settings))
    return port


@contextmanager
def apache_cluster(
    java: Java,
    home: Path,
    settings: Mapping[str, object] | None = None,
    topics: Iterable[str] = (),
    clean: bool = False,
) -> Iterator[str]:
    """`apache_servers` that yield the name server's address only."""
    with apache_servers(java, home, settings, topics, clean) as (address, _broker):
        yield address


SHARED_SETTINGS = {
    "messageDelayLevel": LEVEL_TABLE,
    "recallMessageEnable": "true",
    "enablePropertyFilter": "true",
    # Two threads of 5.5.0 would each load a core: one copies the timer wheel every second byte by byte; the other one
    # spins from the first transaction on, until the next is older than the interval.
    "timerFlushIntervalMs": 86_400_000,
    "transactionOpBatchInterval": 86_400_000,
    "transactionOpMsgMaxSize": 1,  # marks are written at once
}
"""Of the broker of Apache that all tests share."""

KEPT: list[subprocess.Popen] = []
"""What outlives this process, and is not to be warned of."""


def shared_apache(folder: Path, run: int) -> str:
    """Address of a cluster of Apache that all test processes of a run share; the first one starts it.

    It ends with the process `run`, the one that distributes the tests. tests/interop/shared_apache.py keeps it.
    """
    ready = folder / "address"
    with only_one(folder / "lock"):
        if not ready.exists():
            with (folder / "log").open("w") as log:
                keeper = subprocess.Popen(  # it outlives this process
                    [sys.executable, str(HERE / "shared_apache.py"), str(folder), str(run)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (HERE, HERE.parent)))},
                )
            KEPT.append(keeper)
            wait_until(ready.exists, f"Apache's cluster: {folder / 'log'}", process=keeper)
    return ready.read_text()


@contextmanager
def apache_servers(
    java: Java,
    home: Path,
    settings: Mapping[str, object] | None = None,
    topics: Iterable[str] = (),
    clean: bool = False,
    memory: tuple[str, ...] = APACHE_MEMORY,
) -> Iterator[tuple[str, subprocess.Popen]]:
    """Apache's name server and broker on free ports of loopback; yields the name server's address and the broker.

    The version is that of the jars. The store is `home/store` and the broker's configuration `home/broker.conf`; the
    broker ends by kill -9, or in order when `clean`. With `topics`, which are made, it is ready 10 s sooner: that long
    Apache's broker waits before it tells the name server of all its topics.
    """
    processes: list[subprocess.Popen] = []
    try:
        name_server_port = free_port()
        address = f"127.0.0.1:{name_server_port}"
        home.mkdir(parents=True, exist_ok=True)
        write_properties(home / "namesrv.conf", {"listenPort": name_server_port, "bindAddress": "127.0.0.1"})
        arguments = ("-c", str(home / "namesrv.conf"))
        names = launch_apache(java, home, "org.apache.rocketmq.namesrv.NamesrvStartup", arguments, memory)
        processes.append(names)
        wait_until(lambda: accepts(name_server_port), "Apache's name server", process=names)
        broker, port = launch_apache_broker(java, home, address, settings or {}, memory)
        processes.append(broker)
        wait_until(lambda: accepts(port), "Apache's broker", process=broker)
        for topic in topics:
            made = functools.partial(make_topic, port, topic)
            wait_until(made, f"Apache's broker's topic {topic}", process=broker)
        for topic in topics or ["TBW102"]:
            known = functools.partial(has_route, name_server_port, topic)
            wait_until(known, f"Apache's broker's route of {topic}", process=broker)
        yield address, broker
        if clean:
            broker.terminate()
            broker.wait(timeout=300)
    except AssertionError:
        for path in home.glob("*Startup.log"):
            print(path.name, path.read_text()[-2000:])  # for the report of the test that failed
        raise
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()
