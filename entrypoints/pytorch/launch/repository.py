"""The job's files from a git repository, at one revision.

GIT_REPOSITORY and GIT_REVISION are data: nothing in them may become an option of git or a command.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .dialects import values
from .launch_error import Code, LaunchError
from .masking import mask, masked_url

DEFAULT_SECONDS = 600
PROTOCOLS = "file:git:http:https:ssh"  # unless GIT_ALLOW_PROTOCOL says otherwise; ext:: would run any command

# Variables that would lead git to another repository than the folder of the job.
_ELSEWHERE = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE"),
}


@dataclass(frozen=True, kw_only=True)
class RepositorySource:
    """A repository and a revision, checked so that git may take them as arguments."""

    repository: str
    revision: str
    protocols: str

    def __str__(self) -> str:
        return f"{masked_url(self.repository)} at {self.revision}"


@dataclass(frozen=True, kw_only=True)
class _Git:
    """git in one folder, until a deadline."""

    folder: Path
    env: Mapping[str, str]
    deadline: float

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run git. At the deadline, kill it with its children and raise TimeoutError."""
        command = ["git", "-C", str(self.folder), *words]
        # A new session has no terminal, so ssh does not wait for a password or a host key.
        process = subprocess.Popen(
            command, env=dict(self.env), text=True, errors="replace", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            out, err = process.communicate(timeout=max(0.01, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def source_of(env: Mapping[str, str]) -> RepositorySource:
    """Read GIT_REPOSITORY and GIT_REVISION. Raises LaunchError for values that git must not get."""
    repository, revision = env["GIT_REPOSITORY"].strip(), env.get("GIT_REVISION", "").strip() or "HEAD"
    protocols = env.get("GIT_ALLOW_PROTOCOL") or PROTOCOLS
    if not re.fullmatch(r"[^\s\x00-\x1f\x7f~^:?*\[\\-][^\s\x00-\x1f\x7f~^:?*\[\\]*", revision):
        raise values.bad("GIT_REVISION", revision, "is not the name of a branch, a tag or a commit: correct it.")
    _check_repository(repository, protocols.split(":"))
    return RepositorySource(repository=repository, revision=revision, protocols=protocols)


def _check_repository(repository: str, protocols: list[str]) -> None:
    text = masked_url(repository)
    if repository.startswith("-") or not repository.isprintable():
        why = "is not the address of a repository: give a URL or a path, without a dash at its start."
        raise values.bad("GIT_REPOSITORY", text, why)
    scheme, helper = re.match(r"([A-Za-z0-9+.-]*)(::|://|)", repository).groups()  # type: ignore[union-attr]
    if helper and (helper == "::" or scheme not in protocols):
        why = f"uses the transport {scheme or helper!a}; supported are {', '.join(protocols)}, and a path."
        raise values.bad("GIT_REPOSITORY", text, why)
    if helper and _is_ambiguous(repository.partition("://")[2]):
        why = "has a user or password (not shown) that git would read otherwise: write @ as %40, / as %2F, : as %3A, "
        raise values.bad("GIT_REPOSITORY", text, f"{why}? as %3F, # as %23 and a space as %20 there.")


def _is_ambiguous(rest: str) -> bool:
    """Return True if the URL's login does not end at the first @, or holds a / or ?: git would read another host."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    login, _, _ = authority.rpartition("@")
    port = authority.rpartition(":")[2] if ":" in authority else ""
    cut = "@" not in authority and "@" in rest and not re.fullmatch(r"[0-9]*|.*\]", port)
    return "@" in login or login.count(":") > 1 or " " in rest.rpartition("@")[0] or cut


def fetch(source: RepositorySource, folder: Path, env: Mapping[str, str]) -> str:
    """Fetch the revision (branch, tag or commit) into ``folder``, and return the commit's full SHA. Raises LaunchError.

    If the server does not serve a single commit, everything is fetched.
    """
    if not shutil.which("git", path=env.get("PATH")):
        raise LaunchError(Code.NO_JOB, f"{source} needs git, which this image lacks: add it to the row's apt packages.")
    seconds = values.seconds(env, "GIT_TIMEOUT", DEFAULT_SECONDS)
    settings = {name: value for name, value in env.items() if name not in _ELSEWHERE}
    settings |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": source.protocols}
    git = _Git(folder=folder, env=settings, deadline=time.monotonic() + seconds)
    folder.mkdir(parents=True)
    try:
        process = _fetch(git, source)
        commit = git("rev-parse", "HEAD").stdout.strip()
    except TimeoutError:
        why = f"was not fetched within {seconds:g} seconds: is it reachable from here? GIT_TIMEOUT gives it more."
        raise LaunchError(Code.NO_JOB, f"{source} {why}") from None
    if process.returncode:
        cause = cause_of(mask(process.stderr, source.repository))
        raise LaunchError(Code.NO_JOB, f"{source} cannot be fetched: {cause}")
    return commit


def _fetch(git: _Git, source: RepositorySource) -> subprocess.CompletedProcess[str]:
    """Return the last call of git, which has failed or has checked out the revision."""
    process = git("init", "--quiet")
    if process.returncode:
        return process
    expected = "FETCH_HEAD"
    process = git("fetch", "--quiet", "--depth=1", "--", source.repository, source.revision)
    if process.returncode and not _next_step(process.stderr):
        if re.fullmatch(r"[0-9a-f]{7,64}", source.revision):
            expected = source.revision
            process = git("fetch", "--quiet", "--tags", "--", source.repository, "+refs/heads/*:refs/remotes/origin/*")
        else:
            process = git("fetch", "--quiet", "--", source.repository, source.revision)
    return process if process.returncode else git("checkout", "--quiet", "--detach", expected, "--")


# Messages of git and its helpers, each with the next step. After such a message another way to fetch fails too.
_NEXT_STEPS = (
    (r"dubious ownership",
     "start the container as the folder's owner (--user), or mount a /etc/gitconfig that names it as safe.directory"),
    (r"cannot run ssh", "this image has no ssh: add openssh-client to the row's apt packages, or use an https:// URL"),
    (r"No user exists for uid", "ssh needs a user with a name: use an https:// URL, or a uid of /etc/passwd"),
    (r"Host key verification failed", "mount a known_hosts file in ~/.ssh, or name one by GIT_SSH_COMMAND"),
    (r"Permission denied \(", "mount a key that the server knows in ~/.ssh, or name one by GIT_SSH_COMMAND"),
    (r"could not read (?:Username|Password)|Authentication failed|returned error: 40[13]",
     "it needs a login: https://USER:TOKEN@HOST/… in GIT_REPOSITORY, or a mounted ~/.netrc"),
    (r"(?i)could not resolve host|name or service not known|name resolution",
     "correct the host's name, or the DNS of this container"),
    (r"(?i)connection refused|timed out|failed to connect|could not connect|unreachable|no route to host",
     "make it reachable from this container, or correct the address"),
    (r"certificate", "name the file of the authority that signed it by GIT_SSL_CAINFO"),
    (r"No space left on device", "give the temporary folder more space, or mount the job's folder"),
    (r"does not appear to be a git repository|does not exist|[Rr]epository .*not found|returned error: 404",
     "correct GIT_REPOSITORY"),
)  # fmt: skip
_NO_REVISION = r"couldn't find remote ref|not our ref|did not match|unable to read tree|not a tree|no such ref"

_TELLING = re.compile(r"fatal:|error:|remote:|ssh:|Permission denied|Host key|No user exists", re.IGNORECASE)


def _next_step(output: str) -> str:
    return next((step for pattern, step in _NEXT_STEPS if re.search(pattern, output)), "")


def cause_of(output: str) -> str:
    """Summarise git's output in one sentence: its own reasons, and the next step."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)] or lines or ["git said nothing"]
    words = "; ".join(dict.fromkeys(telling[:5]))
    words = "".join(letter if letter.isprintable() else "?" for letter in words)[:600].rstrip(".:; ")
    step = _next_step(output) or ("correct GIT_REVISION" if re.search(_NO_REVISION, output) else "")
    return f"{words}: {step}." if step else f"{words}."
