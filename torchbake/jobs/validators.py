"""Validators of the texts in job.yaml, which end up in a manifest, a shell command or the name of an object.

A validator returns the text, and raises ValueError with the mistake and its correction.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from torchbake.core.job_variables import without_job
from torchbake.core.paths import JOB_FOLDER
from torchbake.core.secret_names import looks_secret
from torchbake.core.secret_values import secret_text
from torchbake.core.suggest import nearest
from torchbake.matrix.validators import one_line

_PART = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"  # RFC 1123, as Kubernetes names objects that become host names
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
_PREFIX = rf"(?=[^/]{{1,253}}(/|$))({_PART}(\.{_PART})*/)?"
_LABELLED = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
CPU = r"^([1-9][0-9]*|[0-9]+\.[0-9]{1,3}|[1-9][0-9]*m)$"
QUANTITY = r"^[1-9][0-9]*(Ki|Mi|Gi|Ti|k|M|G|T)?$"
MOST_PROCESSES = 4096  # the limit of `run`

# Variables of `run` by the key of the job that sets them in a manifest.
OF_THE_JOB = {
    "MODE": "mode",
    **dict.fromkeys(("NNODES", "WORLD_SIZE", "NODE_RANK", "RANK", "MASTER_ADDR"), "nodes"),
    **dict.fromkeys(("LOCAL_RANK", "LOCAL_WORLD_SIZE", "NPROC_PER_NODE"), "processes"),
    "ELASTIC": "elastic",
    "MASTER_PORT": "port",
    "RENDEZVOUS_TIMEOUT": "timeouts.rendezvous",
    "GROUP_TIMEOUT": "timeouts.group",
    "STOP_GRACE": "timeouts.stop",
    "JOB_DIR": "files",
    "GIT_REPOSITORY": "files.git.repository",
    "GIT_REVISION": "files.git.revision",
}
BY_A_SECRET = ("JOB_TOKEN", "GIT_REPOSITORY")  # variables of `run` that a secret may set, as they may hold a login


def one_of(*words: str) -> Callable[[str], str]:
    """Return a validator of a choice."""

    def check(text: str) -> str:
        if text not in words:
            near = nearest(text, words, count=1)
            hint = f"did you mean {near[0]!r}?" if near else f"write {' or '.join(words)}"
            raise ValueError(f"{text!r} is unknown; {hint}")
        return text

    return check


def _form(pattern: str, mistake: str) -> Callable[[str], str]:
    """Return a validator of a regular expression."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{text!r} {mistake}")
        return text

    return check


object_name = _form(
    rf"(?!.{{254}}){_PART}(\.{_PART})*", "is not the name of an object of Kubernetes (RFC 1123), such as team-data"
)
label_key = _form(
    _PREFIX + _LABELLED, "is not the key of a label: up to 63 of A-Z, a-z, 0-9 and . _ -, as in acme.com/team"
)
label_value = _form(
    rf"({_LABELLED})?", "is not the value of a label: up to 63 of A-Z, a-z, 0-9, and . _ - except at its ends"
)
manager = _form(
    rf"(?=.*/){_PREFIX}{_LABELLED}", "is not DOMAIN/NAME of a controller, such as kueue.x-k8s.io/multikueue"
)
secret_key = _form(r"(?!\.{1,2}$).*", "is not the key of a Secret, such as token")


def name(text: str) -> str:
    """Check a name that becomes a host name in Kubernetes (RFC 1123)."""
    if not re.fullmatch(_PART, text):
        raise ValueError(
            f"{text!r} is not a name for Kubernetes (RFC 1123): use a-z, 0-9, and - except at its ends, as in mnist-ddp"
        )
    if len(text) > 63:
        raise ValueError(f"{text!r} has {len(text)} characters, and Kubernetes takes 63 (RFC 1123): shorten it")
    return text


def variable(text: str) -> str:
    """Check the name of a variable whose value is public."""
    if text == "JOB_TOKEN" or looks_secret(text):
        example = f"{{{text}: {{secret: NAME, key: KEY}}}}"
        raise ValueError(f"{text} looks like a secret, which all who read the manifest would see: secrets: {example}")
    return _not_a_launchers(text)


def secret_variable(text: str) -> str:
    """Check the name of a variable whose value comes from a secret."""
    return text if text in BY_A_SECRET else _not_a_launchers(text)


def _not_a_launchers(text: str) -> str:
    if text in OF_THE_JOB:
        raise ValueError(f"{text} is set by the key `{OF_THE_JOB[text]}`: remove it here, and write that key")
    if not without_job({text: "1"}):
        raise ValueError(f"{text} is set by the launcher, and `run` reads it: remove it, or choose another name")
    return text


