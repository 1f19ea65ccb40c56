"""What a text of job.yaml may be. Each ends up in a manifest, a shell's line or the name of an object.

A function gives back the text, and raises ValueError with what is wrong.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from torchbake.core.job_variables import without_job
from torchbake.core.secret_names import looks_secret
from torchbake.core.secret_values import secret_text
from torchbake.core.suggest import nearest
from torchbake.matrix.validators import one_line

LABEL = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"  # RFC 1123, as Kubernetes names what becomes a host name
_PART = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
SUBDOMAIN = rf"^{_PART}(\.{_PART})*$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
_PREFIX = rf"(?=[^/]{{1,253}}(/|$))({_PART}(\.{_PART})*/)?"
_LABELLED = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
CPU = r"^([1-9][0-9]*|[0-9]+\.[0-9]{1,3}|[1-9][0-9]*m)$"
QUANTITY = r"^[1-9][0-9]*(Ki|Mi|Gi|Ti|k|M|G|T)?$"
MOST_PROCESSES = 4096  # as `run` has it
JOB_FOLDER = "/job"  # where a job's files are mounted

# Of what `run` reads, that which a key of the job says: a manifest sets it from there.
OF_THE_JOB = {
    "MODE": "mode",
    "NNODES": "nodes",
    "WORLD_SIZE": "nodes",
    "NODE_RANK": "nodes",
    "RANK": "nodes",
    "LOCAL_RANK": "processes",
    "LOCAL_WORLD_SIZE": "processes",
    "NPROC_PER_NODE": "processes",
    "ELASTIC": "elastic",
    "MASTER_ADDR": "nodes",
    "MASTER_PORT": "port",
    "RENDEZVOUS_TIMEOUT": "timeouts.rendezvous",
    "GROUP_TIMEOUT": "timeouts.group",
    "STOP_GRACE": "timeouts.stop",
    "JOB_DIR": "files",
    "GIT_REPOSITORY": "files.git.repository",
    "GIT_REVISION": "files.git.revision",
}
BY_A_SECRET = ("JOB_TOKEN", "GIT_REPOSITORY")  # what may hold a login, and is not the launcher's to say


def one_of(*words: str) -> Callable[[str], str]:
    """A validator of a choice."""

    def check(text: str) -> str:
        if text not in words:
            near = nearest(text, words, count=1)
            said = f"did you mean {near[0]!r}?" if near else f"write {' or '.join(words)}"
            raise ValueError(f"{text!r} is unknown; {said}")
        return text

    return check


def name(text: str) -> str:
    """A name that Kubernetes takes for a host: RFC 1123."""
    if not re.fullmatch(LABEL, text):
        raise ValueError(
            f"{text!r} is not a name for Kubernetes (RFC 1123): use a-z, 0-9 and - within, as in mnist-ddp"
        )
    if len(text) > 63:
        raise ValueError(f"{text!r} has {len(text)} characters, and Kubernetes takes 63 (RFC 1123): shorten it")
    return text


def object_name(text: str) -> str:
    """The name of another object of Kubernetes, such as a claim: RFC 1123, dots allowed."""
    if not re.fullmatch(SUBDOMAIN, text) or len(text) > 253:
        raise ValueError(f"{text!r} is not the name of an object of Kubernetes (RFC 1123), such as team-data")
    return text


def variable(text: str) -> str:
    """A variable that the job may set."""
    if text == "JOB_TOKEN" or looks_secret(text):
        example = f"{{{text}: {{secret: NAME, key: KEY}}}}"
        raise ValueError(f"{text} looks like a secret, which all who read the manifest would see: secrets: {example}")
    _not_a_launchers(text)
    return text


def public(text: str) -> str:
    """A text that stands in the manifest as it is."""
    if secret_text(text):
        raise ValueError(
            "holds a key, a token or a password, which all who read the manifest would see: make it a variable of "
            "`secrets`"
        )
    return text


def secret_variable(text: str) -> str:
    """A variable that may come from a secret."""
    if text not in BY_A_SECRET:
        _not_a_launchers(text)
    return text


def _not_a_launchers(text: str) -> None:
    """Not what counts nodes and ranks: the launcher says that, and `run` would find a contradiction."""
    if text in OF_THE_JOB:
        raise ValueError(f"{text} is what `{OF_THE_JOB[text]}` says: remove it here, and write that key")
    if not without_job({text: "1"}):
        raise ValueError(f"{text} is the launcher's to set, and `run` reads it: remove it, or give it another name")


def word(text: str) -> str:
    """Any text on one line that is not empty."""
    if not text.strip():
        raise ValueError("is empty: write a value, or leave the key out")
    return one_line(text)


def label_key(text: str) -> str:
    """A key of Kubernetes' labels and annotations."""
    if not re.fullmatch(_PREFIX + _LABELLED, text):
        raise ValueError(
            f"{text!r} is not the key of a label: up to 63 of A-Z, a-z, 0-9 and . _ -, as in acme.com/team"
        )
    return text


