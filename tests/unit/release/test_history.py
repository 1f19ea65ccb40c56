"""The packages of releases, read from a registry."""

from datetime import date

import pytest

from tests.releases import put_release
from tests.unit.advisories.feeds import deb, image, wheel
from tests.unit.registries import MemoryRegistry, Store
from torchbake.oci.tag_names import SBOM, artifact_tag, record_tag
from torchbake.release.history import ReleasedPackages, read_history

OLD, NEW = image(deb("bash", "5.2-1"), wheel("torch", "2.13.0+cpu")), image(deb("bash", "5.2-2"))
FIRST, SECOND = date(2026, 5, 1), date(2026, 6, 1)


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry(Store())


def test_each_release_has_its_day_and_packages(registry: MemoryRegistry) -> None:
    second = put_release(registry, "cpu-r10", SECOND, NEW)
    first = put_release(registry, "cpu-r2", FIRST, OLD)
    put_release(registry, "other-r0", FIRST, OLD)
    newest = ReleasedPackages(tag="cpu-r10", digest=second, day=SECOND, packages=NEW)
    assert read_history(registry, "cpu") == [
        ReleasedPackages(tag="cpu-r2", digest=first, day=FIRST, packages=OLD), newest,
    ]  # fmt: skip
    assert read_history(registry, "cpu", newest=True) == [newest]
    assert read_history(registry, "cpu2") == read_history(registry, "cpu2", newest=True) == []


def test_a_release_without_a_record_was_not_finished(registry: MemoryRegistry) -> None:
    put_release(registry, "cpu-r0", FIRST, OLD)
    put_release(registry, "cpu-r1", SECOND, NEW)
    del registry.store.tags[record_tag("cpu-r1")]
    assert [one.tag for one in read_history(registry, "cpu")] == ["cpu-r0"]
    assert [one.tag for one in read_history(registry, "cpu", newest=True)] == ["cpu-r0"]


def test_a_release_that_cannot_be_read_has_a_reason(registry: MemoryRegistry) -> None:
    for tag in ("cpu-r0", "cpu-r1", "cpu-r2"):
        put_release(registry, tag, FIRST, OLD, about="another image" if tag == "cpu-r2" else "")
    del registry.store.tags[artifact_tag("cpu-r0", SBOM)]
    registry.store.tags[artifact_tag("cpu-r1", SBOM)] = registry.store.tags[record_tag("cpu-r1")]
    releases = read_history(registry, "cpu")
    assert [one.packages for one in releases] == [None, None, None]
    assert releases[0].problem == "it has no SBOM"
    assert "is not a CycloneDX SBOM" in releases[1].problem
    assert "its SBOM is about sha256:" in releases[2].problem


def test_a_broken_record_has_a_reason(registry: MemoryRegistry) -> None:
    put_release(registry, "cpu-r0", FIRST, OLD)
    registry.store.tags[record_tag("cpu-r0")] = registry.store.tags[artifact_tag("cpu-r0", SBOM)]
    (release,) = read_history(registry, "cpu")
    assert (release.packages, release.day) == (None, None)
    assert "record cannot be read" in release.problem


def test_a_tag_that_holds_another_image_has_a_reason(registry: MemoryRegistry) -> None:
    put_release(registry, "cpu-r0", FIRST, OLD)
    registry.store.tags["cpu-r0"] = put_release(registry, "other-r0", FIRST, NEW)
    (release,) = read_history(registry, "cpu", newest=True)
    assert release.packages is None
    assert "its record is about sha256:" in release.problem
