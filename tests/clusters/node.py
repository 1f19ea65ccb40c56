"""A Kubernetes node of one machine in its own namespaces, which leaves nothing on the host."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.clusters import groups

HERE = Path(__file__).parent / "kubernetes"
START = 120  # seconds
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child", "--propagation=private")
_WORK, _PREFIX = Path("/var/tmp"), "torchbake-node-"

Completed = subprocess.CompletedProcess[str]


@dataclass(frozen=True, kw_only=True)
class Node:
    """A running node: ``pid`` is the first process, ``state`` the folder that is mounted at /var/lib/node."""

    pid: int
    tree: Path
    state: Path

    def inside(self, *command: str) -> list[str]:
        """Return the command line that runs a command on the node."""
        return ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--root", "--wd=/", "--", *command]

    def reaching(self, *command: str) -> list[str]:
        """Return the command line that runs a host's command in the node's network, where the API server is."""
        return ["nsenter", f"--target={self.pid}", "--net", "--", *command]

    def containerd(self, *words: str) -> list[str]:
        """Return the command line for containerd's objects of Kubernetes."""
        return self.inside("ctr", "--namespace=k8s.io", *words)

    def kubectl(self, *words: str, stdin: str | None = None) -> Completed:
        """The kubectl of this Kubernetes, from the host."""
        command = self.kubectl_command(*words)
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300, check=False)

    def kubectl_command(self, *words: str) -> list[str]:
        return self.reaching(f"{self.tree}/usr/bin/kubectl", f"--kubeconfig={self.kubeconfig}", *words)

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    def load(self, image: str) -> None:
        """Give the node an image of the engine's."""
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saved:
            process = subprocess.run(
                self.containerd("images", "import", "-"),
                stdin=saved.stdout,
                capture_output=True,
                text=True,
                check=False,
            )
        assert process.returncode == 0, process.stderr

    def logs(self) -> str:
        """The last lines of each part's log."""
        paths = sorted(self.state.glob("log/*.log"))
        return "\n".join(f"{path.name}:\n" + "\n".join(path.read_text().splitlines()[-8:]) for path in paths)


@contextmanager
def start_node(tree: Path) -> Iterator[Node]:
    """Start one, and end it with all its pods."""
    _sweep()
    work = _WORK / f"{_PREFIX}{os.getpid()}"
    work.mkdir()
    for controller in groups.controllers():
        (controller / work.name).mkdir()
    # The kernel kills the node when its parent ends for any reason, and then all processes of the node.
    words = [str(HERE / "node"), str(tree), str(work), f"/{work.name}"]
    command = ["setpriv", "--pdeathsig=KILL", "unshare", *_NAMESPACES, *words]
    try:
        with (work / "log").open("w") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            _wait(process, work)
            yield Node(pid=_first_of(process.pid), tree=tree, state=work / "state")
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    finally:
        _clean(work)


def _sweep() -> None:
    """Clean up after those whose tests were killed."""
    for work in _WORK.glob(f"{_PREFIX}*"):
        if not Path("/proc", work.name.removeprefix(_PREFIX)).exists():
            _clean(work)


def _first_of(pid: int) -> int:
    """Return the id of the process that `unshare` has forked."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def _wait(process: "subprocess.Popen[bytes]", work: Path) -> None:
    end = time.monotonic() + START
    while not (work / "state/ready").exists():
        logs = Node(pid=0, tree=work, state=work / "state").logs
        assert process.poll() is None, (work / "log").read_text() + logs()
        assert time.monotonic() < end, f"the node is not ready after {START} s\n{logs()}"
        time.sleep(0.1)


def _clean(work: Path) -> None:
    """Remove a stopped node's files and cgroups."""
    groups.remove(work.name)
    shutil.rmtree(work)
