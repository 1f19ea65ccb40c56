"""Make the wheels of a project's packages that no index has as wheels, once, in ``wheels/`` beside the matrix.

Such packages are source distributions of pure Python, commits of git repositories, and files by address or path.
"""

import shutil
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchbake.core.digest import file_digest
from torchbake.core.files import replacing
from torchbake.core.paths import wheels_of
from torchbake.errors import LockError, StorageError
from torchbake.hostconfig.pip_config import PipConfig, local_folder, without_login
from torchbake.lock.lockfile import Pin
from torchbake.projects.fetch_source import Fetching, clone, fetch_file, find_sdist
from torchbake.projects.packages import Archive, GitSource, ProjectLock, ProjectPackage, Sdist
from torchbake.projects.wheel_build import build_wheel, check_wheel, is_pure
from torchbake.projects.wheels_folder import build_tag, find_own_wheel, fits, is_wheel, tagged
from torchbake.ui import console

_MAKING = threading.Lock()  # rows with one project are locked in parallel


def pins_of_own_wheels(
    packages: Sequence[ProjectPackage], lock: ProjectLock, root: Path, python: str, config: PipConfig
) -> dict[str, Pin]:
    """Return a pin with the hash of the own wheel of each package, by the file's name in ``wheels/``.

    ``root`` is the matrix's folder.

    The ``packages`` are those of ``lock`` whose source is an Sdist, a GitSource or an Archive. A wheel that is not in
    the folder is built or downloaded. Raises LockError if a wheel cannot be made, and StorageError if it cannot be
    kept.
    """
    pins = dict[str, Pin]()
    for package in packages:
        title = f"{lock.place(package.name)}: {package.name} {package.version}".rstrip()
        how = Fetching(hashes=package.hashes, base=(root / lock.path).parent, config=config, title=title)
        wheel, pin = _OwnWheel(root=root, package=package, python=python, how=how).pin()
        pins[wheel] = pin
    return pins


@dataclass(frozen=True, kw_only=True)
class _OwnWheel:
    root: Path
    package: ProjectPackage
    python: str
    how: Fetching

    def pin(self) -> tuple[str, Pin]:
        package = self.package
        if not package.hashes and not isinstance(package.source, GitSource):
            raise LockError(f"{self.how.title}: the lock has no hash of its file.", hint=self._hash_hint())
        with _MAKING:
            wheel = find_own_wheel(self.root, package, self.python) or self._make()
        locked, own_hash = is_wheel(package), file_digest(wheel)
        if locked and own_hash not in package.hashes:
            raise LockError(
                f"{self.how.title}: {wheel} has another hash than the lock.",
                hint="Remove it, or restore it from git; then lock again.",
            )
        version = check_wheel(wheel, package.name, package.version, self.how.title, sums=not locked)
        return wheel.name, Pin(name=package.name, version=version, hashes=(own_hash,), via=package.via)

    def _hash_hint(self) -> str:
        source = self.package.source
        path = local_folder(source.url) if isinstance(source, Archive) else None
        if path and (self.how.base / path).is_file():
            return f"If you trust this file, add to its line: --hash={file_digest(self.how.base / path)}"
        return "Lock the project with hashes, for example: uv pip compile --generate-hashes"

    def _make(self) -> Path:
        """Build or download the wheel, and return its path in the folder."""
        folder, package = wheels_of(self.root), self.package
        try:
            with tempfile.TemporaryDirectory(prefix="torchbake-wheel-") as work:
                folder.mkdir(exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):  # an error before a build of minutes
                    wheel = self._fetched(Path(work)) if is_wheel(package) else self._built(Path(work))
                target = folder / (wheel.name if is_wheel(package) else tagged(wheel.name, build_tag(package)))
                with replacing(target) as new:
                    shutil.copyfile(wheel, new)
        except OSError as error:
            raise StorageError(
                f"{self.how.title}: its wheel cannot be kept: {error.filename or folder}: {error.strerror}.",
                hint="Make this folder writable, or free some space; then lock again.",
            ) from None
        return target

    def _fetched(self, work: Path) -> Path:
        source = self.package.source
        assert isinstance(source, Archive)
        if not fits(source, self.python):
            raise LockError(
                f"{self.how.title}: {without_login(source.url)} does not fit Python {self.python} on x86_64 Linux.",
                hint="Name a wheel that fits in pyproject.toml, with a marker for each platform; then: uv lock",
            )
        console.say(f"{self.how.title}: fetching its wheel into wheels/", style="dim")
        wheel = fetch_file(source.url, work, self.how)
        check_wheel(wheel, self.package.name, self.package.version, self.how.title, sums=False)
        return wheel

    def _built(self, work: Path) -> Path:
        """Build the wheel. Raises LockError, also if it has compiled code."""
        package, title = self.package, self.how.title
        self._check_buildable()
        source, output = self._source(work), work / "wheel"
        output.mkdir()
        console.say(f"{title}: building its wheel into wheels/", style="dim")
        version = package.version if isinstance(package.source, GitSource) else ""
        try:
            wheel = build_wheel(source, output, self.how.config, version=version)
        except LockError as error:
            raise LockError(f"{title}: {error.message}", hint=_by_hand(package, self.python)) from None
        check_wheel(wheel, package.name, package.version, title)
        if not is_pure(wheel.name, self.python):
            raise LockError(
                f"{title}: its wheel {wheel.name} has compiled code for this machine.",
                hint=_by_hand(package, self.python),
            )
        return wheel

    def _check_buildable(self) -> None:
        """Raise LockError for a source that certainly has compiled code, or that is a part of an archive."""
        package, title = self.package, self.how.title
        if isinstance(package.source, Sdist) and len(package.hashes) > 1:  # one of the source, the others of wheels
            raise LockError(
                f"{title}: no wheel of the lock fits Python {self.python} on x86_64 Linux.",
                hint=_by_hand(package, self.python),
            )
        if isinstance(package.source, Archive) and package.source.subdirectory:
            raise LockError(
                f"{title}: its source is in the folder {package.source.subdirectory!r} of an archive.",
                hint="Name its git repository with `subdirectory` in pyproject.toml instead, then: uv lock",
            )

    def _source(self, work: Path) -> Path:
        source, how = self.package.source, self.how
        if isinstance(source, GitSource):
            return clone(source, work / "source", how.title)
        assert isinstance(source, Archive | Sdist)
        url = source.url
        if isinstance(source, Sdist):  # the host's mirrors first, as for wheels
            url = find_sdist(self.package.name, how.hashes, how.config) or ("" if how.config.no_index else url)
        if not url:
            raise LockError(
                f"{how.title}: no index of this host has its source distribution.",
                hint="Name an index that has it in pip's settings, or put its wheel into wheels/ beside the matrix.",
            )
        return fetch_file(url, work, how)


def _by_hand(package: ProjectPackage, python: str) -> str:
    """Return the next step for a package whose wheel has to be built by a person."""
    tag = f"cp{python.replace('.', '')}"
    stem = f"{package.name.replace('-', '_')}-{package.version or 'VERSION'}"
    own = () if isinstance(package.source, Sdist) else (build_tag(package),)
    return (
        "lock compiles no code. Build the wheel in a container of a `devel` image (pip wheel "
        f"--no-deps) and put it beside the matrix as wheels/{'-'.join((stem, *own, tag, tag))}-linux_x86_64.whl, or "
        "name a version or an index with a wheel in pyproject.toml, then: uv lock"
    )
