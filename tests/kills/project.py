"""A project whose builds are killed: the init image, small wheels, or the real CPU image."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.conftest import CPU, INIT, ROOT, Completed, torchbake
from tests.e2e.test_layers import RUNTIME, make_site, write_stack
from torchbake.core.files import files_below

IMAGES: Mapping[str, tuple[str, Sequence[str]]] = {
    "init": (INIT, ("--version",)),
    "stack": (RUNTIME, ("python", "-c", "import triton")),
    "cpu": (CPU, ("python", "-c", "import torch; torch.ones(2).sum()")),
}
_PROMPT = 300  # seconds in which a build must end whose engine was killed


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project with its own folder, store of layers and folder for temporary files."""

    folder: Path
    image: str
    command: Sequence[str]  # a command which shows that the image works
    variables: Mapping[str, str]

    @classmethod
    def make(cls, kind: str, folder: Path, bases: Path, layers: Path | None) -> "Project":
        """Write and lock a project; ``layers`` are packed before."""
        (folder / "tmp").mkdir(parents=True)
        store = folder / "packed-layers"
        if layers:
            shutil.copytree(layers, store)
        project = folder / "project"
        project.mkdir()
        variables = {"TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(ROOT)}
        if kind == "stack":
            variables |= make_site(project, write_stack(folder / "wheels"), bases).env
        else:
            (project / ".torchbake").mkdir()
            (project / ".torchbake/bases").symlink_to(bases)
            shutil.copy(ROOT / "matrix.yaml", project)
            shutil.copytree(ROOT / "images", project / "images")
        _commit(project)  # an image names its commit and the time of it
        image, command = IMAGES[kind]
        own = {"TORCHBAKE_LAYERS": str(store)}
        return cls(folder=project, image=image, command=command, variables={**variables, **own})

    @property
    def stores(self) -> tuple[Path, Path]:
        """The folders of the layers and of the images."""
        return Path(self.variables["TORCHBAKE_LAYERS"]), self.folder / ".torchbake/layout"

    def start(self, engine: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
        """Start a build in a new process group."""
        with log.open("wb") as errors:
            words = ("build", self.image, "--matrix", str(self.folder / "matrix.yaml"))
            return subprocess.Popen(
                [sys.executable, "-m", "torchbake", *words], cwd=self.folder,
                env={**os.environ, **self.variables, **engine}, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                start_new_session=True,
            )  # fmt: skip

    def run(self, engine: Mapping[str, str], *words: str) -> Completed:
        """Run a command of torchbake to its end."""
        return torchbake(*words, "--matrix", str(self.folder / "matrix.yaml"), env={**self.variables, **engine})

    def forget(self, what: Sequence[str]) -> None:
        """Remove stores: "layers" or "layout"."""
        for name, folder in zip(("layers", "layout"), self.stores, strict=True):
            if name in what:
                shutil.rmtree(folder, ignore_errors=True)

    def left_over(self) -> list[str]:
        """List the files of killed builds: unfinished blobs, folders of runs, locks of keys, temporary files."""
        names = (".lock", ".index.lock")
        inside = [path for store in self.stores for path in store.glob("**/*") if path.is_file()]
        paths = [path for path in inside if path.name.startswith(".") and path.name not in names]
        paths += [path for store in self.stores for path in (*store.glob(".work-*"), *store.glob("locks/*"))]
        state = self.folder / ".torchbake"
        paths += [path for path in (*state.glob(".*"), *state.glob("runs/*/.*")) if path.is_file()]
        return sorted(map(str, paths))

    def temporary(self) -> list[str]:
        """List the files in the folder for temporary files; a killed process leaves its own."""
        return sorted(str(path) for path in files_below(Path(self.variables["TMPDIR"])))


def _commit(folder: Path) -> None:
    (folder / ".gitignore").write_text(".torchbake\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "A project to kill builds of")):
        identity = ("-c", "user.name=torchbake", "-c", "user.email=torchbake@example.invalid")
        subprocess.run(["git", *identity, *words], cwd=folder, check=True)


def kill(process: "subprocess.Popen[bytes]", *, group: bool) -> None:
    """Kill a build with all of its group, or its first process alone, as a full memory does."""
    (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)


def end_of(process: "subprocess.Popen[bytes]") -> int | None:
    """Wait until a build has ended; None if it hangs, and is killed."""
    try:
        return process.wait(_PROMPT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None
