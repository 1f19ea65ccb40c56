"""Where the job's files come from: a mounted folder, else a git repository at a revision."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .launch_error import Code, LaunchError

DEFAULT_FOLDER = "/app"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What each rank starts: the command, its folder, and the commit it was fetched at (empty: mounted)."""

    command: tuple[str, ...]
    folder: Path
    commit: str = ""


def find_job(words: list[str], env: Mapping[str, str], scratch: Path) -> Job:
    """The job of ``SCRIPT ARGS…`` or ``-m MODULE ARGS…``.

    A script is looked for as it is named, then in JOB_DIR, then in GIT_REPOSITORY at GIT_REVISION, which is
    fetched into ``scratch``. Raises LaunchError when it is nowhere.
    """
    folder = Path(env.get("JOB_DIR") or DEFAULT_FOLDER)
    try:
        here = _in(Path.cwd(), words) or _in(folder, words)
    except OSError as error:  # a folder that this user may not enter, a name that is too long, no working folder
        raise LaunchError(
            Code.NO_JOB,
            f"{_name(words)} cannot be searched for ({error.strerror}): "
            f"correct its path, or let uid {os.geteuid()} into its folder.",
        ) from None
    if here:
        return here
    if Path(_name(words)).is_absolute():
        raise LaunchError(Code.NO_JOB, _not_at(Path(words[0])))
    if not env.get("GIT_REPOSITORY", "").strip():
        raise LaunchError(
            Code.NO_JOB,
            f"{_name(words)} is {_not_in(Path.cwd(), folder)}: "
            "mount its folder there, or set GIT_REPOSITORY (and GIT_REVISION).",
        )
    from .repository import fetch, source_of  # noqa: PLC0415 - most jobs are mounted, and need not wait for it

    source, clone = source_of(env), scratch / "job"
    commit = fetch(source, clone, env)
    found = _in(clone, words)
    if not found:
        raise LaunchError(Code.NO_JOB, f"{_name(words)} is not in {source} (commit {commit[:12]}): correct its path.")
    return Job(command=found.command, folder=clone, commit=commit)


def _name(words: list[str]) -> str:
    return f"module {words[1]}" if words[0] == "-m" else words[0]


def _not_at(script: Path) -> str:
    """Why the script of an absolute path cannot be started. It is in one place only: no folder and no repository."""
    if script.is_dir():
        return f"{script} is a folder: name the script in it."
    return f"there is no file {script}: mount its folder at {script.parent}, or correct the path."


def _not_in(here: Path, folder: Path) -> str:
    """The folders that were searched, each once: JOB_DIR often is the working folder."""
    same = here.resolve() == (here / folder).resolve()
    return f"not in {here}" if same else f"neither in {here} nor in {folder}"


def _in(folder: Path, words: list[str]) -> Job | None:
    if words[0] == "-m":
        relative = words[1].replace(".", "/")
        here = any((folder / name).is_file() for name in (f"{relative}.py", f"{relative}/__main__.py"))
        # A module that no folder holds may be an installed one: the interpreter knows.
        installed = folder == Path.cwd() and not here and _is_installed(words[1])
        return Job(command=(sys.executable, *words), folder=folder) if here or installed else None
    script = folder / words[0]
    if not script.is_file():
        return None
    runs_itself = script.suffix != ".py" and os.access(script, os.X_OK)
    return Job(command=(*(() if runs_itself else (sys.executable,)), str(script), *words[1:]), folder=folder)


def _is_installed(module: str) -> bool:
    """Whether the image's Python has the module. Asked in a process of its own: `run` itself sees no packages."""
    look = "import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None)"
    return subprocess.run([sys.executable, "-c", look, module.partition(".")[0]], check=False).returncode == 0
