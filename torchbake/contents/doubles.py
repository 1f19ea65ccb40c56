"""Equal content at several paths, and CUDA's libraries of the system that wheels bring too. Pure."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence

from torchbake.contents.stored_files import StoredFile

# Bytes of equal files in two folders from which they count: packages have the same license text, and many a small file
# is equal to another by chance.
SMALLEST = 100_000
_LIBRARY = re.compile(r".*/(?P<name>[^/]+\.so\.\d+)(?:\.\d+)*\Z")
_WHEELS = re.compile(r"(?:.*/)?(?:site|dist)-packages/(?:nvidia/|torch/lib/lib(?:cu|nv|nccl))")


def cuda_copies(files: Sequence[StoredFile]) -> Iterator[tuple[StoredFile, str]]:
    """Find libraries outside of the wheels that also have them: the file, and the path in the wheel.

    Libraries are the same if they have the same name up to the number of the ABI, as in ``libcublas.so.12``.
    """
    wheels = {name: file.path for file in files if _WHEELS.match(file.path) and (name := _library(file.path))}
    for file in files:
        name = _library(file.path)
        if name in wheels and not _WHEELS.match(file.path):
            yield file, wheels[name]


def _library(path: str) -> str:
    match = _LIBRARY.match(path)
    return match["name"] if match else ""


def copies(
    files: Sequence[StoredFile], owned: Collection[str], debian: Collection[str] = ()
) -> Iterator[tuple[StoredFile, str]]:
    """Find files with the content of another: the copy, and the path of the file that stays.

    A file of a package (``owned``) stays, else the file of the lowest layer. Copies within Debian's own packages, as of
    git and Perl, do not count, as nobody installs less of a package. Copies count if those in the same two folders have
    `SMALLEST` bytes or more together.
    """
    groups: defaultdict[tuple[int, str], list[StoredFile]] = defaultdict(list)
    for file in files:
        groups[file.file.size, file.file.content].append(file)
    pairs = list[tuple[StoredFile, str, tuple[str, str]]]()
    for group in (group for group in groups.values() if len(group) > 1):
        first, *others = sorted(group, key=lambda each: (each.path not in owned, each.file.layer, each.path))
        pairs += [
            (other, first.path, folders(other.path, first.path))
            for other in others
            if other.path not in debian or first.path not in debian
        ]
    sizes = Counter[tuple[str, str]]()
    for file, _, pair in pairs:
        sizes[pair] += file.file.size
    yield from ((file, original) for file, original, pair in pairs if sizes[pair] >= SMALLEST)


def folders(path: str, other: str) -> tuple[str, str]:
    """Return the two folders below which two files have the same path: the whole paths if their names differ."""
    first, second = path.split("/"), other.split("/")
    while first and second and first[-1] == second[-1]:
        first.pop()
        second.pop()
    return "/".join(first), "/".join(second)
