"""Run uv on a project: export its lock, or resolve its requirements."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.uv import uv_environment
from torchbake.matrix.spec import ProjectSpec

_NAME = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])? ?(?:==|@)")
_VIA = re.compile(r"^\s+#\s+(?:via\s+)?([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?\s*$", flags=re.MULTILINE)


def export_uv_lock(folder: Path, project: ProjectSpec, path: str, config: PipConfig) -> tuple[str, str]:
    """Export a project's uv.lock with its groups and extras: as a pylock.toml, and as requirements with ``# via``.

    uv reads only files of the project, and changes none. Raises LockError with uv's message.
    """
    words = ["export", "--frozen", "--offline", "--quiet", "--no-header", "--no-default-groups"]
    words += [word for extra in project.extras for word in ("--extra", extra)]
    words += [word for group in project.groups for word in ("--group", group)]
    hint = f"`uv export --frozen` in {project.folder} must work. To lock the project again: uv lock"
    document = run_uv(folder, [*words, "--format", "pylock.toml"], path, config, hint=hint)
    return document, run_uv(folder, [*words, "--no-hashes"], path, config, hint=hint)


def run_uv(folder: Path, words: Sequence[str], path: str, config: PipConfig, *, hint: str) -> str:
    """Run uv in a project's folder, and return its output. Raises LockError with uv's message for the lock at path."""
    import uv  # noqa: PLC0415 - only a run that locks needs it

    process = subprocess.run(
        [str(uv.find_uv_bin()), *words],
        cwd=folder, env=uv_environment(config), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, close_fds=False,
    )  # fmt: skip
    if process.returncode:
        lines = [line.strip() for line in process.stderr.splitlines() if line.strip()]
        raise LockError(f"{path}: " + ("\n  ".join(lines[-12:]) or "uv printed no reason"), hint=hint)
    return process.stdout


def via_of(requirements: str) -> dict[str, set[str]]:
    """Return the packages that require each package, by uv's and pip-compile's comments ``# via``."""
    via = dict[str, set[str]]()
    for block in re.split(r"\n(?=\S)", requirements):
        if match := _NAME.match(block):
            names = (canonicalize_name(name) for name in _VIA.findall(block) if name != "via")
            via.setdefault(canonicalize_name(match[1]), set()).update(names)
    return via
