"""The containerd below an engine of this machine, asked by its own `ctr`: blobs, and snapshots (layers unpacked).

Source: https://github.com/containerd/containerd/blob/main/docs/garbage-collection.md
"""

import contextlib
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from torchbake.core.files import linked, only_root_writes
from torchbake.engine.client import Engine, is_local
from torchbake.errors import EngineError
from torchbake.oci.manifest import Blob

STORE = "io.containerd.content.v1.content"  # of blobs, below its root; laid out as those of an OCI image layout are
SWITCH = "TORCHBAKE_HANDOVER"  # "1" turns the hand-over on; by default every layer goes through the engine
_OVERLAY = "overlayfs"  # the snapshotter whose folders are written here
_NAMESPACE = "moby"  # of all that dockerd keeps in containerd
_SOCKET = "/containerd.sock"
_SOCKETS = Path("/proc/net/unix")
_LIMIT = 600  # seconds, of one question; to hash a large blob takes some
_TRIES = 5  # to take in a blob and hold it, while others remove images
_KEPT = "containerd.io/gc.root"  # `ctr` puts it on what it makes; it stays until that is taken away
_STANDS_ON = f"containerd.io/gc.ref.snapshot.{_OVERLAY}"  # of a config, to the snapshot of all its layers

_LINK = 'umount --lazy "$(findmnt --noheadings --output TARGET --target "${2%/*}")"; ln "$1" "$2"'
_BESIDE = ("unshare", "--mount", "--propagation", "private", "sh", "-ec", _LINK, "sh")


@dataclass(frozen=True, kw_only=True)
class Containerd:
    """One containerd by its socket, and the ``root`` of all it keeps. Every method raises EngineError if refused."""

    address: str
    root: Path

    def take_blob(self, path: Path, blob: Blob) -> None:
        """Take in a file as a blob, which containerd checks by its digest. It stays, until `let_go_blob`.

        A file of two names is one: who has it must not write into it.
        """
        for tries_left in reversed(range(_TRIES)):
            self._ingest(path, blob)
            try:
                self._ask("content", "label", blob.digest, f"{_KEPT}=until-an-image-has-it")
                return
            except EngineError:  # it was collected before it was held: somebody removed an image just then
                if not tries_left:
                    raise

    def _ingest(self, path: Path, blob: Blob) -> None:
        """Take in a file as a blob that nothing holds yet.

        What comes by its socket it copies three times. It goes on where a file that it was writing ends, however that
        came to be there: so the file gets a name in that place too, or is copied there, and nothing is sent.
        Source: https://github.com/containerd/containerd/blob/main/plugins/content/local/store.go
        """
        name = f"torchbake-{uuid.uuid4().hex}"
        words = ("content", "ingest", "--expected-digest", blob.digest, "--expected-size", str(blob.size), name)
        with contextlib.suppress(EngineError):  # that there is less than it expects
            self._ask(*words)
        place = next((file.parent for file in (self.root / STORE / "ingest").glob("*/ref") if _is(file, name)), None)
        if place:
            try:
                linked(path, place / "data", otherwise=_link_beside)
                with path.open("rb") as file:
                    self._ask(*words, stdin=file)
            except (EngineError, OSError):  # a full disk, or bytes that are not the digest's
                with contextlib.suppress(OSError):  # what was begun stays for a day
                    (place / "data").unlink()
                    (place / "data").touch()
                raise

    def let_go_blob(self, digest: str) -> None:
        """Leave a blob to the images that name it."""
        self._ask("content", "label", digest, f"{_KEPT}=")

    def prepare(self, key: str, parent: str = "") -> Path:
        """A new snapshot to be written, on a committed one or on nothing; returns the folder of its own files."""
        return _own_folder(self._prepared(key, parent))

    def commit(self, key: str, name: str) -> None:
        """Make a snapshot that was written a layer of this name. It stays, until it is `let_go`."""
        self._snapshots("commit", name, key)

    def let_go(self, name: str) -> None:
        """Leave a snapshot to what stands on it: an image, another snapshot, or nothing, and then it goes."""
        self._snapshots("label", name, f"{_KEPT}=")

    def let_stand(self, config: str, name: str) -> None:
        """Let an image, by the digest of its config, stand on a snapshot, as if it had been unpacked for it."""
        self._ask("content", "label", config, f"{_STANDS_ON}={name}")

    def remove(self, key: str) -> None:
        """Remove a snapshot that nothing stands on."""
        self._snapshots("rm", key)

    def has(self, name: str) -> bool:
        """Whether there is a snapshot of this name."""
        try:
            self._snapshots("info", name)
        except EngineError:
            return False
        return True

    def folder(self, key: str) -> Path:
        """The folder of the files of a snapshot that was prepared on nothing."""
        command = self._snapshots("mounts", "/", key).split()  # mount -t bind FOLDER / -o rw,rbind
        return Path(command[3])

    def committed_folder(self, name: str, key: str) -> Path:
        """The folder of a layer's own files, seen from a snapshot on it, ``key``, which goes again."""
        mount = self._prepared(key, name)
        self.remove(key)
        return Path(_option(mount, "lowerdir").partition(":")[0])  # the uppermost comes first

    def names(self) -> list[str]:
        """The names of all snapshots."""
        return [line.split()[0] for line in self._snapshots("ls").splitlines()[1:] if line.strip()]

    def _prepared(self, key: str, parent: str) -> dict[str, Any]:
        """The mount of a new snapshot."""
        told = self._snapshots("prepare", "--mounts", key, *([parent] if parent else []))
        (mount,) = json.loads(told)
        return dict(mount)

    def _snapshots(self, *words: str) -> str:
        return self._ask("snapshots", "--snapshotter", _OVERLAY, *words)

    def _ask(self, *words: str, stdin: IO[bytes] | None = None) -> str:
        return _asked(self.address, "--namespace", _NAMESPACE, *words, stdin=stdin)


