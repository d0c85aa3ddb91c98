"""Simulated machines: network namespaces with an IP address each, connected by one switch."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable
from typing import Self

import pytest

DEVICE = "wire"


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


class Machines:
    """Network namespaces, one for each IP address, and one for the switch.

    Skips the test without root or without the command `ip`; CI counts a skip as a failure.
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        if not shutil.which("ip"):
            pytest.skip("`ip` is missing: install iproute2")
        if os.geteuid() != 0:
            pytest.skip("network namespaces are for root")
        self.switch = f"rocketpy-{os.getpid()}-switch"
        self.names = {address: f"rocketpy-{os.getpid()}-{address}" for address in addresses}

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "switch", "type", "bridge")
        ip("-n", self.switch, "link", "set", "switch", "up")
        for number, (address, name) in enumerate(self.names.items()):
            port = f"port{number}"
            ip("netns", "add", name)
            ip("link", "add", port, "netns", self.switch, "type", "veth", "peer", "name", DEVICE, "netns", name)
            ip("-n", self.switch, "link", "set", port, "master", "switch", "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", DEVICE)
            for device in ("lo", DEVICE):
                ip("-n", name, "link", "set", device, "up")

    def __exit__(self, *_: object) -> None:
        for name in [*self.names.values(), self.switch]:
            with contextlib.suppress(subprocess.CalledProcessError):  # it does not exist
                ip("netns", "delete", name)

    def on(self, address: str) -> list[str]:
        """Returns the prefix of a command that runs on a machine. Only its children see what it mounts."""
        return ["ip", "netns", "exec", self.names[address]]

    def set_link(self, address: str, state: str) -> None:
        """Sets the link of a machine: `down` drops all packets to and from it; no connection is closed."""
        ip("-n", self.names[address], "link", "set", DEVICE, state)

    def swallow(self, frm: str, to: str, *, swallows: bool) -> None:
        """Drops the packets from one machine to another, or stops dropping them."""
        ip("-n", self.names[frm], "route", "add" if swallows else "delete", "blackhole", to)

    def kill_all(self) -> None:
        """Kills all processes on the machines."""
        while pids := [pid for name in self.names.values() for pid in ip("netns", "pids", name).split()]:
            for pid in pids:  # repeated, because they may start others before they end
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
