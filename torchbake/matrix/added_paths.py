"""Paths of files that a matrix adds to images: the sources below the matrix's folder, and the targets in the image.

A validator returns the text, and raises ValueError with the mistake and its correction.
"""

import posixpath
import re
from pathlib import PurePosixPath

from torchbake.matrix.spec import TOOLBOX, VENV

MODE = r"^0?[0-7]{3}$"  # without setuid, setgid and sticky bits, which no image has
_PATH = re.compile(r"[A-Za-z0-9._@+/-]+")
# The name of a lock: https://packaging.python.org/en/latest/specifications/pylock-toml/#file-name
_PYLOCK = re.compile(r"pylock(\.[^.]+)?\.toml")
_GENERATED = ("entrypoints", "images", "layers", "reports", ".torchbake", ".git")


def beside(text: str) -> str:
    """Check a path below the matrix's folder. The path of a folder ends in a slash."""
    parts = text.rstrip("/").split("/")
    if text.startswith("/") or ".." in parts:
        raise ValueError(
            f"{text!r} is outside of the matrix's folder, the only folder that every machine has for its builds"
        )
    if not _PATH.fullmatch(text) or text.startswith("-") or posixpath.normpath(text) != text.rstrip("/"):
        raise ValueError(f"{text!r} is not a path such as files/job.yaml: letters, digits, ._@+- and single slashes")
    if parts[0] in _GENERATED:
        raise ValueError(f"{text!r} is in {parts[0]}/, which is the toolkit's; put it into another folder")
    return text


def project_folder(text: str) -> str:
    """Check the folder of a project: "." for the matrix's folder, or a path below it."""
    return text if text == "." else beside(text.rstrip("/"))


def project_lock(text: str) -> str:
    """Check the lock of a project, a file whose name says its kind."""
    name = posixpath.basename(text)
    if name.endswith(".toml") and name != "pyproject.toml" and not _PYLOCK.fullmatch(name):
        raise ValueError(f"{text!r} is no name of a lock: it is pylock.toml, or pylock.NAME.toml without dots in NAME")
    return beside(text)


def certificate(text: str) -> str:
    if text.endswith("/"):
        raise ValueError(f"{text!r} is a folder; name each certificate")
    return beside(text)


def certificate_name(source: str) -> str:
    """Return the name of a certificate in an image: ``acme.crt`` for ``certificates/acme.pem``."""
    return posixpath.splitext(posixpath.basename(source))[0] + ".crt"


_EMPTY = ("/run", "/tmp", "/var/log", "/var/run", "/var/spool", "/var/tmp")
_ACCOUNTS = ("/etc/group", "/etc/gshadow", "/etc/passwd", "/etc/shadow")
_TOOLKIT = ("/bin/tini", "/usr/bin/tini", "/nvidia", "/packages", "/pytorch", "/usr/local/cuda", TOOLBOX)
# Paths that users cannot add, with all paths below them, by the reason.
_OCCUPIED = {
    **dict.fromkeys(("/dev", "/proc", "/sys"), "mounted by the container, so files of an image are hidden"),
    **dict.fromkeys(_EMPTY, "empty when a container starts"),
    **dict.fromkeys(_ACCOUNTS, "the file with the image's user"),
    **dict.fromkeys(_TOOLKIT, "the toolkit's own"),
    "/etc/ssl/certs": "made by the system; name yours in `certificates`",
    "/usr/local/share/ca-certificates": "for the files of `certificates`",
    VENV: "the folder of the locked packages; add to `packages`",
}
# Debian's folders of https://refspecs.linuxfoundation.org/fhs.shtml, and the parents of the paths above.
_FOLDERS = {
    *("/bin", "/boot", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/root", "/sbin", "/srv", "/usr"),
    *("/usr/bin", "/usr/games", "/usr/include", "/usr/lib", "/usr/libexec", "/usr/sbin", "/usr/share", "/usr/src"),
    *("/var", "/var/backups", "/var/cache", "/var/lib", "/var/local", "/var/lock", "/var/mail", "/var/opt"),
    *(f"/usr/local/{name}" for name in ("bin", "etc", "games", "include", "lib", "sbin", "share", "src")),
    *(str(folder) for place in _OCCUPIED for folder in PurePosixPath(place).parents),
}


def target(text: str) -> str:
    """Check the path of a file or a folder in an image, and return it without a slash at its end."""
    path = text.rstrip("/")
    if not text.startswith("/") or not _PATH.fullmatch(text) or posixpath.normpath(path or "/") != path:
        raise ValueError(f"{text!r} is not a path such as /etc/acme/job.yaml: from the root on, with single slashes")
    reason = occupied_by(path)
    if reason:
        raise ValueError(reason)
    return path


def occupied_by(path: str) -> str:
    """Return why a path of an image cannot be added; empty if it can."""
    place = next((place for place in _OCCUPIED if path == place or path.startswith(f"{place}/")), None)
    return f"{path} is not allowed: {place} is {_OCCUPIED[place]}" if place else ""


def standard_folder(path: str) -> bool:
    """Return True if every image has a folder at this path."""
    return path in _FOLDERS


def mode(text: str) -> str:
    if int(text, 8) & 0o002:
        raise ValueError(f"{text!r} lets everybody write, which images do not allow")
    return text