def manager(text: str) -> str:
    """The name of a controller, as `managedBy` takes it."""
    if "/" not in text or not re.fullmatch(_PREFIX + _LABELLED, text):
        raise ValueError(f"{text!r} is not DOMAIN/NAME of a controller, such as kueue.x-k8s.io/multikueue")
    return text


def label_value(text: str) -> str:
    if text and not re.fullmatch(_LABELLED, text):
        raise ValueError(f"{text!r} is not the value of a label: up to 63 of A-Z, a-z, 0-9 and . _ - within")
    return text


def script(text: str) -> str:
    """The path of a script, as `run` looks for it."""
    word(text)
    if text.startswith("-"):
        raise ValueError(f"{text!r} reads as an option of `run`: name the script, and give it words by `args`")
    if ".." in PurePosixPath(text).parts:
        raise ValueError(f"{text!r} leads out of the job's files: name a path within them")
    return text


def file_pattern(text: str) -> str:
    """A pattern of paths within the job's files, as .dockerignore has them."""
    word(text)
    if text.startswith(("/", "!", "#")) or ".." in text.split("/") or posixpath.normpath(text) != text:
        raise ValueError(f"{text!r} is no path within the job's folder: write it as in data/*.csv or **/*.ipynb")
    return text


def module(text: str) -> str:
    if not all(part.isidentifier() for part in text.split(".")):
        raise ValueError(f"{text!r} is not the name of a module, such as package.train")
    return text


def command_line(value: object) -> object:
    """Turn a line for the shell into the words that start one."""
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
    """Where a volume goes: a place that hides nothing of the image's own."""
    path = PurePosixPath("/" + one_line(text).lstrip("/"))  # // would be another root
    if not text.startswith("/") or ".." in path.parts or set(text) & set(':,"'):
        raise ValueError(f"{text!r} is not an absolute path without .. : quotes and commas, such as /data")
    place = str(path)
    why = _ALONE.get(place) or next((of for each, of in _WITH_ALL_BELOW.items() if path.is_relative_to(each)), "")
    if why:
        raise ValueError(f"{text!r} is where {why} is: mount it elsewhere, such as /data")
    return place


_ALONE = {"/": "all of the image", "/tmp": "a volume of its own", "/etc": "the image's system"}
_SYSTEM = ("/bin", "/dev", "/lib", "/lib64", "/nvidia", "/proc", "/pytorch", "/sbin", "/sys", "/usr")
_WITH_ALL_BELOW = {
    "/opt": "the image's Python and `run`",
    "/dev/shm": "what `resources.shm` sizes",
    JOB_FOLDER: "the job's files",
    **dict.fromkeys(_SYSTEM, "the image's system"),
}


def cpu(text: str) -> str:
    if not text.strip("0."):
        raise ValueError(f"{text!r} is not a number of CPUs: write how many, such as 0.5")
    return text


def secret_key(text: str) -> str:
    if text in (".", ".."):
        raise ValueError(f"{text!r} is not the key of a Secret, such as token")
    return text


def host_path(text: str) -> str:
    if not PurePosixPath(one_line(text)).is_absolute() or set(text) & set(':,"'):
        raise ValueError(f"{text!r} is not an absolute path without : quotes and commas, such as /srv/data")
    return text


def repository(text: str) -> str:
    """An address of git that holds no login: manifests are read by many."""
    word(text)
    if text.startswith("-"):
        raise ValueError(f"{text!r} reads as an option of git: write its address, such as https://example.com/team/job")
    if "://" in text and (urlsplit(text).password or (urlsplit(text).username and not text.startswith("ssh:"))):
        raise ValueError(
            "holds a login, which all who read the manifest would see: put the whole address into a secret, "
            "secrets: {GIT_REPOSITORY: {secret: NAME, key: KEY}}"
        )
    return text
