"""Layers as changes to a tree: read from an archive, and written to one in one form whoever made it."""

import hashlib
import tarfile
from collections.abc import Iterable, Iterator
from functools import partial

from torchbake.oci.layer_archive import Member
from torchbake.oci.tar_member import open_member
from torchbake.oci.tree import Change, FileNode, clean_path, is_whiteout, linked_once, with_time

# Capabilities of programs are the only extended attribute that all builders export.
_KEPT_ATTRIBUTES = ("SCHILY.xattr.security.capability",)
_DEVICES = (tarfile.CHRTYPE, tarfile.BLKTYPE)


def read_changes(archive: tarfile.TarFile) -> list[Change]:
    """Read an archive once, and hash its files. Raises one of UNREADABLE."""
    nodes: dict[str, FileNode | None] = {}
    for info in archive:
        path = clean_path(info.name)
        nodes[path] = None if is_whiteout(path) else _node(archive, info, path, nodes)
    return [*nodes.items()]


def _node(archive: tarfile.TarFile, info: tarfile.TarInfo, path: str, before: dict[str, FileNode | None]) -> FileNode:
    if info.islnk():
        target = before.get(clean_path(info.linkname))
        if target is None:
            raise tarfile.ReadError(f"{path} is a hard link to {info.linkname}, which its layer lacks")
        return target
    content = ""
    if info.isreg():
        content = hashlib.file_digest(open_member(archive, info), "sha256").hexdigest()  # type: ignore[arg-type]
    elif info.issym():
        content = info.linkname
    elif info.type in _DEVICES:
        content = f"{info.devmajor}:{info.devminor}"
    return FileNode(
        kind=tarfile.REGTYPE if info.isreg() else info.type,
        mode=0o777 if info.issym() else info.mode & 0o7777,
        uid=info.uid,
        gid=info.gid,
        content=content,
        attributes=tuple((name, info.pax_headers[name]) for name in _KEPT_ATTRIBUTES if name in info.pax_headers),
        time=int(info.mtime),
        file=info.name if info.isreg() else "",
    )


def members(changes: Iterable[Change], archive: tarfile.TarFile, latest: int) -> Iterator[Member]:
    """Yield the entries of a layer with these changes. The content of its files is in ``archive``.

    No time is after ``latest``, in seconds. Entries have no names of owners, and a pax header only for a long name, a
    name that is not ASCII, and capabilities.
    """
    sources = {info.name: info for info in archive if info.isreg()}
    for path, node, target in linked_once(changes):
        info = tarfile.TarInfo(path)
        info.mode, info.mtime = 0, latest
        if node is None:
            yield info, None
            continue
        dated_node = with_time(node, latest)
        info.type, info.mode, info.uid, info.gid, info.mtime = node.kind, node.mode, node.uid, node.gid, dated_node.time
        info.pax_headers = dict(node.attributes)
        if target:
            info.type, info.linkname = tarfile.LNKTYPE, target
        elif node.file:
            source = sources[node.file]
            info.size = source.size
            yield info, partial(open_member, archive, source)
            continue
        elif info.type == tarfile.SYMTYPE:
            info.linkname = node.content
        elif info.type in _DEVICES:
            info.devmajor, info.devminor = map(int, node.content.split(":"))
        yield info, None
