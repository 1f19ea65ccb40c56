"""A wheel's layers in one stream: from its archive to theirs, with no files in between.

They are the layers that installing, trimming and packing gives. For a wheel of plain files all that uv writes is known;
its programs are made beside, of the little that decides them.
Source: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

import base64
import csv
import hashlib
import io
import json
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol, TypeAlias

from torchbake.build.zip_member import METHODS, open_member, read_member
from torchbake.oci.layer_archive import Member, write_layer

_EPOCH = 315532800  # as `layers/wheels` sets it: 1980-01-01, the oldest time that a zip file can say
_EXECUTABLE = 0o111
UNFIT = 3  # the exit code
_POINTS = ".dist-info/entry_points.txt"
PROGRAMS = "bin"  # where uv puts those of a wheel that it installs into a folder

Row: TypeAlias = list[str]


class Rule(Protocol):
    """A rule of trim.toml; see `layers/wheels/trim.py`."""

    @property
    def to(self) -> str:
        """``headers``, ``strip``, or nothing for what is dropped."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What `layers/wheels` does inside a build: it reads rules and trims a RECORD by them, and strips a library."""

    read_trim: Callable[[Path | None], Sequence[Rule]]
    trim_rows: Callable[[list[Row], Iterable[Rule]], tuple[list[Row], list[tuple[str, Rule]]]]
    strip: Callable[[bytes], bytes]


class UnfitError(Exception):
    """A wheel that only an installer can lay out; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """A file that is not as it is in the wheel."""

    data: bytes
    executable: bool = False


Content: TypeAlias = zipfile.ZipInfo | Written


@dataclass(frozen=True, kw_only=True)
class Trimmed:
    """The files that installing a wheel gives, by their names, and the rows of its ``record``: of what stays, and of
    what goes by which rule.
    """

    files: Mapping[str, Content]
    record: str
    stay: list[Row]
    go: list[tuple[str, Rule]]


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The files of a wheel's layer by their names, and of the headers beside it."""

    layer: Mapping[str, Content]
    headers: Mapping[str, Content]


def trimmed(wheel: zipfile.ZipFile, rules: Sequence[Rule], tools: Tools, programs: Mapping[str, bytes]) -> Trimmed:
    """What is to become of a wheel's files, with these programs. Raises UnfitError."""
    files = {info.filename: info for info in wheel.infolist() if not info.is_dir()}
    record = _record_of(files)
    added = {name: Written(data=data) for name, data in _added(record.parent).items()}
    added |= {name: Written(data=data, executable=True) for name, data in programs.items()}
    rows = list(csv.reader(io.StringIO(wheel.read(str(record)).decode())))
    if not files.keys() <= {row[0] for row in rows if row}:
        raise UnfitError("its RECORD does not name all files")
    stay, go = tools.trim_rows([*rows, *(_row(name, file.data) for name, file in added.items())], rules)
    return Trimmed(files={**files, **added}, record=str(record), stay=stay, go=go)


def contents_of(wheel: zipfile.ZipFile, found: Trimmed, strip: Callable[[bytes], bytes]) -> Contents:
    """What installing and trimming leaves of a wheel, and a true RECORD."""
    strippable = {name for name, rule in found.go if rule.to == "strip"} & found.files.keys()
    less = {name: _stripped(wheel, found.files[name], strip) for name in strippable}
    stay = found.stay + [_row(name, file.data) for name, file in less.items()]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(sorted(stay))
    there = {**found.files, **less, found.record: Written(data=text.getvalue().encode())}
    return Contents(
        layer={name: there[name] for name, *_ in stay if name in there},
        headers={name: there[name] for name, rule in found.go if rule.to == "headers" and name in there},
    )


def _stripped(wheel: zipfile.ZipFile, library: Content, strip: Callable[[bytes], bytes]) -> Written:
    assert isinstance(library, zipfile.ZipInfo)  # a rule names it, and no rule names what is added
    assert wheel.fp
    data = strip(read_member(wheel.fp, library))
    return Written(data=data, executable=bool(library.external_attr >> 16 & _EXECUTABLE))


def _record_of(files: Mapping[str, zipfile.ZipInfo]) -> PurePosixPath:
    """The RECORD of a wheel that has plain files alone. Raises UnfitError."""
    tops = {PurePosixPath(name).parts[0] for name in files}
    (info, *more) = [top for top in tops if top.endswith(".dist-info")] or [""]
    if not info or more or any(top.endswith(".data") for top in tops):
        raise UnfitError("its files have to be put where they belong")
    if f"{info}/RECORD" not in files:
        raise UnfitError("it has no RECORD")
    if any(".." in PurePosixPath(name).parts or name.startswith("/") for name in files):
        raise UnfitError("its files are not all below one folder")
    if any(file.compress_type not in METHODS or file.flag_bits & 1 for file in files.values()):
        raise UnfitError("its files are compressed otherwise, or encrypted")
    return PurePosixPath(info, "RECORD")


