"""An SBOM gives back the packages from which it was made."""

import json
from dataclasses import replace

import pytest

from tests.unit.sbom.test_cyclonedx import DEBIAN, IMAGE, PERL, TORCH
from torchbake.sbom.cyclonedx import index_sbom_text, sbom_text
from torchbake.sbom.package_metadata import System
from torchbake.sbom.packages import ImagePackages, Package
from torchbake.sbom.read_cyclonedx import SbomError, packages_of_sbom

BASH = Package(
    kind="debian", name="bash", version="1:5.2.15-2+b2", architecture="amd64", source="bash", source_version="5.2.15-2"
)
GCC = Package(kind="debian", name="g++", version="4:12.2.0-3", architecture="amd64", source="gcc-defaults",
              source_version="1.203")  # fmt: skip
SELF = Package(kind="debian", name="tini", version="0.19-1", architecture="amd64", source="tini",
               source_version="0.19-1")  # fmt: skip


def read(*packages: Package, system: System = DEBIAN) -> ImagePackages:
    return packages_of_sbom(sbom_text(ImagePackages(packages=packages, system=system), **IMAGE).encode())


def test_packages_come_back_with_their_sources() -> None:
    back = read(BASH, GCC, PERL, SELF, TORCH)
    assert back == ImagePackages(
        packages=(BASH, GCC, PERL, SELF, replace(TORCH, licenses=(), locations=())), system=DEBIAN
    )


@pytest.mark.parametrize("system", [System(id="ubuntu", version="24.04"), System(id="debian"), DEBIAN])
def test_the_distribution_comes_back(system: System) -> None:
    assert read(SELF, system=system).system == system


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"bomFormat": "CycloneDX"}', b'{"bomFormat": "CycloneDX", "components": [{"purl": "x"}]}'],
)
def test_text_that_is_no_sbom_is_refused(data: bytes) -> None:
    with pytest.raises(SbomError):
        packages_of_sbom(data)


def test_the_sbom_of_an_index_is_not_an_image_without_packages() -> None:
    platforms = {"linux/amd64": f"sha256:{'1' * 64}", "linux/arm64": f"sha256:{'2' * 64}"}
    with pytest.raises(SbomError, match="index"):
        packages_of_sbom(index_sbom_text(platforms, **IMAGE).encode())
    assert packages_of_sbom(sbom_text(ImagePackages(), **IMAGE).encode()).packages == ()


def test_packages_of_another_kind_are_refused() -> None:
    components = [{"purl": "pkg:pypi/a@1"}, {"purl": "pkg:npm/left-pad@1.3.0"}]
    with pytest.raises(SbomError, match="npm"):
        packages_of_sbom(json.dumps({"bomFormat": "CycloneDX", "components": components}).encode())
