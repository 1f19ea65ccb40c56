"""A bridge of an engine's own, and its way out. An engine that makes its own bridge would take the name docker0."""

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.clusters import groups

CGROUP = "torchbake-engine-"  # the number of the process follows here too
_PREFIX = "tbe"  # the process that starts the engine follows, so that what it leaves can be told
_CHAINS = (("filter", "FORWARD"), ("nat", "POSTROUTING"))


@contextmanager
def bridge() -> Iterator[int]:
    """Make the bridge of this process, with the subnet 10.251.NUMBER.0/24, and return the number."""
    _sweep()
    name = name_of_bridge()
    _run("ip", "link", "add", name, "type", "bridge")
    try:
        number = _free_number()
        _run("ip", "addr", "add", f"10.251.{number}.1/24", "dev", name)
        _run("ip", "link", "set", name, "up")
        # Containers reach what this machine reaches, also where another Docker sets the policy of FORWARD to DROP.
        _run("iptables", "-w", "-I", "FORWARD", "-i", name, "-j", "ACCEPT")
        _run("iptables", "-w", "-I", "FORWARD", "-o", name, "-j", "ACCEPT")
        subnet = f"10.251.{number}.0/24"
        _run("iptables", "-w", "-t", "nat", "-I", "POSTROUTING", "-s", subnet, "!", "-o", name, "-j", "MASQUERADE")
        yield number
    finally:
        _remove(name)


def name_of_bridge() -> str:
    """Return the name of this process's bridge."""
    return f"{_PREFIX}{os.getpid()}"


def _free_number() -> int:
    used = _run("ip", "-brief", "address")
    return next(number for number in count(1) if f" 10.251.{number}." not in used)


def _sweep() -> None:
    """Remove the bridges and the cgroups of processes that were killed."""
    groups.sweep(CGROUP)
    for link in Path("/sys/class/net").glob(f"{_PREFIX}*"):
        if not Path("/proc", link.name.removeprefix(_PREFIX)).exists():
            _remove(link.name)


def _remove(name: str) -> None:
    for table, chain in _CHAINS:
        for rule in _run("iptables", "-w", "-t", table, "-S", chain).splitlines():
            if name in rule.split():
                _run("iptables", "-w", "-t", table, "-D", *shlex.split(rule)[1:])
    _run("ip", "link", "delete", name)


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
