"""A shell with nox alone, installed by pip: without uv, and with pip's defaults except for the package index."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torchbake.hostconfig.proxies import PROXY_VARIABLES

ROOT = Path(__file__).resolve().parents[2]
# The variables by which a machine reaches packages and its engine. No other variable of this host is passed on.
_KEEP = (
    "PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_PROXY", "PIP_CONFIG_FILE", "DOCKER_HOST",
    "TORCHBAKE_ENGINE_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", *PROXY_VARIABLES,
)  # fmt: skip
_PIP_CACHE = os.environ.get("PIP_CACHE_DIR") or str(Path.home() / ".cache/pip")


@dataclass(frozen=True, kw_only=True)
class Bare:
    """A virtual environment with nox, and a copy of the working tree with a separate `.nox`."""

    folder: Path

    @property
    def venv(self) -> Path:
        return self.folder / "venv"

    @property
    def tree(self) -> Path:
        return self.folder / "tree"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def make(self) -> None:
        """Fill the folder, with the nox that pip chooses."""
        copy_tree(self.tree)
        self.home.mkdir()
        subprocess.run([sys.executable, "-m", "venv", self.venv], check=True)
        subprocess.run([self.venv / "bin/pip", "install", "--quiet", "nox"], env=self.env(), check=True)

    def env(self, *, uv: bool = False) -> dict[str, str]:
        variables = {name: os.environ[name] for name in _KEEP if name in os.environ}
        path = os.pathsep.join((f"{self.venv}/bin", os.environ["PATH"] if uv else path_without_uv()))
        return {**variables, "PATH": path, "HOME": str(self.home), "PIP_CACHE_DIR": _PIP_CACHE, "LANG": "C.UTF-8"}

    def nox(
        self, *words: str, tree: Path | None = None, folder: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run nox in ``folder``, by default the root of the tree."""
        tree = tree or self.tree
        where = ["-f", str(tree / "noxfile.py")] if folder else []
        return subprocess.run(
            [f"{self.venv}/bin/nox", *where, *words], cwd=folder or tree, env=env or self.env(),
            capture_output=True, text=True, timeout=580, check=False,
        )  # fmt: skip


def path_without_uv() -> str:
    """Return PATH without the folders that hold uv. Raises AssertionError if docker, git or bash is missing from it."""
    folders = [folder for folder in os.environ["PATH"].split(os.pathsep) if not (Path(folder) / "uv").exists()]
    path = os.pathsep.join(folders)
    assert all(shutil.which(name, path=path) for name in ("docker", "git", "bash")), f"only beside uv, in {path}"
    return path


def copy_tree(target: Path) -> Path:
    """Copy the files that a commit of the working tree would hold, and return the target."""
    process = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"], check=True, capture_output=True, text=True
    )
    for name in filter(None, process.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target
