"""The files of a layer, written while its archive is: they are what an engine would unpack of it.

Source: https://github.com/opencontainers/image-spec/blob/main/layer.md
"""

import contextlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TypeAlias, cast

# An entry of an archive, and what opens its content where it is a file.
Member: TypeAlias = tuple[tarfile.TarInfo, Callable[[], IO[bytes]] | None]


def tree_of(folder: Path, diff_id: str) -> Path:
    """Where the files of a layer are below a folder of such trees; it is there once all of them are."""
    return folder / diff_id.removeprefix("sha256:")


class LayerTree:
    """The files, folders and links of one layer, written below ``folder`` as they pass on their way to its archive.

    Their owner is whoever writes them. Where they cannot be written the archive goes on without, and none are kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tree: Path | None = None
        self._folders: list[tarfile.TarInfo] = []

    def passing(self, members: Iterable[Member]) -> Iterator[Member]:
        """The same entries; what is read of a file is written too."""
        with self._or_none():
            self._tree = Path(tempfile.mkdtemp(prefix=".writing-", dir=self._folder))
        for info, opened in members:
            if opened is None:
                self._add(info)
            yield info, partial(self._read_along, info, opened) if opened else None

    def keep(self, diff_id: str) -> None:
        """All entries have passed: the tree is whole, and gets the name of its layer."""
        with self._or_none():
            if self._tree is None:
                return
            for info in self._folders:  # now, as each file changes the time of its folder
                finish(self._tree / info.name, info)
            self._tree.rename(tree_of(self._folder, diff_id))  # fails where another has it already

    def _add(self, info: tarfile.TarInfo) -> None:
        with self._or_none():
            if self._tree is None:
                return
            path = self._tree / info.name
            if info.issym():
                path.symlink_to(info.linkname)
                _set_time(path, info)
            else:
                path.mkdir()
                self._folders.append(info)

    def _read_along(self, info: tarfile.TarInfo, opened: Callable[[], IO[bytes]]) -> IO[bytes]:
        source = opened()
        with self._or_none():
            if self._tree is not None:
                path = self._tree / info.name
                copy = _Copying(source, path.open("xb"), self._or_none, lambda: finish(path, info))
                return cast(IO[bytes], copy)
        return source

    @contextlib.contextmanager
    def _or_none(self) -> Iterator[None]:
        """Give the tree up where it cannot be written."""
        try:
            yield
        except OSError:
            tree, self._tree = self._tree, None
            if tree:
                shutil.rmtree(tree, ignore_errors=True)


class _Copying(io.RawIOBase):
    """What a file holds, written to another as it is read. ``guard`` is around all that is done to that one."""

    def __init__(
        self,
        source: IO[bytes],
        target: IO[bytes],
        guard: Callable[[], contextlib.AbstractContextManager[None]],
        finish: Callable[[], None],
    ) -> None:
        self._source, self._target, self._guard, self._finish = source, target, guard, finish

    def read(self, size: int = -1, /) -> bytes:
        data = self._source.read(size)
        with self._guard():
            self._target.write(data)
        return data

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        self._source.close()
        with self._guard():
            self._target.close()
            self._finish()


def finish(path: Path, info: tarfile.TarInfo) -> None:
    """Give a written file or folder the mode and the time of its entry."""
    path.chmod(info.mode)
    _set_time(path, info)


def _set_time(path: Path, info: tarfile.TarInfo) -> None:
    os.utime(path, (info.mtime, info.mtime), follow_symlinks=False)
