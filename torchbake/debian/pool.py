"""Fetch locked Debian packages by their hashes, and give them to a build as a context."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import requests

from torchbake.core.digest import digest, file_digest
from torchbake.core.files import link_or_copy, replacing
from torchbake.core.paths import debian_folder
from torchbake.debian.lockfile import DebianPackage
from torchbake.errors import BuildError
from torchbake.hostconfig.apt_archives import AptArchive, archive_of
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.http_session import CHUNK, PATIENCE
from torchbake.hostconfig.pip_config import PipConfig, without_logins
from torchbake.matrix.spec import BaseSpec
from torchbake.ui.steps import step

_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class DebianPool:
    """Package files of a machine, by hash. ``archives`` are asked in their order: mirrors, then a dated snapshot."""

    folder: Path
    archives: Sequence[AptArchive]
    apt: AptConfig
    certificates: str = ""
    _sound: set[DebianPackage] = field(default_factory=set, init=False, repr=False, compare=False)

    def context(self, steps: Mapping[str, Iterable[DebianPackage]], state: Path) -> Path:
        """Return a folder with a subfolder of package files for each step. Raises BuildError.

        The same packages have the same folder.
        """
        sections = {name: sorted(packages) for name, packages in steps.items()}
        self.fetch({package for packages in sections.values() for package in packages})
        lines = [f"{name}/{_file_name(package)} {package.line}" for name, own in sections.items() for package in own]
        target = state / "debs" / digest(lines).removeprefix("sha256:")[:16]
        for name, packages in sections.items():
            (target / name).mkdir(parents=True, exist_ok=True)
            (target / name / "locked").touch()  # layers/apt-install asks no mirror then, also without a package
            for package in packages:
                self._give(package, target / name / _file_name(package))
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
        """Return whether the file is there. Its hash is computed once, since the images of a base share packages."""
        if package not in self._sound and _is_file_of(package, self.path(package)):
            self._sound.add(package)
        return package in self._sound

    def _give(self, package: DebianPackage, target: Path) -> None:
        source = self.path(package)
        if target.exists() and not target.samefile(source) and not _is_file_of(package, target):
            target.unlink(missing_ok=True)  # a link to a file that was damaged, and that the pool has replaced
        link_or_copy(source, target)

    def _fetch(self, package: DebianPackage) -> None:
        reasons = []
        for archive in self.archives:
            mirror = archive.security if package.archive == "security" else archive.mirror
            url = f"{mirror.rstrip('/')}/{package.path}"
            try:
                self._download(url, package)
            except (requests.RequestException, OSError, BuildError) as error:
                reasons.append(without_logins(f"{url}: {error}"))
            else:
                return
        raise BuildError(
            f"{package.name} {package.version} cannot be fetched: {'; '.join(reasons)}",
            hint="A mirror drops old versions. Lock again, or name a dated mirror by `snapshot` of the base.",
        )

    def _download(self, url: str, package: DebianPackage) -> None:
        proxies, verify = _proxies(self.apt, url), self.certificates or True
        with (
            requests.get(url, stream=True, timeout=PATIENCE, proxies=proxies, verify=verify) as answer,
            replacing(self.path(package)) as beside,
        ):
            answer.raise_for_status()
            content = hashlib.sha256()
            size = 0
            with beside.open("wb") as file:
                for data in answer.iter_content(CHUNK):
                    content.update(data)
                    file.write(data)
                    size += len(data)
                    if size > package.size:
                        raise BuildError("longer than in the lock")
            if content.hexdigest() != package.sha256:
                raise BuildError("another hash than in the lock")
            beside.chmod(0o644)  # mmdebstrap reads it as another user


def _file_name(package: DebianPackage) -> str:
    """Return the name of a file in a context. `layers/apt-install` compares it with the fields of the package."""
    return f"{package.name}_{package.version}_{package.architecture}.deb".replace(":", "_")


def _is_file_of(package: DebianPackage, path: Path) -> bool:
    return path.is_file() and file_digest(path) == f"sha256:{package.sha256}"


def _proxies(apt: AptConfig, url: str) -> dict[str, str]:
    """Return the proxy of an address for requests; {} if apt has no setting, so that the environment's proxy counts.

    As in apt, a host's own setting comes first, and the settings of http are the defaults of https.
    """
    parts, values = urlsplit(url), {key.lower(): value for key, value in apt.proxies}
    schemes = dict.fromkeys((parts.scheme, "http"))
    keys = [f"acquire::{scheme}::proxy{host}" for host in (f"::{parts.hostname}", "") for scheme in schemes]
    proxy = next((values[key] for key in keys if values.get(key)), None)
    if proxy is None:
        return {}
    return {parts.scheme: "" if proxy.upper() == "DIRECT" else proxy}


def pool_of(base: BaseSpec, pip: PipConfig, apt: AptConfig) -> DebianPool:
    """Return this machine's pool, which asks the host's mirrors or the public ones, then the base's snapshot."""
    archives = [archive_of(base.distribution, apt)]
    if base.snapshot:
        security = re.sub(r"/debian(?=/|$)", "/debian-security", base.snapshot)
        archives.append(replace(archives[0], mirror=base.snapshot, security=security))
    return DebianPool(folder=debian_folder(), archives=archives, apt=apt, certificates=pip.cert)
