"""A Docker swarm with one engine per machine; this host's engine is not touched."""

import json
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.launchers.boxes import Box, network
from tests.e2e.launchers.ended import Ended
from tests.e2e.waiting import until

_GROUPS = Path("/sys/fs/cgroup")
_OVER = ("complete", "failed", "rejected", "shutdown", "orphaned", "remove")


@dataclass(frozen=True, kw_only=True)
class Swarm:
    """The swarm's machines; the first is the manager. ``shared`` has the same path on this host and on all machines."""

    boxes: tuple[Box, ...]
    shared: Path

    def docker(self, *words: str, text: str | None = None) -> str:
        """Run a docker command on the manager and return its stdout. Raises AssertionError if it fails."""
        process = subprocess.run(
            self.boxes[0].command("docker", *words), input=text, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip
        assert process.returncode == 0, f"docker {' '.join(words)}: {process.stdout}{process.stderr}"
        return process.stdout.strip()

    def load(self, image: str) -> None:
        """Load an image of this host's engine into each engine of the swarm."""
        for box in self.boxes:
            with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as process:
                subprocess.run(box.command("docker", "load"), stdin=process.stdout, check=True, capture_output=True)

    def run(self, stack: str, name: str, seconds: float) -> Ended:
        """Deploy a stack, wait until its tasks have ended, and remove it. All exit codes must be equal."""
        began = time.monotonic()
        self.docker("stack", "deploy", "--detach", "--with-registry-auth", "--compose-file", "-", name, text=stack)
        services = sorted(self.docker("stack", "services", "--format", "{{.Name}}", name).split())
        while len(codes := self._codes(name)) < len(services):
            assert time.monotonic() - began < seconds, self.docker("stack", "ps", "--no-trunc", name)
            time.sleep(0.2)
        took = time.monotonic() - began
        assert len({*codes}) == 1, f"the nodes ended with {codes}"
        output = "\n".join(self._read_output(service) for service in services)
        self.docker("stack", "rm", name)
        until(lambda: not self.left(), 60)
        return Ended(code=codes[0], output=output, seconds=took)

    def _codes(self, name: str) -> list[int]:
        """Return the exit codes of the finished tasks of a stack."""
        numbers = self.docker("stack", "ps", "--no-trunc", "--quiet", name).split()
        tasks = json.loads(self.docker("inspect", *numbers)) if numbers else []
        over = [task["Status"] for task in tasks if task["Status"]["State"] in _OVER]
        return [status.get("ContainerStatus", {}).get("ExitCode", -1) for status in over]

    def _read_output(self, service: str) -> str:
        process = self.boxes[0].run("docker", "service", "logs", "--raw", service)
        return process.stdout + process.stderr

    def left(self) -> str:
        """Return the ids of remaining services, containers and networks of stacks."""
        of_stacks = ("--filter", "scope=swarm", "--filter", "label=com.docker.stack.namespace")
        queries = (("service", "ls"), ("ps", "--all"), ("network", "ls", *of_stacks))
        return "".join(self.docker(*words, "--quiet") for words in queries)


@contextmanager
def swarm(tree: Path, folder: Path, *, machines: int) -> Iterator[Swarm]:
    """Start a swarm that accepts stacks; its engines' data is removed at the end. Raises NoLauncherError."""
    shared, parent = folder / "shared", f"torchbake-test-{uuid.uuid4().hex[:8]}"
    shared.mkdir(parents=True)
    with network(tree, folder / "machines") as net:
        try:
            for number in range(machines):
                _start(net.add(f"d{number + 1}", {shared: str(shared)}), parent)
            net.introduce()
            yield Swarm(boxes=_joined(net.boxes), shared=shared)
        finally:
            for box in net.boxes:
                _stop(box)
            _remove_groups(parent)


def _start(box: Box, parent: str) -> None:
    """Start an engine with its data in memory (2 GB while it loads an image), because a disk is minutes slower."""
    box.ask("mount", "--mkdir", "-t", "tmpfs", "tmpfs", "/var/lib/docker")
    box.start(
        "dockerd", "--host=unix:///run/docker.sock", "--pidfile=/run/dockerd.pid",
        "--exec-opt=native.cgroupdriver=cgroupfs", f"--cgroup-parent=/{parent}",
    )  # fmt: skip
    until(lambda: box.run("docker", "info").returncode == 0, 60)


def _joined(boxes: list[Box]) -> tuple[Box, ...]:
    first, *others = boxes
    first.ask("docker", "swarm", "init", "--advertise-addr", first.address)
    token = first.ask("docker", "swarm", "join-token", "--quiet", "worker")
    for box in others:
        box.ask("docker", "swarm", "join", "--token", token, "--advertise-addr", box.address, f"{first.address}:2377")
    return tuple(boxes)


def _stop(box: Box) -> None:
    """Stop the engine cleanly, because some of its kernel objects are outside the machine's namespaces."""
    box.run("docker", "swarm", "leave", "--force")
    box.run("sh", "-c", "kill $(cat /run/dockerd.pid); while [ -e /run/dockerd.pid ]; do sleep 0.1; done", timeout=60)


def _remove_groups(parent: str) -> None:
    for group in (*_GROUPS.glob(f"*/{parent}"), *_GROUPS.glob(parent)):
        for below in sorted(group.rglob("*/"), reverse=True):
            below.rmdir()
        group.rmdir()