def roots(engine: Engine) -> tuple[Path, ...]:
    """Where the containerd of an engine of this machine keeps all it has: below the engine's folder, or the system's.

    Raises EngineError.
    Source: https://github.com/containerd/containerd/blob/main/docs/ops.md
    """
    return (engine.folder / "containerd/daemon", Path("/var/lib/containerd"))


def find_containerd(engine: Engine) -> Containerd | None:
    """The containerd that keeps the unpacked layers of an engine, where this user may write them as it does.

    That is root, beside an engine of this machine that gives its containers no user IDs of their own. None: only the
    engine can unpack. Without TORCHBAKE_HANDOVER=1 the result is None, and no socket is looked for. A socket or a root
    that another user could have made is ignored.
    """
    try:
        if (
            os.environ.get(SWITCH) != "1"
            or os.geteuid()
            or shutil.which("ctr") is None
            or not is_local(engine)
            or not _writes_plainly(engine)
        ):
            return None
        found = {_root_of(place): place for place in _listening()}
        ours = (Containerd(address=found[root], root=root) for root in roots(engine) if root in found)
        return next((each for each in ours if only_root_writes(each.root)), None)
    except (EngineError, OSError):
        return None


def _writes_plainly(engine: Engine) -> bool:
    options = " ".join(engine.info.get("SecurityOptions") or ())
    mapped = "name=rootless" in options or "name=userns" in options
    return engine.containerd_store and engine.info.get("Driver") == _OVERLAY and not mapped


def _listening() -> Iterator[str]:
    """The sockets of this machine that have containerd's usual name and that only root can have made.

    Any user can listen on a socket of that name and answer with a folder in which root would then write.
    """
    words = (line.split() for line in _SOCKETS.read_text().splitlines()[1:])
    for name in sorted({line[-1] for line in words if line[-1].endswith(_SOCKET)}):
        with contextlib.suppress(OSError):  # it is gone, or is in another mount namespace
            if only_root_writes(Path(name)):
                yield name


def _root_of(address: str) -> Path | None:
    """The folder of all that a containerd keeps; None where it does not tell."""
    try:
        told = _asked(address, "plugins", "ls", "--detailed", f"id=={_OVERLAY}")
    except EngineError:
        return None
    folders = [words[1] for words in map(str.split, told.splitlines()) if words[:1] == ["root"] and words[1:]]
    return Path(folders[0]).parent if folders else None


def _own_folder(mount: Mapping[str, Any]) -> Path:
    """The folder of a snapshot's own files, as its mount tells: the upper of an overlay, or all there is.

    Source: https://github.com/containerd/containerd/blob/main/core/diff/apply/apply_linux.go
    """
    if mount["Type"] == "bind":
        return Path(mount["Source"])
    return Path(_option(mount, "upperdir"))


def _option(mount: Mapping[str, Any], name: str) -> str:
    """An option of an overlay's mount. Raises LookupError where it has none."""
    options = dict(word.partition("=")[::2] for word in mount["Options"])
    return str(options[name])


def _is(file: Path, name: str) -> bool:
    """Whether a file that says what is being taken in says this name, after the namespace and a number."""
    try:
        return file.read_text().rpartition("/")[2] == name
    except OSError:  # it is done
        return False


def _link_beside(path: Path, target: Path) -> None:
    """Give a file its other name from where the mount of the target's folder is not seen; a copy where that fails.

    dockerd mounts its folder on itself where `/` is not shared, and no file has names on both sides of a mount. Beside
    it, where one sees what the mount hides, the folder is the same.
    Source: https://github.com/moby/moby/blob/master/daemon/daemon_linux.go (setupDaemonRootPropagation)
    """
    if path.stat().st_dev == target.parent.stat().st_dev:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            subprocess.run([*_BESIDE, path, target], stdin=subprocess.DEVNULL, capture_output=True, check=True)
            return
    shutil.copyfile(path, target)


def _asked(address: str, *words: str, stdin: IO[bytes] | None = None) -> str:
    """What `ctr` says. Raises EngineError for what it fails at."""
    command = ["ctr", "--address", address, "--connect-timeout", "5s", *words]
    try:
        done = subprocess.run(
            command, stdin=stdin or subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_LIMIT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"ctr cannot be asked: {error}.") from None
    if done.returncode:
        raise EngineError(f"containerd refuses: {done.stderr.strip()}")
    return done.stdout
