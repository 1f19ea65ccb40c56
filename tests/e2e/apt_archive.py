"""A signed archive of Debian packages for tests, to which a newer version of a package can be added."""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torchbake.debian.lockfile import DebianPackage

FOLDERS = {"main": "debian", "security": "debian-security"}
SUITES = {"main": ("bookworm", "bookworm-updates"), "security": ("bookworm-security",)}


@dataclass(frozen=True, kw_only=True)
class Archive:
    """The folders ``debian`` and ``debian-security`` in ``folder``, and the key that signs them in ``home``."""

    folder: Path
    home: Path

    def add_key(self) -> Path:
        """Make the key, and return a file with its public part."""
        self.home.mkdir(mode=0o700)
        self._gpg("--passphrase", "", "--quick-generate-key", "archive@example.test", "rsa3072", "sign", "never")
        path = self.home / "keys.gpg"
        path.write_bytes(self._gpg("--export"))
        return path

    def put(self, package: DebianPackage, file: Path) -> None:
        """Add a package's file. `sign` makes it known to apt."""
        target = self.folder / FOLDERS[package.archive] / package.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)

    def put_fix(self, package: DebianPackage, work: Path) -> str:
        """Add a package to the security archive with a higher version, which is returned."""
        source = self.folder / FOLDERS[package.archive] / package.path
        tree, version = work / "tree", f"{package.version}+fix1"
        subprocess.run(["dpkg-deb", "-R", str(source), str(tree)], check=True)
        control = tree / "DEBIAN/control"
        control.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {version}", control.read_text()))
        target = self.folder / "debian-security/pool/updates/main/f" / f"{package.name}_{version}_amd64.deb"
        target.parent.mkdir(parents=True, exist_ok=True)
        build = ["dpkg-deb", "--root-owner-group", "-b", str(tree), str(target)]
        subprocess.run(build, check=True, capture_output=True)
        return version

    def sign(self) -> None:
        """Write the indexes of all suites, and sign them."""
        for archive, suites in SUITES.items():
            root = self.folder / FOLDERS[archive]
            index = "".join(self._stanzas(root, sorted(root.glob("pool/**/*.deb")))).encode()
            for suite in suites:
                content = b"" if suite.endswith("-updates") else index
                packages = root / "dists" / suite / "main/binary-amd64/Packages"
                packages.parent.mkdir(parents=True, exist_ok=True)
                packages.write_bytes(content)
                entry = f" {hashlib.sha256(content).hexdigest()} {len(content)} main/binary-amd64/Packages\n"
                release = root / "dists" / suite / "Release"
                release.write_text(
                    f"Origin: Test\nSuite: {suite}\nCodename: {suite}\nDate: Sat, 28 Nov 2026 00:00:00 UTC\n"
                    f"Architectures: amd64\nComponents: main\nSHA256:\n{entry}"
                )
                release.with_name("InRelease").unlink(missing_ok=True)
                self._gpg("--clearsign", "--output", str(release.with_name("InRelease")), str(release))

    def _stanzas(self, root: Path, files: Iterable[Path]) -> Iterable[str]:
        for file in files:
            fields = subprocess.run(["dpkg-deb", "-f", str(file)], capture_output=True, text=True, check=True).stdout
            content = file.read_bytes()
            yield (
                f"{fields}Filename: {file.relative_to(root)}\nSize: {len(content)}\n"
                f"SHA256: {hashlib.sha256(content).hexdigest()}\n\n"
            )

    def _gpg(self, *words: str) -> bytes:
        command = ["gpg", "--homedir", str(self.home), "--batch", "--yes", *words]
        return subprocess.run(command, capture_output=True, check=True).stdout
