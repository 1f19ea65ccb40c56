"""The Python environment in which nox runs the commands of a checkout: made once, by uv or pip, from pyproject.toml.

nox could make it from a header in the noxfile, but then pip writes to stdout at every call. This module runs in nox's
environment, so it imports the standard library alone. An installed torchbake needs no such environment.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from torchbake import MATRIX_VARIABLE
from torchbake.core.child import run
from torchbake.core.paths import CHECKOUT, TOOLKIT
from torchbake.core.tool_variables import ToolName, inherited_variables, note_of_ignored
from torchbake.errors import InstallError, TorchbakeError

_READY = "torchbake-ready"  # written last: an environment without it is incomplete


def run_command(words: Sequence[str], *, project: Path, folder: Path) -> int:
    """Run a command in ``folder``, on the matrix of the folder ``project``; return its exit code."""
    try:
        start = [str(ensure(TOOLKIT)), str(TOOLKIT)] if CHECKOUT else [sys.executable, "-m", "torchbake"]
    except TorchbakeError as error:
        print(error.text, file=sys.stderr)
        return error.exit_code
    env = {MATRIX_VARIABLE: str(project / "matrix.yaml"), **os.environ}
    return run([*start, *words], folder=folder, env=env)


def ensure(root: Path) -> Path:
    """Return the Python of the environment, which is made if it is missing. Raises InstallError."""
    packages = requirements(root)
    folder = root / ".nox" / f"torchbake-{_digest(packages)}"
    python = folder / "bin/python"
    if not ((folder / _READY).exists() and python.exists()):
        try:
            _make(root, folder, packages)
        except OSError as error:
            raise InstallError(
                f"{folder} cannot be made: {error.strerror or error}.",
                hint="Make the folder writable, or free some space, then run again.",
            ) from None
    return python


def requirements(root: Path) -> list[str]:
    """Return the packages that the toolkit requires."""
    with (root / "pyproject.toml").open("rb") as file:
        packages: list[str] = tomllib.load(file)["project"]["dependencies"]
    return packages


def _digest(packages: Sequence[str]) -> str:
    """Name the environment by its packages and its Python, so that an environment in use never changes."""
    parts = [*packages, sys.version, os.path.realpath(sys.executable)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _make(root: Path, folder: Path, packages: Sequence[str]) -> None:
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / _READY).exists() and (folder / "bin/python").exists():
            return  # another process made it while this process waited
        _say(f"installing its Python packages into {folder.relative_to(root)}; this is done once")
        _install(folder, packages, lock.fileno())
        (folder / _READY).touch()


def _install(folder: Path, packages: Sequence[str], lock: int) -> None:
    """Install by the first tool that succeeds. Each inherits the lock, since it may outlive a killed nox."""
    if note := note_of_ignored(os.environ, "uv", "pip"):
        _say(note)
    for name, commands in _tools(folder, packages):
        shutil.rmtree(folder, ignore_errors=True)
        # Their output is not a result, so it goes to stderr.
        if all(_run(name, words, lock) for words in commands):
            return
        _say(f"{name} could not install them")
    raise InstallError(
        "The toolkit's Python packages could not be installed; see the messages above.",
        hint="pip's own settings (index, proxy, certificate) are used: try `pip download pydantic`, then run again.",
    )


def _run(tool: ToolName, words: Sequence[str], lock: int) -> bool:
    env = inherited_variables(tool, os.environ)
    return subprocess.run(words, env=env, stdout=2, check=False, pass_fds=[lock]).returncode == 0


def _tools(folder: Path, packages: Sequence[str]) -> Iterator[tuple[ToolName, list[list[str]]]]:
    python = str(folder / "bin/python")
    uv = shutil.which("uv", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
    if uv:
        install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *packages]
        yield "uv", [[uv, "venv", "--quiet", "--python", sys.executable, str(folder)], install]
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    yield "pip", [[sys.executable, "-m", "virtualenv", "--quiet", str(folder)], install]  # nox comes with virtualenv


def _say(text: str) -> None:
    print(f"torchbake: {text}", file=sys.stderr, flush=True)
