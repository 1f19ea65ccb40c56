"""The files of a wheel in an image, read from its archive: installed for the image's Python, and trimmed.

The toolkit writes them into a layer's archive, and a build writes them into a folder. So an image that is built by hand
has the same files.
Source: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

import configparser
import csv
import io
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import PurePosixPath

from .records import data_row, sorted_rows
from .strip import strip
from .trim import Drop, trim_rows

INTERPRETER = "/opt/venv/bin/python"
_EXECUTABLE = 0o111
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_SIGNATURE = re.compile(r"[^/]+\.dist-info/RECORD\.(jws|p7s)")  # of the RECORD, which cannot name it
_SCRIPT = re.compile(rb"\A#!pythonw?\b[^\n]*")
_SCHEMES = {"purelib": "", "platlib": "", "data": "", "scripts": "bin/", "headers": "include/{name}/"}
_GROUPS = ("console_scripts", "gui_scripts")
# In the form of uv and pip.
_PROGRAM = """\
#!{interpreter}
# -*- coding: utf-8 -*-
import sys
from {module} import {name}
if __name__ == "__main__":
    if sys.argv[0].endswith("-script.pyw"):
        sys.argv[0] = sys.argv[0][:-11]
    elif sys.argv[0].endswith(".exe"):
        sys.argv[0] = sys.argv[0][:-4]
    sys.exit({attribute}())
"""


class WheelError(Exception):
    """A wheel that cannot be laid out. The message names the file in it, and the reason."""


@dataclass(frozen=True, kw_only=True)
class WheelFile:
    """A file of an image: an unaltered member of the wheel's archive, or other bytes."""

    content: zipfile.ZipInfo | bytes
    executable: bool = False

    @property
    def mode(self) -> int:
        return 0o755 if self.executable else 0o644

    @property
    def size(self) -> int:
        return len(self.content) if isinstance(self.content, bytes) else self.content.file_size


@dataclass(frozen=True, kw_only=True)
class WheelFiles:
    """The files of a wheel's layer by their names, and the files that are kept aside as headers."""

    layer: Mapping[str, WheelFile]
    headers: Mapping[str, WheelFile]


def contents_of(
    wheel: zipfile.ZipFile, rules: Sequence[Drop], read: Callable[[zipfile.ZipInfo], bytes] | None = None
) -> WheelFiles:
    """Lay out a wheel by the rules of trim.toml, with a true RECORD. ``read`` is another reader of its members.

    Raises WheelError, and BadZipFile for an archive that is damaged.
    """
    members = {member.filename: member for member in wheel.infolist() if not member.is_dir()}
    info, read = _info_of(members), read or wheel.read
    rows = _rows_of(members, info, read)
    placed = {name: _place(name, info) for name in {*members, *(name for name, *_ in rows)}}
    files = {placed[name]: _file(name, member, read) for name, member in members.items()}
    added = _add(info, members, read)
    own = [_row(placed[name], files.get(placed[name]), rest) for name, *rest in rows]
    stay, go = trim_rows([*own, *(_row(name, file) for name, file in added.items())], rules)
    files |= added
    smaller = {name: _strip(files[name], read) for name, rule in go if rule.to == "strip" and name in files}
    stay += [_row(name, file) for name, file in smaller.items()]
    files |= smaller | {f"{info}/RECORD": WheelFile(content=sorted_rows(stay).encode())}
    return WheelFiles(
        layer={name: files[name] for name, *_ in stay if name in files},
        headers={name: files[name] for name, rule in go if rule.to == "headers" and name in files},
    )


def _info_of(members: Mapping[str, zipfile.ZipInfo]) -> str:
    """Check all members, and return the name of the wheel's .dist-info folder."""
    for name, member in members.items():
        if ".." in PurePosixPath(name).parts or name.startswith("/"):
            raise WheelError(f"{name} is not below the wheel's folder")
        if member.compress_type not in _METHODS or member.flag_bits & 1:
            raise WheelError(f"{name} is encrypted, or compressed by another method than deflate")
    records = [name for name in members if name.count("/") == 1 and name.endswith(".dist-info/RECORD")]
    if len(records) != 1:
        raise WheelError(f"it has {len(records)} files NAME.dist-info/RECORD in place of one")
    return records[0].partition("/")[0]


