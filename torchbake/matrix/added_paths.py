"""Paths of files that a matrix adds to images: where they are beside it, and where they go.

A function gives back the text, and raises ValueError with what is wrong.
"""

import posixpath
import re
from pathlib import PurePosixPath

from torchbake.matrix.spec import TOOLBOX, VENV

MODE = r"^0?[0-7]{3}$"  # without setuid and its like, which no image has
_PATH = re.compile(r"[A-Za-z0-9._@+/-]+")
_GENERATED = ("entrypoints", "images", "layers", "reports", ".torchbake", ".git")


def beside(text: str) -> str:
    """A path below the matrix's folder; a folder's ends in a slash."""
    parts = text.rstrip("/").split("/")
    if text.startswith("/") or ".." in parts:
        raise ValueError(
            f"{text!r} is outside of the matrix's folder, the only folder that is there wherever images are built"
        )
    if not _PATH.fullmatch(text) or text.startswith("-") or posixpath.normpath(text) != text.rstrip("/"):
        raise ValueError(f"{text!r} is not a path such as files/job.yaml: letters, digits, ._@+- and single slashes")
    if parts[0] in _GENERATED:
        raise ValueError(f"{text!r} is in {parts[0]}/, which is the toolkit's; put it beside that")
    return text


def certificate(text: str) -> str:
    if text.endswith("/"):
        raise ValueError(f"{text!r} is a folder; name each certificate")
    return beside(text)


def certificate_name(source: str) -> str:
    """What a certificate is called in an image: ``certificates/acme.pem`` is ``acme.crt`` there."""
    return posixpath.splitext(posixpath.basename(source))[0] + ".crt"


# Where nothing of the user's may go, with the reason. Below each of them neither.
_TAKEN = {
    "/dev": "the container's own, where nothing of an image is seen",
    "/proc": "the container's own, where nothing of an image is seen",
    "/run": "empty when a container starts",
    "/sys": "the container's own, where nothing of an image is seen",
    "/tmp": "empty when a container starts",
    "/var/log": "empty when a container starts",
    "/var/run": "empty when a container starts",
    "/var/spool": "empty when a container starts",
    "/var/tmp": "empty when a container starts",
    "/etc/group": "where the image's user is known",
    "/etc/gshadow": "where the image's user is known",
    "/etc/passwd": "where the image's user is known",
    "/etc/shadow": "where the image's user is known",
    "/etc/ssl/certs": "made by the system; name yours in `certificates`",
    "/usr/local/share/ca-certificates": "for what `certificates` names",
    "/bin/tini": "the toolkit's own",
    "/usr/bin/tini": "the toolkit's own",
    "/nvidia": "the toolkit's own",
    "/pytorch": "the toolkit's own",
    "/usr/local/cuda": "the toolkit's own",
    VENV: "where the locked packages are; add to `packages`",
    TOOLBOX: "the toolkit's own",
}
# What Debian has of https://refspecs.linuxfoundation.org/fhs.shtml, and all that leads to the above.
_FOLDERS = {
    *("/bin", "/boot", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/root", "/sbin", "/srv", "/usr"),
    *("/usr/bin", "/usr/games", "/usr/include", "/usr/lib", "/usr/libexec", "/usr/sbin", "/usr/share", "/usr/src"),
    *("/var", "/var/backups", "/var/cache", "/var/lib", "/var/local", "/var/lock", "/var/mail", "/var/opt"),
    *(f"/usr/local/{name}" for name in ("bin", "etc", "games", "include", "lib", "sbin", "share", "src")),
    *(str(folder) for place in _TAKEN for folder in PurePosixPath(place).parents),
}


def target(text: str) -> str:
    """Where a file or a folder goes in an image, without a slash at its end."""
    path = text.rstrip("/")
    if not text.startswith("/") or not _PATH.fullmatch(text) or posixpath.normpath(path or "/") != path:
        raise ValueError(f"{text!r} is not a path such as /etc/acme/job.yaml: from the root on, with single slashes")
    reason = taken(path)
    if reason:
        raise ValueError(reason)
    return path


def taken(path: str) -> str:
    """Why nothing may be put at a path of an image; empty where it may."""
    place = next((place for place in _TAKEN if path == place or path.startswith(f"{place}/")), None)
    return f"{path} is not allowed: {place} is {_TAKEN[place]}" if place else ""


def standard_folder(path: str) -> bool:
    """Whether every image has a folder at this path."""
    return path in _FOLDERS


def mode(text: str) -> str:
    if int(text, 8) & 0o002:
        raise ValueError(f"{text!r} lets everybody write, which images do not allow")
    return text
