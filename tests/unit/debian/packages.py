"""Debian packages for tests."""

from typing import Any

from torchbake.debian.lockfile import DebianPackage

MIRROR, SECURITY = "http://deb.debian.org/debian", "http://deb.debian.org/debian-security"


def package(name: str, version: str = "1.0-1", **values: Any) -> DebianPackage:
    """A package with a hash that depends on the name and the version."""
    path = f"pool/main/{name[0]}/{name}/{name}_{version.partition(':')[2] or version}_amd64.deb"
    digest = f"{hash_of(name + version):064x}"
    standard = {"architecture": "amd64", "archive": "main", "path": path, "size": 1000, "sha256": digest}
    return DebianPackage(name=name, version=version, **{**standard, **values})


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode()[:30], "big")


def address(one: DebianPackage) -> str:
    """The line of `apt-get --print-uris` for a package."""
    mirror = SECURITY if one.archive == "security" else MIRROR
    version, path = one.version.replace(":", "%3a"), one.path.replace("+", "%2b")
    file = f"{one.name}_{version}_{one.architecture}.deb"
    return f"'{mirror}/{path}' {file} {one.size} SHA256:{one.sha256}"
