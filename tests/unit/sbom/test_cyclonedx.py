"""The SBOM as bytes, against the official schema; the list of licenses; and an image looked into."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.sbom.test_packages import BASH, STATUS, image, wheel
from torchbake.engine.export import Content
from torchbake.errors import EngineError
from torchbake.oci.manifest import MANIFEST, Manifest, sha256
from torchbake.sbom.cyclonedx import index_sbom_text, sbom_text, serial_number
from torchbake.sbom.image_scan import contents_in, look_into, sbom_of_contents, unread
from torchbake.sbom.package_metadata import System
from torchbake.sbom.packages import CompressedLayer, ImagePackages, Package

VALIDATOR = JsonStrictValidator(SchemaVersion.V1_6)
DIGEST = f"sha256:{'a1' * 32}"
CREATED = "2026-01-02T03:04:05Z"
IMAGE = {"name": "acme/pytorch", "version": "2.13.0-cpu", "digest": DIGEST, "created": CREATED}
DEBIAN = System(id="debian", version="12")
TORCH = Package(kind="python", name="torch", version="2.13.0+cpu", licenses=("BSD-3-Clause",), locations=("/pytorch",))
PERL = Package(
    kind="debian", name="perl-base", version="5.36-7+b1", architecture="amd64", source="perl", source_version="5.36-7"
)


def sbom(*packages: Package, system: System = DEBIAN, **changes: Any) -> dict[str, Any]:
    text = sbom_text(ImagePackages(packages=packages, system=system), **(IMAGE | changes))
    assert VALIDATOR.validate_str(text) is None
    matches: dict[str, Any] = json.loads(text)
    return matches


def licensed(*licenses: str, kind: str = "python") -> Any:
    fields: dict[str, Any] = {"kind": kind, "name": "a", "version": "1", "licenses": licenses}
    (component,) = sbom(Package(**fields))["components"]
    stated = component.get("licenses", [])
    assert all(one.get("license", one)["acknowledgement"] == "declared" for one in stated)
    return [one.get("expression") or one["license"].get("id") or (one["license"]["name"],) for one in stated]


def test_the_subject_is_the_image_at_its_digest() -> None:
    matches = sbom(TORCH)
    assert matches["metadata"]["component"] == {
        "type": "container",
        "name": "acme/pytorch",
        "version": "2.13.0-cpu",
        "purl": f"pkg:oci/pytorch@{DIGEST}",
        "bom-ref": f"pkg:oci/pytorch@{DIGEST}",
    }
    assert matches["metadata"]["tools"] == {"components": [{"type": "application", "name": "torchbake"}]}
    assert (matches["bomFormat"], matches["specVersion"], matches["version"]) == ("CycloneDX", "1.6", 1)


def test_a_package_is_named_by_its_url_and_says_where_it_is() -> None:
    perl, torch = sbom(PERL, TORCH)["components"]
    assert torch == {
        "type": "library",
        "name": "torch",
        "version": "2.13.0+cpu",
        "purl": "pkg:pypi/torch@2.13.0%2Bcpu",
        "bom-ref": "pkg:pypi/torch@2.13.0%2Bcpu",
        "licenses": [{"license": {"id": "BSD-3-Clause", "acknowledgement": "declared"}}],
        "evidence": {"occurrences": [{"location": "/pytorch"}]},
    }
    url = "pkg:deb/debian/perl-base@5.36-7%2Bb1?arch=amd64&distro=debian-12&upstream=perl%405.36-7"
    assert perl == {"type": "library", "name": "perl-base", "version": "5.36-7+b1", "purl": url, "bom-ref": url}


@pytest.mark.parametrize(
    ("system", "begin", "distro"),
    [
        (System(), "pkg:deb/debian/perl-base@", None),
        (System(id="debian"), "pkg:deb/debian/perl-base@", "distro=debian&"),
        (System(id="ubuntu", version="24.04"), "pkg:deb/ubuntu/perl-base@", "distro=ubuntu-24.04&"),
    ],
)
def test_a_debian_package_belongs_to_the_images_distribution(system: System, begin: str, distro: str | None) -> None:
    (component,) = sbom(PERL, system=system)["components"]
    assert component["purl"].startswith(begin)
    assert distro in component["purl"] if distro else "distro" not in component["purl"]


def test_the_image_depends_on_every_package() -> None:
    matches = sbom(PERL, TORCH)
    edges = {edge["ref"]: edge.get("dependsOn", []) for edge in matches["dependencies"]}
    assert edges.pop(f"pkg:oci/pytorch@{DIGEST}") == sorted(part["bom-ref"] for part in matches["components"])
    assert edges == {part["bom-ref"]: [] for part in matches["components"]}


def test_licenses_are_ids_expressions_and_names() -> None:
    assert licensed() == []
    assert licensed("MIT") == ["MIT"]
    assert licensed("MIT OR Apache-2.0") == ["MIT OR Apache-2.0"]
    assert licensed("LicenseRef-NVIDIA-Proprietary") == ["LicenseRef-NVIDIA-Proprietary"]
    assert licensed("NVIDIA Proprietary Software") == [("NVIDIA Proprietary Software",)]
    assert licensed("MIT", "ISC") == ["ISC", "MIT"]  # nobody says whether both hold or one may be chosen
    assert licensed("MIT", "MIT OR ISC", "our own") == ["MIT", ("MIT OR ISC",), ("our own",)]


def test_licenses_of_a_debian_packages_files_hold_together() -> None:
    assert licensed("GPL-2.0-only", "MIT OR ISC", kind="debian") == ["GPL-2.0-only AND (MIT OR ISC)"]
    assert licensed("GPL-2.0-only", "public-domain", kind="debian") == ["GPL-2.0-only", ("public-domain",)]


@pytest.mark.parametrize(
    ("created", "expected"),
    [
        (CREATED, "2026-01-02T03:04:05+00:00"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05+00:00"),
        ("2026-01-02T03:04:05", "2026-01-02T03:04:05+00:00"),
        (None, None),
        ("", None),
        ("yesterday", None),
        ("0001-01-01T00:00:00+23:59", None),
    ],
)
def test_the_time_is_the_images_or_none(created: str | None, expected: str | None) -> None:
    assert sbom(name="a", version="", created=created)["metadata"].get("timestamp") == expected


def test_an_image_without_packages_says_so() -> None:
    assert sbom()["components"] == []


def test_the_serial_number_is_of_the_digest_alone() -> None:
    assert sbom(TORCH)["serialNumber"] == sbom(PERL)["serialNumber"] == "urn:uuid:bd2d8509-0335-5e35-abaa-0e0e51b99cd1"
    assert sbom(digest=f"sha256:{'b2' * 32}")["serialNumber"] != sbom()["serialNumber"]


WORDS = st.sampled_from(["MIT", "ISC", "MIT OR ISC", "our own", "a\tb", "ü", "LicenseRef-x", "GPL-2.0-only AND MIT"])
PACKAGES = st.builds(
    Package,
    kind=st.sampled_from(["python", "debian"]),
    name=st.from_regex("[a-z0-9]([a-z0-9+.-]{0,3}[a-z0-9])?", fullmatch=True),
    version=st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), max_size=4),
    architecture=st.sampled_from(["", "amd64", "all"]),
    source=st.sampled_from(["a", "b"]),
    source_version=st.sampled_from(["1", "2"]),
    licenses=st.lists(WORDS, unique=True, max_size=3).map(tuple),
    locations=st.lists(st.sampled_from(["/", "/a", "/b c"]), unique=True, max_size=2).map(tuple),
)


@given(st.lists(PACKAGES, max_size=5, unique_by=lambda one: (one.kind, one.name, one.version)), st.data())
def test_the_bytes_are_the_same_in_whatever_order_packages_come(packages: list[Package], data: st.DataObject) -> None:
    text = sbom_text(ImagePackages(packages=tuple(packages), system=DEBIAN), **IMAGE)
    shuffled = tuple(data.draw(st.permutations(packages)))
    assert sbom_text(ImagePackages(packages=shuffled, system=DEBIAN), **IMAGE) == text
    assert VALIDATOR.validate_str(text) is None
    components = json.loads(text)["components"]
    assert len({part["bom-ref"] for part in components}) == len(components) == len(packages)


class FakeSource:
    """An engine with one image that records its requests."""

    def __init__(self, layers: list[CompressedLayer]) -> None:
        described = [{"digest": layer.digest, "size": layer.path.stat().st_size} for layer in layers]
        data = json.dumps({"config": {"digest": sha256(b"{}"), "size": 2}, "layers": described}).encode()
        self.manifest = Manifest(data=data, media_type=MANIFEST)
        self._layers, self.requests = layers, list[list[str]]()

    def take_out(self, digest: str, folder: Path, select: Callable[[str], bool]) -> Content:
        assert digest == self.manifest.digest
        in_use = [layer for layer in self._layers if select(layer.digest)]
        self.requests.append([layer.digest for layer in in_use])
        for layer in in_use:
            (folder / layer.digest.removeprefix("sha256:")).write_bytes(layer.path.read_bytes())
        return Content(manifest=self.manifest, folder=folder)


@pytest.fixture
def layers(tmp_path: Path) -> list[CompressedLayer]:
    return image(tmp_path, {STATUS: BASH}, wheel(), packer="zstd")


def test_an_image_is_read_once_then_answered_without_its_engine(tmp_path: Path, layers: list[CompressedLayer]) -> None:
    source, cache = FakeSource(layers), tmp_path / "packages"
    first = look_into(source, source.manifest.digest, cache)[1]
    content, second = look_into(source, source.manifest.digest, cache)
    assert first == second
    assert [package.name for package in first.packages] == ["bash", "numpy"]
    assert source.requests == [[layer.digest for layer in layers]]
    assert content.manifest.digest == source.manifest.digest


def test_of_the_next_image_only_new_layers_are_taken(tmp_path: Path, layers: list[CompressedLayer]) -> None:
    cache = tmp_path / "packages"
    for count in (1, 2):
        source = FakeSource(layers[:count])
        look_into(source, source.manifest.digest, cache)
        assert source.requests == [[layers[count - 1].digest]]


def test_a_manifest_that_was_damaged_since_is_asked_for_again(tmp_path: Path, layers: list[CompressedLayer]) -> None:
    source, cache = FakeSource(layers), tmp_path / "packages"
    look_into(source, source.manifest.digest, cache)
    (note,) = cache.glob("*.manifest.json")
    note.write_bytes(b"{}")
    assert len(look_into(source, source.manifest.digest, cache)[1].packages) == 2
    assert source.requests[1:] == [[]]
    assert sha256(note.read_bytes()) == source.manifest.digest


def test_without_a_writable_cache_every_query_reads_the_layers(tmp_path: Path, layers: list[CompressedLayer]) -> None:
    (tmp_path / "file").touch()
    source = FakeSource(layers)
    for _ in range(2):
        assert len(look_into(source, source.manifest.digest, tmp_path / "file/packages")[1].packages) == 2
    assert source.requests[0] == source.requests[1] == [layer.digest for layer in layers]


def sbom_of(content: Content, cache: Path | None) -> str:
    contents = contents_in(content, cache)
    return sbom_of_contents(content.manifest, contents, name="acme/pytorch", version="1", created=CREATED)


def test_a_release_makes_its_sbom_of_the_content_that_it_has(tmp_path: Path, layers: list[CompressedLayer]) -> None:
    cache, manifest = tmp_path / "packages", FakeSource(layers).manifest
    assert all(unread(cache)(layer.digest) for layer in layers)
    whole = Content(manifest=manifest, folder=tmp_path)
    text = sbom_of(whole, cache)
    assert not any(unread(cache)(layer.digest) for layer in layers)
    assert sbom_of(Content(manifest=manifest, folder=tmp_path / "empty"), cache) == text
    assert sbom_of(whole, None) == text
    assert VALIDATOR.validate_str(text) is None
    with pytest.raises(EngineError, match="not at hand"):
        sbom_of(Content(manifest=manifest, folder=tmp_path / "empty"), None)


def test_the_library_says_nothing_where_every_line_is_shown(
    tmp_path: Path, layers: list[CompressedLayer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="py_serializable")
    sbom_of(Content(manifest=FakeSource(layers).manifest, folder=tmp_path), None)
    assert caplog.messages == []


def test_the_sbom_of_an_index_links_to_those_of_its_images() -> None:
    images = {"linux/amd64": f"sha256:{'a' * 64}", "linux/arm64": f"sha256:{'b' * 64}"}
    own = f"sha256:{'c' * 64}"
    text = index_sbom_text(images, name="acme/pytorch", version="2.10.0-cpu", digest=own, created=None)
    assert VALIDATOR.validate_str(text) is None
    bom = json.loads(text)
    assert bom["metadata"]["component"]["purl"] == f"pkg:oci/pytorch@{own}"
    links = {
        one["description"]: (one["type"], one["externalReferences"][0]["type"], one["externalReferences"][0]["url"])
        for one in bom["components"]
    }
    assert links == {
        f"the image for {platform}": ("container", "bom", f"urn:cdx:{serial_number(digest)}/1")
        for platform, digest in images.items()
    }
    assert text == index_sbom_text(images, name="acme/pytorch", version="2.10.0-cpu", digest=own, created=None)