def public(text: str) -> str:
    """Check a text that the manifest shows to all its readers."""
    if secret_text(text):
        raise ValueError(
            "holds a key, a token or a password, which all who read the manifest would see: make it a variable of "
            "`secrets`"
        )
    return text


def word(text: str) -> str:
    """Check a text: one line, not empty."""
    if not text.strip():
        raise ValueError("is empty: write a value, or leave the key out")
    return one_line(text)


def script(text: str) -> str:
    """Check the path of a script, as `run` resolves it."""
    word(text)
    if text.startswith("-"):
        raise ValueError(f"{text!r} reads as an option of `run`: name the script, and write its arguments in `args`")
    if ".." in PurePosixPath(text).parts:
        raise ValueError(f"{text!r} leads out of the job's files: name a path within them")
    return text


def file_pattern(text: str) -> str:
    """Check a pattern of .dockerignore for paths within the job's files."""
    word(text)
    if text.startswith(("/", "!", "#")) or ".." in text.split("/") or posixpath.normpath(text) != text:
        raise ValueError(f"{text!r} is no path within the job's folder: write it as in data/*.csv or **/*.ipynb")
    return text


def module(text: str) -> str:
    if not all(part.isidentifier() for part in text.split(".")):
        raise ValueError(f"{text!r} is not the name of a module, such as package.train")
    return text


def command_line(value: object) -> object:
    """Turn a line for the shell into the words that start a shell with it."""
    if not isinstance(value, str):
        return value
    return ("sh", "-c", value) if value.strip() else ()


def command(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words or not words[0].strip():
        raise ValueError("is empty: write a program and its words, such as [python, main.py], or a line of the shell")
    return words


def workdir(text: str) -> str:
    if ".." in PurePosixPath(one_line(text)).parts or not text.strip():
        raise ValueError(f"{text!r} is not a folder without .. in it, such as examples/mnist or /data/run")
    return text


def processes(text: str) -> str:
    if text != "auto" and int(text) > MOST_PROCESSES:
        raise ValueError(f"{text} processes on a node are more than {MOST_PROCESSES}, which no machine has: correct it")
    return text


def elastic(text: str) -> str:
    least, most = (int(number) for number in text.split(":"))
    if least > most:
        raise ValueError(f"{text} goes down: write it as MIN:MAX, such as {most}:{least}")
    return text


def mount_path(text: str) -> str:
    """Check the mount point of a volume, which must hide nothing of the image."""
    path = PurePosixPath("/" + one_line(text).lstrip("/"))  # // would be another root
    if not text.startswith("/") or ".." in path.parts or set(text) & set(':,"'):
        raise ValueError(f"{text!r} is not an absolute path without .. : quotes and commas, such as /data")
    place = str(path)
    content = _HIDDEN.get(place) or next(
        (content for folder, content in _HIDDEN_BELOW.items() if path.is_relative_to(folder)), ""
    )
    if content:
        raise ValueError(f"{text!r} would hide {content}: mount it elsewhere, such as /data")
    return place


_HIDDEN = {"/": "all of the image", "/tmp": "a volume of the job itself", "/etc": "the image's system"}
_SYSTEM = ("/bin", "/dev", "/lib", "/lib64", "/nvidia", "/packages", "/proc", "/pytorch", "/sbin", "/sys", "/usr")
_HIDDEN_BELOW = {
    "/opt": "the image's Python and `run`",
    "/dev/shm": "the memory that `resources.shm` sizes",
    JOB_FOLDER: "the job's files",
    **dict.fromkeys(_SYSTEM, "the image's system"),
}


def cpu(text: str) -> str:
    if not text.strip("0."):
        raise ValueError(f"{text!r} is not a number of CPUs: write how many, such as 0.5")
    return text


def host_path(text: str) -> str:
    if not PurePosixPath(one_line(text)).is_absolute() or set(text) & set(':,"'):
        raise ValueError(f"{text!r} is not an absolute path without : quotes and commas, such as /srv/data")
    return text


def repository(text: str) -> str:
    """Check an address of git, which must hold no login, since many people read manifests."""
    word(text)
    if text.startswith("-"):
        raise ValueError(f"{text!r} reads as an option of git: write its address, such as https://example.com/team/job")
    if "://" in text and (urlsplit(text).password or (urlsplit(text).username and not text.startswith("ssh:"))):
        raise ValueError(
            "holds a login, which all who read the manifest would see: put the whole address into a secret, "
            "secrets: {GIT_REPOSITORY: {secret: NAME, key: KEY}}"
        )
    return text
