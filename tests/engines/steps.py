"""The steps of an image on an engine, one command each, and their results."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.e2e.conftest import INIT, ROOT
from tests.engines.bases import matrix_with

_PYTHON = "/usr/bin/python3"  # the system's own
_EPOCH = "1735689600"  # the time of the images: no commit tells it
_VERSION = (_PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_SECONDS = 1200  # for one command, on a machine that does much else


@dataclass(frozen=True, kw_only=True)
class Step:
    """How one command ended. ``began_work``: it wrote a file for BuildKit."""

    name: str
    code: int
    output: str
    errors: str
    seconds: float
    began_work: bool

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def refused(self) -> bool:
        """Return whether torchbake reported an error with its reason or the next step, and began no build."""
        match = re.search(r"^error: .+\n  \S", self.errors, re.MULTILINE)
        return self.code not in (0, 1) and bool(match) and "Traceback" not in self.errors and not self.began_work

    def __str__(self) -> str:
        return f"{self.name}: exit code {self.code} after {self.seconds:.1f} s\n{self.output}{self.errors}"


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project with its own state. ``client`` is the torchbake command. The ``variables`` name the engine.

    ``more`` are options of a step, by its name.
    """

    folder: Path
    registry: str
    builder: str
    variables: Mapping[str, str]
    client: Sequence[str] = (sys.executable, "-m", "torchbake")
    more: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path, base: str, registry: str, builder: str, variables: Mapping[str, str]) -> "Project":
        """Write a project on a base image."""
        (folder / ".torchbake").mkdir(parents=True)
        (folder / "matrix.yaml").write_text(matrix_with(base))
        return cls(folder=folder, registry=registry, builder=builder, variables=variables)

    def keep_bases_in(self, bases: Path) -> "Project":
        """Share bootstrapped bases with other projects."""
        (self.folder / ".torchbake/bases").symlink_to(bases)
        return self

    def as_user(self, uid: int, home: Path) -> "Project":
        """Give the project to an ordinary user, who runs an installed torchbake with the system's Python."""
        venv = home / "venv"
        subprocess.run([_PYTHON, "-m", "venv", "--without-pip", venv], check=True)
        pip = (sys.executable, "-m", "pip", f"--python={venv}/bin/python", "install", "--quiet", str(ROOT))
        subprocess.run(pip, check=True)
        self._copy_bases()
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, uid, uid, follow_symlinks=False)
        user = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
        environment = ("env", "--unset=PYTHONPATH", f"HOME={home}")
        return replace(self, client=(*user, *environment, f"{venv}/bin/torchbake"))

    def in_container(self, client: Sequence[str], home: Path) -> "Project":
        """Run torchbake in a container that has these folders, by ``client``. Its Python has another version."""
        self._copy_bases()
        pip, wheels, site = (sys.executable, "-m", "pip"), home / "wheels", home / "site"
        subprocess.run([*pip, "wheel", "--quiet", "--no-deps", f"--wheel-dir={wheels}", str(ROOT)], check=True)
        version = subprocess.run([*client, *_VERSION], check=True, capture_output=True, text=True).stdout.strip()
        choices = ("--only-binary=:all:", f"--python-version={version}", f"--target={site}")
        subprocess.run([*pip, "install", "--quiet", *choices, *wheels.glob("*.whl")], check=True)
        certificates = shutil.copy(os.environ.get("SSL_CERT_FILE", _CERTIFICATES), home / "certificates.crt")
        names = (f"PYTHONPATH={site}", f"SSL_CERT_FILE={certificates}", f"SOURCE_DATE_EPOCH={_EPOCH}")
        environment = ("env", f"--chdir={self.folder}", *names)
        return replace(self, client=(*client, *environment, _PYTHON, "-m", "torchbake"))

    def _copy_bases(self) -> None:
        bases = self.folder / ".torchbake/bases"
        if bases.is_symlink():
            path = bases.resolve()
            bases.unlink()
            shutil.copytree(path, bases)

    def run(self, name: str, *, registry: str = "") -> Step:
        """Run the command of a step, with another registry than the project's own where one is given."""
        env = {
            **os.environ, **self.variables, "PYTHONPATH": str(ROOT), "TORCHBAKE_LAYERS": f"{self.folder}/layers",
            "SOURCE_DATE_EPOCH": _EPOCH,
        }  # fmt: skip
        began, builds = time.monotonic(), self._builds()
        options = [*self._options(name, registry or self.registry), *self.more.get(name, ())]
        process = subprocess.run(
            [*self.client, name, INIT, *options], cwd=self.folder, env=env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
        return Step(
            name=name, code=process.returncode, output=process.stdout, errors=process.stderr,
            seconds=time.monotonic() - began, began_work=self._builds() > builds,
        )  # fmt: skip

    def _options(self, name: str, registry: str) -> list[str]:
        builder = ["--builder", self.builder] if self.builder else []
        of = {
            "base": ["--source", "bootstrap"],
            "build": builder,
            "test": ["--gpu", "off"],
            "publish": ["--registry", registry, "--plain-http"],
            "validate": ["--registry", registry, "--plain-http"],
            "reproduce": builder,
        }
        return of.get(name, [])

    def _builds(self) -> int:
        return len(list(self.folder.glob(".torchbake/runs/*/*.bake.json")))
