"""The source of the job's files: a mounted folder, else a git repository at a revision."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .launch_error import Code, LaunchError

DEFAULT_FOLDER = "/app"


@dataclass(frozen=True, kw_only=True)
class RankCommand:
    """The command of each rank, its folder, and the fetched commit (empty: the folder is mounted)."""

    command: tuple[str, ...]
    folder: Path
    commit: str = ""


def find_job(words: list[str], env: Mapping[str, str], scratch: Path) -> RankCommand:
    """Find the job of ``SCRIPT ARGS…`` or ``-m MODULE ARGS…``.

    The script is searched for in the working folder, then in JOB_DIR, then in GIT_REPOSITORY at GIT_REVISION, which is
    fetched into ``scratch``. Raises LaunchError if it is not found.
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
    if (script := Path(words[0])).is_absolute():  # it can be in no other folder and in no repository
        if script.is_dir():
            raise LaunchError(Code.NO_JOB, f"{script} is a folder: name the script in it.")
        why = f"there is no file {script}: mount its folder at {script.parent}, or correct the path."
        raise LaunchError(Code.NO_JOB, why)
    if not env.get("GIT_REPOSITORY", "").strip():
        same = Path.cwd() == folder.resolve()
        searched = f"not in {Path.cwd()}" if same else f"neither in {Path.cwd()} nor in {folder}"
        why = f"{_name(words)} is {searched}: mount its folder there, or set GIT_REPOSITORY (and GIT_REVISION)."
        raise LaunchError(Code.NO_JOB, why)
    from .repository import fetch, source_of  # noqa: PLC0415 - mounted jobs need not wait for it

    source, clone = source_of(env), scratch / "job"
    commit = fetch(source, clone, env)
    value = _in(clone, words)
    if not value:
        raise LaunchError(Code.NO_JOB, f"{_name(words)} is not in {source} (commit {commit[:12]}): correct its path.")
    return RankCommand(command=value.command, folder=clone, commit=commit)


def _name(words: list[str]) -> str:
    return f"module {words[1]}" if words[0] == "-m" else words[0]


def _in(folder: Path, words: list[str]) -> RankCommand | None:
    if words[0] == "-m":
        relative = words[1].replace(".", "/")
        here = any((folder / name).is_file() for name in (f"{relative}.py", f"{relative}/__main__.py"))
        # `run` itself sees no installed packages (-S), so the image's Python has to look.
        look = "import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None)"
        command = [sys.executable, "-c", look, words[1].partition(".")[0]]
        installed = folder == Path.cwd() and not here and subprocess.run(command, check=False).returncode == 0
        return RankCommand(command=(sys.executable, *words), folder=folder) if here or installed else None
    script = folder / words[0]
    if not script.is_file():
        return None
    runs_itself = script.suffix != ".py" and os.access(script, os.X_OK)
    return RankCommand(command=(*(() if runs_itself else (sys.executable,)), str(script), *words[1:]), folder=folder)
