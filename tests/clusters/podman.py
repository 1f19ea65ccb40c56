"""A machine with podman, made of Debian's packages; nothing of it touches an engine that is here."""

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tests.clusters import groups
from tests.clusters.pods import Play
from tests.e2e.launchers.boxes import Box, network
from tests.e2e.launchers.ended import Ended
from tests.e2e.launchers.tree import NoLauncherError

_NETWORK, _DEFAULT = "jobs", "podman"
_STORAGE, _PREFIX = "/var/lib/containers", "torchbake-podman-"
_ENV = {"PODMAN_IGNORE_CGROUPSV1_WARNING": "1"}
# There is no systemd in the machine, and images are unpacked where there is room.
_SETTINGS = """
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
image_copy_tmp_dir = "storage"
[containers]
log_driver = "k8s-file"
[network]
firewall_driver = "nftables"
"""


@dataclass(frozen=True, kw_only=True)
class Podman:
    """Root's podman in a machine, with a network whose containers know each other's names."""

    box: Box

    def podman(self, *words: str, text: str | None = None) -> str:
        """Run a podman command as root in the machine. Raises AssertionError if it fails."""
        command = self.box.command("podman", *words, env=_ENV)
        process = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)
        assert process.returncode == 0, f"podman {' '.join(words)}: {process.stdout}{process.stderr}"
        return process.stdout.strip()

    def load(self, image: str) -> None:
        """Give it an image of the engine's."""
        command = self.box.command("podman", "load", "--quiet", env=_ENV)
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as process:
            loaded = subprocess.run(command, stdin=process.stdout, capture_output=True, text=True, check=False)
        assert process.returncode == 0, f"the engine does not give {image}"
        assert loaded.returncode == 0, loaded.stderr

    def run(self, play_result: Sequence[Play]) -> Ended:
        """Play pods, wait until they have ended, and take them down. All must end with the same exit code."""
        began = time.monotonic()
        try:
            for each in play_result:
                self.podman("kube", "play", f"--network={_NETWORK}:alias={each.alias}", "-", text=each.text)
            codes = self.podman("wait", *(each.container for each in play_result)).split()
            took = time.monotonic() - began
            output = "\n".join(self._read_output(each.container) for each in play_result)
        finally:
            self._take_down(play_result)
        assert len({*codes}) == 1, f"the pods ended with {codes}\n{output}"
        return Ended(code=int(codes[0]), output=output, seconds=took)

    def _read_output(self, container: str) -> str:
        process = self.box.run("podman", "logs", container, env=_ENV)
        return process.stdout + process.stderr

    def _take_down(self, play_result: Sequence[Play]) -> None:
        """The volume of a ConfigMap, which all share, goes by force alone, and with the last that uses it."""
        *others, last = play_result
        for each in others:
            self.podman("kube", "down", "-", text=each.text)
        self.podman("kube", "down", "--force", "-", text=last.text)

    def left(self) -> set[str]:
        """Return the names of all objects except the image and the network."""
        queries = (("pod", "ps"), ("volume", "ls"), ("network", "ls"))
        names = [self.podman(*words, "--format={{.Name}}").split() for words in queries]
        containers = self.podman("ps", "--all", "--format={{.Names}}").split()
        return {*containers, *chain.from_iterable(names)} - {_NETWORK, _DEFAULT}


@contextmanager
def podman(tree: Path, folder: Path) -> Iterator[Podman]:
    """Start a podman that ends with its containers at the end of the block. Raises NoLauncherError."""
    if os.geteuid() != 0:
        raise NoLauncherError("a machine wants root")
    groups.sweep(_PREFIX)  # of tests that were killed
    name = f"{_PREFIX}{os.getpid()}"
    try:
        own = groups.as_own(name)
        with network(tree, folder) as net:
            box = net.add("podman", own)
            net.introduce()
            yield _ready(box)
    finally:
        groups.remove(name)


def _ready(box: Box) -> Podman:
    """Load the image. Its storage is in memory, as a swarm's is: 0.9 GB, and 0.3 GB more during the load."""
    box.ask("mount", "--mkdir", "-t", "tmpfs", "tmpfs", _STORAGE)
    box.ask("mkdir", "-p", f"{_STORAGE}/storage/tmp")
    box.write("/etc/containers/containers.conf", _SETTINGS)
    value = Podman(box=box)
    value.podman("network", "create", _NETWORK)
    return value
