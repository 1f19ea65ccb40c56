"""A swarm: engines of their own, each in a machine; nothing of it touches the engine that is here."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.launchers.boxes import Box, network
from tests.e2e.launchers.ended import Ended
from tests.e2e.waiting import until

_GROUPS = Path("/sys/fs/cgroup")
_DATA = "/var/lib/docker"
_OVER = ("complete", "failed", "rejected", "shutdown", "orphaned", "remove")


@dataclass(frozen=True, kw_only=True)
class Swarm:
    """Its machines; the first manages it."""

    boxes: tuple[Box, ...]

    def docker(self, *words: str, text: str | None = None) -> str:
        """What a manager's user types. Raises AssertionError where it fails."""
        done = subprocess.run(
            self.boxes[0].command("docker", *words),
            input=text,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"docker {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def load(self, image: str) -> None:
        """Each of these engines has an image of ours."""
        for box in self.boxes:
            with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saved:
                subprocess.run(box.command("docker", "load"), stdin=saved.stdout, check=True, capture_output=True)

    def run(self, stack: str, name: str, seconds: float) -> Ended:
        """Deploy a stack, wait until its tasks have ended, and remove it; the exit code is that of node 0."""
        began = time.monotonic()
        self.docker("stack", "deploy", "--detach", "--with-registry-auth", "--compose-file", "-", name, text=stack)
        while not (tasks := self._ended(name)):
            assert time.monotonic() - began < seconds, self.docker("stack", "ps", "--no-trunc", name)
            time.sleep(0.2)
        took = time.monotonic() - began
        services = self.docker("stack", "services", "--format", "{{.Name}}", name).split()
        said = "".join(f"{self.docker('service', 'logs', '--raw', service)}\n" for service in sorted(services))
        self.docker("stack", "rm", name)
        until(lambda: not self.left(), 60)
        return Ended(code=tasks[f"{name}_node-0"], said=said, seconds=took)

    def _ended(self, name: str) -> dict[str, int]:
        """The exit codes of a stack's services, once there is one of each."""
        tasks = json.loads(f"[{','.join(self._inspect(name))}]")
        over = all(task["Status"]["State"] in _OVER for task in tasks)
        if not tasks or not over:
            return {}
        services = json.loads(self.docker("service", "inspect", *{task["ServiceID"] for task in tasks}))
        names = {service["ID"]: service["Spec"]["Name"] for service in services}
        return {names[task["ServiceID"]]: task["Status"]["ContainerStatus"]["ExitCode"] for task in tasks}

    def _inspect(self, name: str) -> list[str]:
        numbers = self.docker("stack", "ps", "--no-trunc", "--quiet", name).split()
        return self.docker("inspect", "--format", "{{json .}}", *numbers).splitlines() if numbers else []

    def left(self) -> str:
        """What of stacks is still there."""
        asked = (("service", "ls"), ("ps", "--all"), ("network", "ls", "--filter", "scope=swarm", "--filter", "label=com.docker.stack.namespace"))
        return "".join(self.docker(*words, "--quiet") for words in asked)


@contextmanager
def swarm(tree: Path, folder: Path, *, nodes: int) -> Iterator[Swarm]:
    """One that takes stacks. Raises NoLauncherError."""
    with network(tree, folder / "machines") as net:
        for number in range(nodes):
            data = folder / f"data{number}"
            data.mkdir(parents=True)
            net.add(f"d{number + 1}", {data: _DATA})
        net.introduce()
        parent = f"torchbake-test-{folder.name}-{time.monotonic_ns()}"
        try:
            for box in net.boxes:
                _start(box, parent)
            yield _joined(tuple(net.boxes))
        finally:
            for box in net.boxes:
                _stop(box)
            _remove_groups(parent)
    shutil.rmtree(folder)


def _start(box: Box, parent: str) -> None:
    # containers with mounts below the engine's own: it shares them with those that it starts
    box.ask("mount", "--make-rshared", "/")
    box.start(
        "dockerd", "--host=unix:///run/docker.sock", f"--data-root={_DATA}", "--bip=172.31.0.1/24",
        "--exec-opt=native.cgroupdriver=cgroupfs", f"--cgroup-parent=/{parent}", "--pidfile=/run/dockerd.pid",
    )  # fmt: skip
    until(lambda: box.run("docker", "info").returncode == 0, 60)


def _joined(boxes: tuple[Box, ...]) -> Swarm:
    first, *others = boxes
    first.ask("docker", "swarm", "init", "--advertise-addr", first.address)
    token = first.ask("docker", "swarm", "join-token", "--quiet", "worker")
    for box in others:
        box.ask("docker", "swarm", "join", "--token", token, "--advertise-addr", box.address, f"{first.address}:2377")
    return Swarm(boxes=boxes)


def _stop(box: Box) -> None:
    """In good order, as what it made of the kernel's is not all below the machine."""
    box.run("docker", "swarm", "leave", "--force")
    box.run("sh", "-c", "kill $(cat /run/dockerd.pid); while [ -e /run/dockerd.pid ]; do sleep 0.1; done", timeout=60)


def _remove_groups(parent: str) -> None:
    for group in (*_GROUPS.glob(f"*/{parent}"), *_GROUPS.glob(parent)):
        for below in sorted(group.rglob("*/"), reverse=True):
            below.rmdir()
        group.rmdir()
