"""Machines that are reached by ssh alone: bare Debian or Ubuntu with sshd in containers, and ssh settings for them."""

import contextlib
import os
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import docker
from docker.models.containers import Container

from tests.e2e.owned import OURS
from tests.e2e.roots import UBUNTU, bare_root
from tests.e2e.waiting import until

SSHD = ("openssh-server", "procps")
# The only box of most tests: to bootstrap another takes longer than to purge packages that a test must not find.
BOOKWORM = {"suite": "bookworm", "packages": (*SSHD, "python3", "sudo")}
# Ubuntu's own Python comes with the first `apply`; needrestart is on each of its servers.
NOBLE = {"suite": UBUNTU, "packages": (*SSHD, "needrestart")}
_START = "mkdir -p /run/sshd && ssh-keygen -A >/dev/null && exec /usr/sbin/sshd -D -e -o UseDNS=no"


@dataclass(frozen=True, kw_only=True)
class Box:
    """A machine reached by ssh; ``name`` is both the ssh alias and the host name on the boxes' network."""

    name: str
    container: Container
    boxes: "Boxes"

    def ssh(self, command: str, *, user: str = "root", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command over ssh, with a key and never with a password."""
        words = ["ssh", "-F", str(self.boxes.config), "-l", user, self.name, command]
        process = subprocess.run(words, env=self.boxes.env(), capture_output=True, text=True, timeout=300, check=False)
        assert not check or process.returncode == 0, process.stdout + process.stderr
        return process

    def inside(self, command: str) -> str:
        """Run a command as root, past ssh."""
        code, answer = self.container.exec_run(["bash", "-ec", command])
        assert isinstance(answer, bytes)
        assert code == 0, answer.decode()
        return answer.decode()


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """All boxes of a test, and how to reach them: ``config`` for `ssh -F`, the key without a password."""

    folder: Path
    boxes: list[Box] = field(default_factory=list)

    @property
    def config(self) -> Path:
        return self.folder / "config"

    @property
    def key(self) -> Path:
        return self.folder / "key"

    def env(self) -> dict[str, str]:
        """Return the environment for Ansible and ssh: this process's, with only the ssh settings of the boxes."""
        mine = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        # Control sockets are named after the host: in a shared folder, ssh would reuse another test's connection.
        folders = {"ANSIBLE_HOME": f"{self.folder}/ansible", "ANSIBLE_SSH_CONTROL_PATH_DIR": f"{self.folder}/cp"}
        return {**mine, **folders, "ANSIBLE_SSH_ARGS": f"-F {self.config}"}

    def add(self, engine: docker.DockerClient, name: str, network: str, image: str) -> Box:
        """Start a box, authorize the key, and wait until ssh answers."""
        container = engine.containers.run(
            image, ["bash", "-c", _START], detach=True, hostname=name, ports={"22/tcp": ("127.0.0.1", 0)},
            network=network, networking_config={network: engine.api.create_endpoint_config(aliases=[name])},
            shm_size="256m", name=f"{network}-{name}", labels=OURS,
        )  # fmt: skip
        box = Box(name=name, container=container, boxes=self)
        self.boxes.append(box)
        public = self.key.with_suffix(".pub").read_text()
        box.inside(f"install -d -m 700 /root/.ssh && echo '{public.strip()}' > /root/.ssh/authorized_keys")
        container.reload()
        (published,) = container.ports["22/tcp"] or []
        with self.config.open("a") as config:
            config.write(_SETTINGS.format(name=name, port=published["HostPort"], key=self.key))
        until(lambda: box.ssh("true", check=False).returncode == 0)
        return box


# ssh masters end with the box; the user's known_hosts is not touched.
_SETTINGS = """\
Host {name}
    HostName 127.0.0.1
    Port {port}
    IdentityFile {key}
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
    BatchMode yes

"""


def purge_python(box: Box) -> None:
    """Remove Python and sudo from a box, whatever depends on them."""
    names = "dpkg-query -W -f '${db:Status-Abbrev}${Package}\\n' '*python3*' sudo | sed -n 's/^ii *//p'"
    box.inside(f"SUDO_FORCE_REMOVE=yes dpkg --purge --force-depends $({names})")
    box.inside("! command -v python3 && ! command -v sudo")


@contextmanager
def new_boxes(engine: docker.DockerClient, systems: Mapping[str, Mapping[str, str | Sequence[str]]]) -> Iterator[Boxes]:
    """Start boxes by name on a new network, and remove both at the end."""
    network = engine.networks.create(f"torchbake-test-{uuid.uuid4().hex[:8]}", labels=OURS)
    with tempfile.TemporaryDirectory(prefix="boxes-") as folder:  # sockets of ssh want a short path
        boxes = Boxes(folder=Path(folder))
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", boxes.key], check=True)
        try:
            for name, system in systems.items():
                boxes.add(engine, name, network.name, bare_root(**system))  # type: ignore[arg-type]
            yield boxes
        finally:
            for box in boxes.boxes:
                with contextlib.suppress(docker.errors.APIError):
                    box.container.remove(force=True, v=True)
            network.remove()
