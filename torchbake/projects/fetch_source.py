"""Fetch the source of a package: a file by its address, checked by its hash, or a commit of a git repository."""

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import requests

from torchbake.core.digest import file_digest
from torchbake.core.git import run_git
from torchbake.core.plain_text import last_line
from torchbake.errors import LockError
from torchbake.hostconfig.http_session import (
    PATIENCE,
    REFUSED,
    index_pages,
    index_session,
    links_with_login,
    pieces_of_file,
)
from torchbake.hostconfig.index_page import hash_of
from torchbake.hostconfig.pip_config import PipConfig, local_folder, without_login, without_logins
from torchbake.projects.packages import GitSource

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


@dataclass(frozen=True, kw_only=True)
class Fetching:
    """How the files of one package are fetched.

    ``hashes`` are those of its lock, ``base`` is the folder of relative paths, ``title`` names it in messages.
    """

    hashes: tuple[str, ...]
    base: Path
    config: PipConfig
    title: str


def fetch_file(url: str, folder: Path, how: Fetching) -> Path:
    """Fetch a file by its address or path into ``folder``, and return its path.

    Raises LockError if it cannot be fetched or has none of the hashes.
    """
    local = local_folder(url)
    target = folder / Path(unquote(urlsplit(url).path)).name
    if local:
        _copy(how.base / local, target, f"{how.title}: {local}")
    else:
        _download(url, target, how)
    actual = file_digest(target)
    if actual not in how.hashes:
        raise LockError(
            f"{how.title}: {without_login(url)} has the hash {actual}, but the lock has {how.hashes[0]}.",
            hint="The file was damaged or replaced. If you trust the new file, lock the project again: uv lock",
        )
    return target


def find_sdist(name: str, hashes: tuple[str, ...], config: PipConfig) -> str | None:
    """Return the address of a source distribution with one of the hashes, by the host's indexes."""
    with index_session(config) as session:
        for page, url in index_pages(name, config, session):
            for link in links_with_login(page, url):
                if hash_of(link) in hashes and not link.path.endswith(".whl"):
                    return link._replace(fragment="").geturl()
    return None


def clone(source: GitSource, folder: Path, title: str) -> Path:
    """Check a commit out into ``folder``, with its submodules, and return the folder of the package.

    Branches and tags are fetched too, because versions may be counted from tags. Raises LockError.
    """
    address = without_login(source.url)
    if not _COMMIT.fullmatch(source.commit):
        raise LockError(
            f"{title}: {source.commit!r} is no commit of {address}.",
            hint="Lock the project again, by a commit: uv lock",
        )
    with _without_git(title):
        process = run_git(
            folder.parent, "clone", "--quiet", "--no-checkout", "--filter=blob:none", "--", source.url, str(folder)
        )
        if process.returncode:
            raise _git_error(process, f"{title}: {address} cannot be cloned")
        if run_git(folder, "cat-file", "-e", f"{source.commit}^{{commit}}").returncode:
            run_git(folder, "fetch", "--quiet", "origin", source.commit)  # a commit that no branch has
        for words in (
            ("checkout", "--quiet", "--detach", source.commit),
            ("submodule", "--quiet", "update", "--init", "--recursive"),
        ):
            process = run_git(folder, *words)
            if process.returncode:
                raise _git_error(process, f"{title}: {address} does not give the commit {source.commit}")
    package = folder / source.subdirectory
    if not package.is_dir():
        raise LockError(
            f"{title}: {address} has no folder {source.subdirectory!r} at the commit {source.commit}.",
            hint="Correct `subdirectory` in pyproject.toml, then lock the project again: uv lock",
        )
    return package


def _copy(path: Path, target: Path, title: str) -> None:
    try:
        shutil.copyfile(path, target)
    except OSError as error:
        hint = "Add the file; or correct its path in pyproject.toml and run `uv lock`, or in the requirements file."
        raise LockError(f"{title}: {error.strerror}.", hint=hint) from None


def _download(url: str, target: Path, how: Fetching) -> None:
    address, url = without_login(url), how.config.with_login(url)
    try:
        with index_session(how.config) as session, session.get(url, stream=True, timeout=PATIENCE) as answer:
            if answer.status_code in REFUSED:
                raise LockError(
                    f"{how.title}: {address} refuses with {answer.status_code} {answer.reason}.",
                    hint=how.config.login_hint(address),
                )
            answer.raise_for_status()
            with target.open("wb") as file:
                for data in pieces_of_file(answer, f"{how.title}: {address}"):
                    file.write(data)
    except requests.RequestException as error:
        reason = without_logins(str(error))
        raise LockError(
            f"{how.title}: {address} cannot be fetched: {reason}.", hint="Correct the address, or try again later."
        ) from None


@contextlib.contextmanager
def _without_git(title: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if error.filename != "git":
            raise
        raise LockError(f"{title}: it comes from a git repository, but git is not installed.",
                        hint="Install git, then lock again.") from None  # fmt: skip


def _git_error(process: "subprocess.CompletedProcess[bytes]", problem: str) -> LockError:
    output = process.stderr.decode(errors="replace")
    fatal = [line for line in output.splitlines() if line.startswith(("fatal:", "error:"))]
    reason = without_logins(last_line(fatal[0] if fatal else output, 300))
    return LockError(
        f"{problem}: {reason}",
        hint="Push the commit, or correct the repository and its login (git's credential helper, an ssh agent).",
    )
