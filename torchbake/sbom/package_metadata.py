"""The files in which packages say what they are, as values: METADATA, dpkg's status, copyright, os-release. All pure.

What somebody else wrote may be broken in any way; what can be made out of it is taken, and nothing raises.
"""

import re
import shlex
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import PurePosixPath
from typing import Literal

from packaging.utils import canonicalize_name
from pydantic import BaseModel, ConfigDict

from torchbake.sbom import spdx

# Packages in these states have no files: https://manpages.debian.org/bookworm/dpkg/dpkg.1.en.html#Package_states
_WITHOUT_FILES = ("not-installed", "config-files")


class Wheel(BaseModel):
    """An installed Python distribution, its name normalised."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["wheel"] = "wheel"
    name: str
    version: str
    licenses: tuple[str, ...] = ()


class Deb(BaseModel):
    """An installed Debian package, and the source package that it was built from."""

    model_config = ConfigDict(frozen=True)

    name: str
    version: str
    architecture: str = ""
    source: str
    source_version: str


class Debs(BaseModel):
    """The packages of one file of dpkg's."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["debs"] = "debs"
    packages: tuple[Deb, ...] = ()


class Copyright(BaseModel):
    """The licenses that a copyright file names; none where only people can read it."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["copyright"] = "copyright"
    licenses: tuple[str, ...] = ()


class System(BaseModel):
    """The distribution: ``debian``, ``12``; empty where nothing says it."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["system"] = "system"
    id: str = ""
    version: str = ""


def read_wheel(text: str, folder: str) -> Wheel:
    """METADATA. ``folder``, the name of its ``NAME-VERSION.dist-info``, tells what the file does not.

    Source: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
    """
    headers = HeaderParser().parsestr(text.lstrip("\ufeff\r\n"))

    def said(name: str) -> list[str]:
        return [str(value) for value in headers.get_all(name, [])]

    def one(name: str) -> str:
        return next((value for value in map(str.strip, said(name)) if value), "")

    name, _, version = folder.removesuffix(".dist-info").rpartition("-")
    return Wheel(
        name=_name(canonicalize_name(one("Name") or name or version)),
        version=_plain(one("Version") or (version if name else "")),
        licenses=spdx.of_wheel(
            stated=one("License-Expression"),
            field=one("License"),
            classifiers=[text for text in said("Classifier") if text.startswith("License ::")],
            files=sorted({" ".join(file.split()) for file in said("License-File") if file.strip()}),
        ),
    )


def read_debs(text: str) -> Debs:
    """dpkg's status, or a file of status.d. Source: https://www.debian.org/doc/debian-policy/ch-controlfields.html"""
    found = []
    for fields in stanzas(text):
        name, version = _name(fields.get("package", "")), _plain(fields.get("version", ""))
        state = fields.get("status", "").split()
        if not name or (state and state[-1] in _WITHOUT_FILES):
            continue
        source, _, rest = fields.get("source", name).partition("(")
        found.append(
            Deb(
                name=name,
                version=version,
                architecture=_plain(fields.get("architecture", "")),
                source=_name(source) or name,
                source_version=_plain(rest.partition(")")[0]) or version,
            )
        )
    return Debs(packages=tuple(found))


def read_copyright(text: str) -> Copyright:
    """The licenses of a package's files by their short names; those of its paragraphs alone where no file has one.

    Source: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
    """
    paragraphs = list(stanzas(text))
    form = paragraphs[0].get("format", paragraphs[0].get("format-specification", "")) if paragraphs else ""
    if not re.search("copyright-format|dep-?5", form, re.IGNORECASE):
        return Copyright()
    of_files = [fields for place, fields in enumerate(paragraphs) if "files" in fields or place == 0]
    names = _short_names(of_files) or _short_names(paragraphs)
    return Copyright(licenses=tuple(sorted(names)))


def _short_names(paragraphs: list[dict[str, str]]) -> set[str]:
    first = (fields.get("license", "").partition("\n")[0].strip() for fields in paragraphs)
    return {name for name in map(spdx.of_debian, filter(None, first)) if name}


def read_system(text: str) -> System:
    """os-release. Source: https://www.freedesktop.org/software/systemd/man/latest/os-release.html"""
    fields = {}
    for line in text.splitlines():
        key, found, value = line.strip().partition("=")
        if found and not key.startswith("#"):
            try:
                fields[key] = "".join(shlex.split(value))
            except ValueError:  # a quote without its other half
                fields[key] = value
    return System(id=_name(fields.get("ID", "")), version=_plain(fields.get("VERSION_ID", "")))


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """The paragraphs of a Debian control file: fields by their names in lower case, folded lines joined by newlines."""
    fields: dict[str, str] = {}
    last = ""
    for line in [*text.replace("\r\n", "\n").split("\n"), ""]:
        if not line.strip():
            if fields:
                yield fields
            fields, last = {}, ""
        elif line[0] in " \t":
            if last:
                fields[last] += f"\n{line.strip()}"
        elif not line.startswith("#"):
            key, _, value = line.partition(":")
            last = key.strip().lower()
            fields[last] = value.strip()


def root_of(path: str) -> str:
    """The folder that a METADATA's distribution is installed in, from the image's root on."""
    return str(PurePosixPath("/", path).parent.parent)


def _name(text: str) -> str:
    """A name of the characters that names may have, so that no two names are one in a package URL."""
    return re.sub("[^a-z0-9+.-]+", "-", text.strip().lower()).strip("-")


def _plain(text: str) -> str:
    """A version or an architecture: one word, whatever was written."""
    return "".join(text.split())