def _added(info: PurePosixPath) -> dict[str, bytes]:
    """What uv adds to a wheel that was asked for by name."""
    return {f"{info}/INSTALLER": b"uv", f"{info}/REQUESTED": b""}


def _row(name: str, data: bytes) -> Row:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return [name, f"sha256={digest}", str(len(data))]


def _members(wheel: IO[bytes], files: Mapping[str, Content], root: str) -> Iterator[Member]:
    """Entries in the order of their names, each after its folders, as `normalise` of `layers/wheels` leaves files."""
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents} - {"."}
    yield _entry(root, tarfile.DIRTYPE, 0o755), None
    for name in sorted({*files, *folders}, key=lambda name: name.split("/")):
        if name in folders:
            yield _entry(f"{root}/{name}", tarfile.DIRTYPE, 0o755), None
        else:
            yield _file(wheel, f"{root}/{name}", files[name])


def _file(wheel: IO[bytes], name: str, content: Content) -> Member:
    if isinstance(content, zipfile.ZipInfo):
        packed = content
        mode = _mode(packed.external_attr >> 16)
        return _entry(name, tarfile.REGTYPE, mode, packed.file_size), lambda: open_member(wheel, packed)
    data, mode = content.data, _mode(_EXECUTABLE if content.executable else 0)
    return _entry(name, tarfile.REGTYPE, mode, len(data)), lambda: io.BytesIO(data)


def _mode(mode: int) -> int:
    return 0o755 if mode & _EXECUTABLE else 0o644


def _entry(name: str, kind: bytes, mode: int, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.mtime = kind, mode, size, _EPOCH
    return info


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to be done with a wheel: its ``layer``, or a wheel that has the same ``programs`` and no more.

    It is done in the folder where one stands. Files of a layer stand below ``root``; what is in `staging/bin` is added
    to the wheel's own. Without ``rules`` nothing is trimmed.
    """

    what: str
    wheel: str
    root: str
    threads: int
    rules: str
    modules: bool


def main(job: Job, tools: Tools) -> None:
    """Do it; a sentence and exit code UNFIT where only an installer can.

    `layer` writes `layer.tar.zst`, `headers.tar.zst` and `modules.tar.zst`, as far as there is something to write, and
    says what a `Packed` is made of. `programs` writes into a folder of that name.
    """
    programs = {f"{PROGRAMS}/{path.name}": path.read_bytes() for path in Path("staging", PROGRAMS).glob("*")}
    try:
        with Path(job.wheel).open("rb") as file, zipfile.ZipFile(file) as wheel:
            found = trimmed(wheel, tools.read_trim(Path(job.rules) if job.rules else None), tools, programs)
            points = next((name for name, *_ in found.stay if name.endswith(_POINTS)), "")
            if job.what == "programs":
                _write_programs(wheel, points)
            elif points and not programs:
                raise UnfitError("it has programs")
            else:
                print(json.dumps(_written(file, contents_of(wheel, found, tools.strip), job)))
    except (UnfitError, zipfile.BadZipFile) as error:
        print(f"{Path(job.wheel).name}: {error}", file=sys.stderr)
        raise SystemExit(UNFIT) from None


def _write_programs(wheel: zipfile.ZipFile, points: str) -> None:
    if points:
        info = points.partition("/")[0]
        Path("programs").mkdir()
        with zipfile.ZipFile(Path("programs", f"{info.removesuffix('.dist-info')}-py3-none-any.whl"), "w") as small:
            for name in (points, f"{info}/METADATA", f"{info}/WHEEL"):
                small.writestr(name, wheel.read(name))
            small.writestr(f"{info}/RECORD", "")


def _written(wheel: IO[bytes], contents: Contents, job: Job) -> Mapping[str, Any]:
    """What a `Packed` is made of, as JSON has it."""
    members = _members(wheel, contents.layer, job.root)
    layer = write_layer(Path("layer.tar.zst"), members, threads=job.threads)
    modules = {name: content for name, content in contents.layer.items() if job.modules and name.endswith(".py")}
    names = sorted(contents.layer, key=lambda name: name.split("/"))
    return {
        "layer": asdict(layer),
        "names": names,
        "headers": _aside(wheel, "headers", contents.headers, job),
        "modules": _aside(wheel, "modules", modules, job),
    }


def _aside(wheel: IO[bytes], name: str, files: Mapping[str, Content], job: Job) -> Mapping[str, Any] | None:
    """The blob of an archive of these files below a folder of its name; None where there are none."""
    if not files:
        return None
    return asdict(write_layer(Path(f"{name}.tar.zst"), _members(wheel, files, name), threads=job.threads).blob)
