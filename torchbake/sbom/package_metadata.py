"""Parsers of package metadata: METADATA, dpkg's status, copyright, os-release. Pure.

Foreign files can be invalid in any way. The parsers return all valid parts, and never raise.
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


class MetadataModel(BaseModel):
    """A value in package metadata."""

    model_config = ConfigDict(frozen=True)


class Wheel(MetadataModel):
    """An installed Python distribution with its normalised name."""

    kind: Literal["wheel"] = "wheel"
    name: str
    version: str
    licenses: tuple[str, ...] = ()


class Deb(MetadataModel):
    """An installed Debian package, and the source package that it was built from."""

    name: str
    version: str
    architecture: str = ""
    source: str
    source_version: str


class Debs(MetadataModel):
    """The packages in one file of dpkg."""

    kind: Literal["debs"] = "debs"
    packages: tuple[Deb, ...] = ()


class Copyright(MetadataModel):
    """The licenses in a copyright file; none if it is not machine-readable."""

    kind: Literal["copyright"] = "copyright"
    licenses: tuple[str, ...] = ()


class System(MetadataModel):
    """The Linux distribution: ``debian``, ``12``; empty if it is unknown."""

    kind: Literal["system"] = "system"
    id: str = ""
    version: str = ""


def read_wheel(text: str, folder: str) -> Wheel:
    """Parse METADATA. ``folder`` (``NAME-VERSION.dist-info``) replaces a missing name or version.

    Source: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
    """
    headers = HeaderParser().parsestr(text.lstrip("\ufeff\r\n"))

    def values(name: str) -> list[str]:
        return [str(value) for value in headers.get_all(name, [])]

    def first(name: str) -> str:
        return next((value for value in map(str.strip, values(name)) if value), "")

    name, _, version = folder.removesuffix(".dist-info").rpartition("-")
    return Wheel(
        name=_name(canonicalize_name(first("Name") or name or version)),
        version=_plain(first("Version") or (version if name else "")),
        licenses=spdx.of_wheel(
            stated=first("License-Expression"),
            field=first("License"),
            classifiers=[text for text in values("Classifier") if text.startswith("License ::")],
            files=sorted({" ".join(file.split()) for file in values("License-File") if file.strip()}),
        ),
    )


def read_debs(text: str) -> Debs:
    """Parse dpkg's status, or a file of status.d.

    Source: https://www.debian.org/doc/debian-policy/ch-controlfields.html
    """
    packages = []
    for fields in stanzas(text):
        name, version = _name(fields.get("package", "")), _plain(fields.get("version", ""))
        state = fields.get("status", "").split()
        if not name or (state and state[-1] in _WITHOUT_FILES):
            continue
        source, _, rest = fields.get("source", name).partition("(")
        source_version = _plain(rest.partition(")")[0]) or version
        architecture = _plain(fields.get("architecture", ""))
        packages.append(
            Deb(
                name=name, version=version, architecture=architecture, source=_name(source) or name,
                source_version=source_version,
            )
        )  # fmt: skip
    return Debs(packages=tuple(packages))


def read_copyright(text: str) -> Copyright:
    """Parse the short names of the licenses of a package's files, else of all paragraphs.

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
    """Parse os-release. Source: https://www.freedesktop.org/software/systemd/man/latest/os-release.html"""
    fields = {}
    for line in text.splitlines():
        key, separator, value = line.strip().partition("=")
        if separator and not key.startswith("#"):
            try:
                fields[key] = "".join(shlex.split(value))
            except ValueError:  # an unclosed quote
                fields[key] = value
    return System(id=_name(fields.get("ID", "")), version=_plain(fields.get("VERSION_ID", "")))


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """Yield the paragraphs of a Debian control file: fields by lower-case names, folded lines joined by newlines."""
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
    """Return the absolute path of the folder in which the distribution of a METADATA file is installed."""
    return str(PurePosixPath("/", path).parent.parent)


def _name(text: str) -> str:
    """Replace all characters that a name cannot have, so that two names never have the same package URL."""
    return re.sub("[^a-z0-9+.-]+", "-", text.strip().lower()).strip("-")


def _plain(text: str) -> str:
    return "".join(text.split())
