"""The collection's playbooks, played on boxes as from a control machine: by the real ansible-playbook, over ssh."""

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.e2e.bare import ROOT, Bare
from tests.e2e.boxes import Boxes
from tests.e2e.conftest import CPU
from tests.e2e.galaxy import BIN
from tests.e2e.stand_in import torch_wheel

Hosts = Mapping[str, Mapping[str, object]]  # the variables of each
SMALL = ("setuptools",)
LOCK = ROOT / f"images/{CPU}/requirements.lock"
_PIN = re.compile(r"(?m)^([a-z0-9-]+)==.*\n(?:    .*\n)*")  # of a lock
_RECAP = re.compile(r"(?m)^(\S+) +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) +failed=(\d+)")


@dataclass(frozen=True, kw_only=True)
class Play:
    """How a playbook ended. ``changed`` and ``failed`` count tasks, by host."""

    code: int
    output: str

    @property
    def changed(self) -> dict[str, int]:
        return {name: int(changed) for name, _, changed, _, _ in _RECAP.findall(self.output)}

    @property
    def failed(self) -> dict[str, int]:
        return {name: int(missing) + int(failed) for name, _, _, missing, failed in _RECAP.findall(self.output)}


@dataclass(frozen=True, kw_only=True)
class Plays:
    """A control machine: the collection installed below ``collections``, boxes to reach, and variables of all hosts."""

    boxes: Boxes
    collections: Path
    variables: Mapping[str, object]
    hosts: Hosts = field(default_factory=dict)

    def command(self, playbook: str, *words: str, **variables: object) -> list[str]:
        """Variables of this call win over all others, as those of `-e` do."""
        inventory = self.boxes.folder / "inventory.json"
        inventory.write_text(json.dumps({"all": {"hosts": self.hosts, "vars": self.variables}}))
        extra = ["-e", json.dumps(variables)] if variables else []
        return [str(BIN / "ansible-playbook"), "-i", str(inventory), *extra, *words, f"torchbake.pytorch.{playbook}"]

    def env(self) -> dict[str, str]:
        folder, path = self.boxes.folder, f"{BIN}{os.pathsep}{os.environ['PATH']}"
        (folder / "ansible.cfg").touch()  # none of this machine's
        own = {"ANSIBLE_COLLECTIONS_PATH": self.collections, "ANSIBLE_CONFIG": folder / "ansible.cfg", "PATH": path}
        kept_value = "-o ControlMaster=auto -o ControlPersist=30s"
        return {
            **self.boxes.env(),
            **{name: str(value) for name, value in own.items()},
            "ANSIBLE_SSH_ARGS": f"-F {self.boxes.config} {kept_value}",
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_FORKS": "12",
        }

    def __call__(self, playbook: str, *words: str, **variables: object) -> Play:
        process = subprocess.run(
            self.command(playbook, *words, **variables), env=self.env(), cwd=self.boxes.folder,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1500, check=False,
        )  # fmt: skip
        return Play(code=process.returncode, output=process.stdout)


def small_lock(folder: Path, names: Collection[str] = SMALL) -> Path:
    """Write a lock of the CPU image with only these packages and the stand-in for torch, and return the folder."""
    (wheel,) = torch_wheel(folder / "wheels").glob("torch-*.whl")
    torch = f"torch==2.13.0+cpu \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"

    def shrunk(pin: re.Match[str]) -> str:
        return torch if pin[1] == "torch" else pin[0] if pin[1] in names else ""

    (folder / CPU).mkdir(parents=True)
    (folder / CPU / "requirements.lock").write_text(_PIN.sub(shrunk, LOCK.read_text()))
    return folder


def small_wheels(bare: Bare, folder: Path, names: Collection[str] = SMALL) -> Path:
    """Make a simple index with the wheels of the small lock."""
    folder.mkdir(exist_ok=True)
    (folder / "small.txt").write_text("".join(pin[0] for pin in _PIN.finditer(LOCK.read_text()) if pin[1] in names))
    _download(bare, folder, folder / "small.txt")
    torch_wheel(folder / "torch")
    return folder


def locked_wheels(bare: Bare, folder: Path) -> Path:
    """Make a simple index with the wheels of the CPU image's lock, from wherever this host's pip has them."""
    _download(bare, folder, LOCK)
    return folder


def _download(bare: Bare, folder: Path, lock: Path) -> None:
    words = ("--quiet", "--require-hashes", "--no-deps", "--only-binary", ":all:", "--python-version", "3.11")
    platforms = [word for minor in (28, 27, 17) for word in ("--platform", f"manylinux_2_{minor}_x86_64")]
    command = [str(bare.venv / "bin/pip"), "download", *words, *platforms, "-r", str(lock), "-d", str(folder)]
    subprocess.run(command, env=bare.env(), check=True)
    for wheel in folder.glob("*.whl"):
        (folder / canonicalize_name(wheel.name.split("-")[0])).mkdir()
        wheel.rename(folder / canonicalize_name(wheel.name.split("-")[0]) / wheel.name)
