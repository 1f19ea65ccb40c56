"""Small files of advisories, and an image's packages, for tests."""

from pathlib import Path

from torchbake.sbom.package_metadata import System
from torchbake.sbom.packages import ImagePackages, Package

FILES = Path(__file__).parent / "files"
TRACKER, OSV = FILES / "tracker.json", FILES / "osv"


def deb(name: str, version: str, source: str = "", source_version: str = "") -> Package:
    return Package(
        kind="debian", name=name, version=version, architecture="amd64", source=source or name,
        source_version=source_version or version,
    )  # fmt: skip


def wheel(name: str, version: str) -> Package:
    return Package(kind="python", name=name, version=version)


def image(*packages: Package, system: str = "debian-12") -> ImagePackages:
    name, _, version = system.partition("-")
    return ImagePackages(packages=tuple(sorted(packages)), system=System(id=name, version=version))
