"""The packages of an image, read from its CycloneDX SBOM. Pure."""

from collections.abc import Mapping
from typing import Any

from packageurl import PackageURL

from torchbake.core.json_text import NotJsonError, read_object
from torchbake.sbom.package_metadata import System
from torchbake.sbom.packages import ImagePackages, Package


class SbomError(ValueError):
    """A text is no SBOM of `sbom_text`. The message gives the reason in a few words."""


def packages_of_sbom(data: bytes) -> ImagePackages:
    """Return the packages that `sbom_text` wrote into an SBOM, with their source packages.

    Licenses and locations are left out. Raises SbomError, also for the SBOM of an index, which has no packages.
    """
    try:
        content = read_object(data)
    except NotJsonError as error:
        raise SbomError(str(error)) from None
    if content.get("bomFormat") != "CycloneDX":
        raise SbomError("it is not a CycloneDX SBOM")
    try:
        urls = [PackageURL.from_string(one["purl"]) for one in content["components"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SbomError(f"a component has no package URL ({error!r})") from None
    if others := sorted({url.type for url in urls} - {"deb", "pypi"}):
        what = "it is that of an index of several platforms" if others == ["oci"] else f"it has packages of {others}"
        raise SbomError(what)
    packages = tuple(sorted(map(_package, urls)))
    systems = [_system(url) for url in urls if url.type == "deb"]
    return ImagePackages(packages=packages, system=systems[0] if systems else System())


def _package(url: PackageURL) -> Package:
    if url.type == "pypi":
        return Package(kind="python", name=url.name, version=url.version or "")
    qualifiers = _qualifiers(url)
    version = url.version or ""
    source, _, source_version = qualifiers.get("upstream", f"{url.name}@{version}").partition("@")
    return Package(
        kind="debian", name=url.name, version=version, architecture=qualifiers.get("arch", ""), source=source,
        source_version=source_version or version,
    )  # fmt: skip


def _system(url: PackageURL) -> System:
    _, _, version = _qualifiers(url).get("distro", "").partition("-")
    return System(id=url.namespace or "", version=version)


def _qualifiers(url: PackageURL) -> Mapping[str, Any]:
    return url.qualifiers if isinstance(url.qualifiers, dict) else {}
