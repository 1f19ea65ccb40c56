"""A wheel's layers in one stream: from its archive to theirs, with no files in between.

They are the layers that installing, trimming and packing gives: for a wheel of plain files all that uv writes is known.
Source: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

import base64
import csv
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol, TypeAlias

from torchbake.build.layer_archive import Member, write_layer
from torchbake.build.zip_member import METHODS, open_member

_EPOCH = 315532800  # as `layers/wheels` sets it: 1980-01-01, the oldest time that a zip file can say
_EXECUTABLE = 0o111

Row: TypeAlias = list[str]
Content: TypeAlias = zipfile.ZipInfo | bytes


class Rule(Protocol):
    """A rule of trim.toml; see `layers/wheels/trim.py`."""

    @property
    def to(self) -> str:
        """``headers``, ``strip``, or nothing for what is dropped."""


ReadTrim: TypeAlias = Callable[[Path | None], Sequence[Rule]]
TrimRows: TypeAlias = Callable[[list[Row], Iterable[Rule]], tuple[list[Row], list[tuple[str, Rule]]]]


class UnfitError(Exception):
    """A wheel that only an installer can lay out; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The files of a wheel's layer by their names, and of the headers beside it."""

    layer: Mapping[str, Content]
    headers: Mapping[str, Content]


def contents_of(wheel: zipfile.ZipFile, rules: Sequence[Rule], trim_rows: TrimRows) -> Contents:
    """What installing and trimming leaves of a wheel. Raises UnfitError."""
    files = {info.filename: info for info in wheel.infolist() if not info.is_dir()}
    record = _record_of(files)
    added = _added(record.parent)
    rows = list(csv.reader(io.StringIO(wheel.read(str(record)).decode())))
    stay, go = trim_rows([*rows, *(_row(name, data) for name, data in added.items())], rules)
    if any(rule.to == "strip" for _, rule in go):
        raise UnfitError("a rule strips libraries")
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(sorted(stay))
    there: dict[str, Content] = {**files, **added, str(record): text.getvalue().encode()}
    return Contents(
        layer={name: there[name] for name, *_ in stay if name in there},
        headers={name: there[name] for name, rule in go if rule.to == "headers" and name in there},
    )


def _record_of(files: Mapping[str, zipfile.ZipInfo]) -> PurePosixPath:
    """The RECORD of a wheel that has plain files alone. Raises UnfitError."""
    tops = {PurePosixPath(name).parts[0] for name in files}
    (info, *more) = [top for top in tops if top.endswith(".dist-info")] or [""]
    if not info or more or any(top.endswith(".data") for top in tops):
        raise UnfitError("its files have to be put where they belong")
    if f"{info}/RECORD" not in files or f"{info}/entry_points.txt" in files:
        raise UnfitError("it has no RECORD, or programs")
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
    if isinstance(content, bytes):
        data = content
        return _entry(name, tarfile.REGTYPE, 0o644, len(data)), lambda: io.BytesIO(data)
    executable, packed = content.external_attr >> 16 & _EXECUTABLE, content

    def opened() -> IO[bytes]:
        return open_member(wheel, packed)

    return _entry(name, tarfile.REGTYPE, 0o755 if executable else 0o644, content.file_size), opened


def _entry(name: str, kind: bytes, mode: int, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.mtime = kind, mode, size, _EPOCH
    return info


def main(words: Sequence[str], read_trim: ReadTrim, trim_rows: TrimRows) -> None:
    """WHEEL ROOT FOLDER THREADS [RULES]: write `layer.tar.zst`, and `headers.tar.zst` where there are any, and say so.

    Ends with a sentence and exit code 1 where only an installer can do it.
    """
    path, root, folder, threads, *rules = words
    try:
        with Path(path).open("rb") as file, zipfile.ZipFile(file) as wheel:
            contents = contents_of(wheel, read_trim(Path(rules[0]) if rules else None), trim_rows)
            print(json.dumps(_written(file, contents, root, Path(folder), int(threads))))
    except (UnfitError, zipfile.BadZipFile, ValueError, LookupError) as error:
        raise SystemExit(f"{Path(path).name}: {error}") from None


def _written(wheel: IO[bytes], contents: Contents, root: str, folder: Path, threads: int) -> Mapping[str, Any]:
    """What a `Packed` is made of, as JSON has it."""
    layer = write_layer(folder / "layer.tar.zst", _members(wheel, contents.layer, root), threads=threads)
    aside = None
    if contents.headers:
        members = _members(wheel, contents.headers, "headers")
        aside = asdict(write_layer(folder / "headers.tar.zst", members, threads=threads).blob)
    names = sorted(contents.layer, key=lambda name: name.split("/"))
    return {"layer": asdict(layer), "names": names, "headers": aside}
