"""The key-value configuration of name servers, RocketPy's and Apache's 5.5.0, by Apache's tools 5.5.0."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apache_processes import write_properties
from peers import Java, accepts, mqadmin, server_command
from ports import free_port
from waiting import wait_until


@contextmanager
def name_server(java: Java | None, home: Path, kv_config: Path) -> Iterator[str]:
    """A name server on that file: Apache's with `java`, else RocketPy's. Yields its address, and kills it."""
    home.mkdir(exist_ok=True)
    port, config = free_port(), home / "namesrv.conf"
    settings = {"listenPort": port, "bindAddress": "127.0.0.1", "kvConfigPath": kv_config}
    write_properties(config, settings)
    if java is None:
        command = [*server_command()[:-1], "namesrv", "--config", str(config)]
    else:
        command = java.command("org.apache.rocketmq.namesrv.NamesrvStartup", home, "-c", str(config))
    environment = os.environ | {"ROCKETMQ_HOME": str(home)}
    with (home / "log").open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
    try:
        wait_until(lambda: accepts(port), "the name server", process=process)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_the_order_of_topics_goes_on_at_the_other_name_server_after_a_kill(java: Java, home: Path):
    """Both ways, on one `kvConfig.json`."""
    file = home / "kvConfig.json"

    def put(address: str, topic: str, order: str) -> None:
        mqadmin(java, home / "tools", address, "updateOrderConf", "-m", "put", "-t", topic, "-v", order)

    def get(address: str, topic: str) -> str:
        return mqadmin(java, home / "tools", address, "updateOrderConf", "-m", "get", "-t", topic)

    with name_server(java, home / "apache", file) as address:
        put(address, "orders", "broker-a:4;broker-b:4")
    with name_server(None, home / "rocketpy", file) as address:
        assert "broker-a:4;broker-b:4" in get(address, "orders")
        put(address, "orders", "broker-c:8")
    with name_server(java, home / "apache", file) as address:
        assert "broker-c:8" in get(address, "orders")