def _rows_of(
    members: Mapping[str, zipfile.ZipInfo], info: str, read: Callable[[zipfile.ZipInfo], bytes]
) -> list[list[str]]:
    try:
        rows = [row for row in csv.reader(io.StringIO(read(members[f"{info}/RECORD"]).decode())) if row]
    except (ValueError, csv.Error) as error:
        raise WheelError(f"{info}/RECORD cannot be read: {error}") from None
    names = {row[0] for row in rows}
    other = next((name for name in members if name not in names and not _SIGNATURE.fullmatch(name)), None)
    if other is not None:
        raise WheelError(f"{other} is not named in its RECORD")
    return rows


def _place(name: str, info: str) -> str:
    """Return the installed name of a file. Files of the .data folder have other names in the archive."""
    stem = info.removesuffix(".dist-info")
    if not name.startswith(f"{stem}.data/"):
        return name
    _, _, rest = name.partition("/")
    scheme, _, below = rest.partition("/")
    if scheme not in _SCHEMES or not below:
        raise WheelError(f"{name} is for a place that is not known")
    return _SCHEMES[scheme].format(name=stem.partition("-")[0]) + below


def _file(name: str, member: zipfile.ZipInfo, read: Callable[[zipfile.ZipInfo], bytes]) -> WheelFile:
    if ".data/scripts/" not in name:
        return WheelFile(content=member, executable=bool(member.external_attr >> 16 & _EXECUTABLE))
    return WheelFile(content=_SCRIPT.sub(f"#!{INTERPRETER}".encode(), read(member), count=1), executable=True)


def _add(
    info: str, members: Mapping[str, zipfile.ZipInfo], read: Callable[[zipfile.ZipInfo], bytes]
) -> dict[str, WheelFile]:
    """Return the files that an installer adds: programs for entry points, and marks as of uv."""
    points = members.get(f"{info}/entry_points.txt")
    text = read(points).decode() if points else ""
    programs = {
        f"bin/{point.name}": WheelFile(content=_program(point), executable=True) for point in _points(info, text)
    }
    return {f"{info}/INSTALLER": WheelFile(content=b"uv"), f"{info}/REQUESTED": WheelFile(content=b""), **programs}


def _points(info: str, text: str) -> Iterator[EntryPoint]:
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names of programs keep their case
    try:
        parser.read_string(text)
        for group in filter(parser.has_section, _GROUPS):
            for name, value in parser.items(group):
                yield EntryPoint(name=name, value=value, group=group)
    except configparser.Error as error:
        raise WheelError(f"{info}/entry_points.txt cannot be read: {error}") from None


def _program(point: EntryPoint) -> bytes:
    try:
        module, attribute = point.module, point.attr
    except AttributeError:  # EntryPoint raises it for a value without a module
        module, attribute = "", ""
    if not module or not attribute or "/" in point.name or point.name in (".", ".."):
        raise WheelError(f"entry_points.txt has a program that cannot be made: {point.name} = {point.value}")
    name = attribute.partition(".")[0]
    return _PROGRAM.format(interpreter=INTERPRETER, module=module, name=name, attribute=attribute).encode()


def _strip(library: WheelFile, read: Callable[[zipfile.ZipInfo], bytes]) -> WheelFile:
    whole = library.content if isinstance(library.content, bytes) else read(library.content)
    return WheelFile(content=strip(whole), executable=library.executable)


def _row(name: str, file: WheelFile | None, rest: Sequence[str] = ()) -> list[str]:
    """Return the row of a file. ``rest`` is the hash and the size in the wheel's RECORD, for an unaltered member."""
    return data_row(name, file.content) if file and isinstance(file.content, bytes) else [name, *rest]
