"""SBOM of an image as CycloneDX 1.6 in JSON; equal images give equal bytes.

The format: https://cyclonedx.org/docs/1.6/json/. Names of packages are package URLs:
https://github.com/package-url/purl-spec/blob/main/PURL-TYPES.rst
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cyclonedx.model import ExternalReference, ExternalReferenceType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.component_evidence import ComponentEvidence, Occurrence
from cyclonedx.model.license import DisjunctiveLicense, License, LicenseAcknowledgement, LicenseExpression
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.spdx import fixup_id
from packageurl import PackageURL

from torchbake.sbom import spdx
from torchbake.sbom.package_metadata import System
from torchbake.sbom.packages import ImagePackages, Package

_DECLARED = LicenseAcknowledgement.DECLARED  # by the package; no license texts were compared
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)  # the library's default is the current time, which is not reproducible


def sbom_text(contents: ImagePackages, *, name: str, version: str, digest: str, created: str | None) -> str:
    """Return the SBOM of an image, which ends with a newline. Pure.

    ``name`` is the image's repository, ``digest`` that of its manifest, and ``created`` its creation time (RFC 3339).
    """
    components = [_component(package, contents.system) for package in contents.packages]
    return _text(components, name=name, version=version, digest=digest, created=created)


def index_sbom_text(
    platforms: Mapping[str, str], *, name: str, version: str, digest: str, created: str | None
) -> str:  # fmt: skip
    """Return the SBOM of an index, which links to the SBOM of the image of each platform, by the image's digest.

    The other arguments are those of `sbom_text`. A link is a BOM-Link: https://cyclonedx.org/capabilities/bomlink/
    """
    components = []
    for platform, image in platforms.items():
        component = image_component(name, version, image)
        component.description = f"the image for {platform}"
        url = XsUri(f"urn:cdx:{serial_number(image)}/1")
        component.external_references.add(ExternalReference(type=ExternalReferenceType.BOM, url=url))
        components.append(component)
    return _text(components, name=name, version=version, digest=digest, created=created)


def _text(components: Sequence[Component], *, name: str, version: str, digest: str, created: str | None) -> str:
    moment, image = _moment(created), image_component(name, version, digest)
    bom = Bom(
        serial_number=serial_number(digest),
        components=components,
        metadata=BomMetaData(
            timestamp=moment or LONG_AGO,
            component=image,
            tools=ToolRepository(components=[Component(type=ComponentType.APPLICATION, name="torchbake")]),
        ),
    )
    bom.register_dependency(image, components)
    data = json.loads(JsonV1Dot6(bom).output_as_string())
    data.setdefault("components", [])
    if moment is None:
        del data["metadata"]["timestamp"]
    return json.dumps(ordered(data), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def serial_number(digest: str) -> uuid.UUID:
    """Return the serial number of the SBOM of an image with this digest of its manifest."""
    return uuid.uuid5(uuid.NAMESPACE_URL, digest)


def image_component(name: str, version: str, digest: str) -> Component:
    """Describe an image by its repository ``name``, its version and the digest of its manifest."""
    # The purl type `oci`: the last part of the repository's name in lower case, at the manifest's digest.
    purl = PackageURL(type="oci", name=name.rpartition("/")[2].lower(), version=digest)
    return Component(
        type=ComponentType.CONTAINER, name=name, version=version or None, purl=purl, bom_ref=purl.to_string()
    )


def ordered(value: Any) -> Any:
    """Sort every list: all of them are sets here, and the library's order is not deterministic."""
    if isinstance(value, dict):
        return {key: ordered(part) for key, part in value.items()}
    if isinstance(value, list):
        return sorted(map(ordered, value), key=lambda part: json.dumps(part, sort_keys=True))
    return value


def _moment(created: str | None) -> datetime | None:
    """Parse a creation time; return None if it is missing or invalid."""
    try:
        moment = datetime.fromisoformat(created or "")
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _component(package: Package, system: System) -> Component:
    purl = purl_of(package, system)
    places = [Occurrence(location=place) for place in package.locations]
    return Component(
        type=ComponentType.LIBRARY, name=package.name, version=package.version or None, purl=purl,
        bom_ref=purl.to_string(), licenses=_licenses(package),
        evidence=ComponentEvidence(occurrences=places) if places else None,
    )  # fmt: skip


def purl_of(package: Package, system: System) -> PackageURL:
    """Return the package's URL. Debian packages name their source package, too, which advisories use."""
    if package.kind == "python":
        return PackageURL(type="pypi", name=package.name, version=package.version or None)
    qualifiers = {"arch": package.architecture, "distro": "-".join(filter(None, (system.id, system.version)))}
    if (package.source, package.source_version) != (package.name, package.version):
        qualifiers["upstream"] = f"{package.source}@{package.source_version}"
    return PackageURL(
        type="deb",
        namespace=system.id or "debian",
        name=package.name,
        version=package.version or None,
        qualifiers={name: value for name, value in qualifiers.items() if value},
    )


def _licenses(package: Package) -> Sequence[License]:
    """Return one expression, or a list of ids and names, as CycloneDX allows no mixture of both.

    All licenses of a Debian package's files apply, so they are joined to an expression if each of them is one.
    """
    licenses = package.licenses
    if len(licenses) > 1 and package.kind == "debian" and all(map(spdx.expression, licenses)):
        return [_expression(" AND ".join(f"({each})" if " OR " in each else each for each in licenses))]
    if len(licenses) == 1 and spdx.expression(licenses[0]) and not fixup_id(licenses[0]):
        return [_expression(licenses[0])]
    known_names = {name: fixup_id(name) if spdx.expression(name) else None for name in licenses}
    return [
        DisjunctiveLicense(id=id_, name=None if id_ else name, acknowledgement=_DECLARED)
        for name, id_ in known_names.items()
    ]


def _expression(value: str) -> License:
    return LicenseExpression(value, acknowledgement=_DECLARED)
