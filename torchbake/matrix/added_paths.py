"""Paths of files that a matrix adds to images: where they are beside it, and where they go.

A function gives back the text, and raises ValueError with what is wrong.
"""

import posixpath
import re

_PATH = re.compile(r"[A-Za-z0-9._@+/-]+")
_GENERATED = ("entrypoints", "images", "layers", "reports", ".torchbake", ".git")


def beside(text: str) -> str:
    """A path below the matrix's folder; a folder's ends in a slash."""
    parts = text.rstrip("/").split("/")
    if text.startswith("/") or ".." in parts:
        raise ValueError(f"{text!r} is outside of the matrix's folder, which alone is there wherever images are built")
    if not _PATH.fullmatch(text) or text.startswith("-") or posixpath.normpath(text) != text.rstrip("/"):
        raise ValueError(f"{text!r} is no path such as files/job.yaml: letters, digits, ._@+- and single slashes")
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
