"""Fetch locked Debian packages by their hashes, and give them to a build as a context."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import requests

from torchbake.core.digest import digest, file_digest
from torchbake.core.files import link_or_copy, replacing
from torchbake.core.paths import debian_folder
from torchbake.debian.lockfile import DebianPackage
from torchbake.errors import BuildError
from torchbake.hostconfig.apt_archives import AptArchive, archive_of
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.http_session import CHUNK, PATIENCE
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.matrix.spec import BaseSpec
from torchbake.ui.steps import step

_PROXIES = {"acquire::http::proxy": "http", "acquire::https::proxy": "https"}
_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class DebianPool:
    """Package files of a machine, by hash. ``archives`` are asked in their order: mirrors, then a dated snapshot."""

    folder: Path
    archives: Sequence[AptArchive]
    apt: AptConfig
    certificates: str = ""

    def context(self, steps: Mapping[str, Iterable[DebianPackage]], state: Path) -> Path:
        """Return a folder with a subfolder of package files for each step. Raises BuildError.

        The same packages have the same folder.
        """
        named = {name: sorted(packages) for name, packages in steps.items()}
        self.fetch({package for packages in named.values() for package in packages})
        lines = [f"{name}/{package.line}" for name, packages in named.items() for package in packages]
        target = state / "debs" / digest(lines).removeprefix("sha256:")[:16]
        for name, packages in named.items():
            (target / name).mkdir(parents=True, exist_ok=True)
            (target / name / "locked").touch()  # layers/apt-install asks no mirror then, also without a package
            for package in packages:
                link_or_copy(self.path(package), target / name / f"{package.name}_{package.architecture}.deb")
        return target

    def fetch(self, packages: Iterable[DebianPackage]) -> None:
        """Fetch the packages that the pool lacks, or has damaged. Raises BuildError."""
        missing = sorted(package for package in packages if not self._has(package))
        if not missing:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with step(f"fetching {len(missing)} Debian packages"), ThreadPoolExecutor(_AT_ONCE) as threads:
            for _ in threads.map(self._fetch, missing):
                pass

    def path(self, package: DebianPackage) -> Path:
        """Return the place of a package's file."""
        return self.folder / f"{package.sha256}.deb"

    def _has(self, package: DebianPackage) -> bool:
        path = self.path(package)
        return path.is_file() and file_digest(path) == f"sha256:{package.sha256}"

    def _fetch(self, package: DebianPackage) -> None:
        reasons = []
        for archive in self.archives:
            mirror = archive.security if package.archive == "security" else archive.mirror
            url = f"{mirror.rstrip('/')}/{package.path}"
            try:
                self._download(url, package)
            except (requests.RequestException, OSError, BuildError) as error:
                reasons.append(f"{url}: {error}")
            else:
                return
        raise BuildError(
            f"{package.name} {package.version} cannot be fetched: {'; '.join(reasons)}",
            hint="A mirror drops old versions. Lock again, or name a dated mirror by `snapshot` of the base.",
        )

    def _download(self, url: str, package: DebianPackage) -> None:
        own = {_PROXIES[key.lower()]: value for key, value in self.apt.proxies if key.lower() in _PROXIES}
        with (
            requests.get(url, stream=True, timeout=PATIENCE, proxies=own, verify=self.certificates or True) as answer,
            replacing(self.path(package)) as beside,
        ):
            answer.raise_for_status()
            content = hashlib.sha256()
            with beside.open("wb") as file:
                for data in answer.iter_content(CHUNK):
                    content.update(data)
                    file.write(data)
            if content.hexdigest() != package.sha256:
                raise BuildError("another hash than in the lock")
            beside.chmod(0o644)  # mmdebstrap reads it as another user


def pool_of(base: BaseSpec, pip: PipConfig, apt: AptConfig) -> DebianPool:
    """Return this machine's pool, which asks the host's mirrors or the public ones, then the base's snapshot."""
    archives = [archive_of(base.distribution, apt)]
    if base.snapshot:
        security = re.sub(r"/debian(?=/|$)", "/debian-security", base.snapshot)
        archives.append(replace(archives[0], mirror=base.snapshot, security=security))
    return DebianPool(folder=debian_folder(), archives=archives, apt=apt, certificates=pip.cert)
