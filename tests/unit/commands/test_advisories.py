"""`advisories`: images of the engine and of releases, its formats and exit codes."""

import json
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.releases import put_release
from tests.unit.advisories.feeds import OSV, TRACKER, deb, image, wheel
from tests.unit.registries import MemoryRegistry, Store
from tests.unit.test_cli import MATRIX, err, out
from torchbake import cli
from torchbake.commands import _advisory_images
from torchbake.errors import AdvisoryError, EngineError, RegistryError, UsageError, VulnerableError
from torchbake.matrix.platforms import platform_tag
from torchbake.oci.reference import Repository
from torchbake.sbom.packages import ImagePackages

Streams = pytest.CaptureFixture[str]
CPU, INIT = "2.13.0-cpu-runtime-debian12", "volume-permissions"
OLD = image(deb("libseal3", "3.0.17-1~deb12u2", "sealwax"), wheel("quill-tools", "1.4.1"))
FIXED = image(deb("libseal3", "3.0.18-1~deb12u1", "sealwax"), wheel("quill-tools", "1.4.2"))
BOTH = ("--advisories", str(TRACKER), "--advisories", str(OSV), "--matrix", MATRIX)
DEBIAN = ("--advisories", str(TRACKER), "--matrix", MATRIX)
REGISTRY = ("--registry", "ghcr.io/acme")


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> dict[str, ImagePackages]:
    """The packages of the engine's images, by reference."""
    images: dict[str, ImagePackages] = {}
    engine = SimpleNamespace(tagged_images=lambda _: {ref: SimpleNamespace(digest=ref) for ref in images})
    monkeypatch.setattr(_advisory_images, "connect", lambda: engine)
    monkeypatch.setattr(_advisory_images, "source_of", lambda *_: None)
    monkeypatch.setattr(_advisory_images, "look_into", lambda source, digest, cache: (None, images[digest]))
    return images


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> MemoryRegistry:
    """A registry with two releases of the CPU image."""
    registry = MemoryRegistry(Store())

    def registry_of(place: Repository, *, plain_http: bool) -> MemoryRegistry:
        assert str(place) in ("ghcr.io/acme/pytorch", "ghcr.io/acme/volume-permissions")
        return registry

    monkeypatch.setattr(_advisory_images, "registry_of", registry_of)
    put_release(registry, f"{CPU}-r0", date(2026, 5, 12), OLD)
    put_release(registry, f"{CPU}-r1", date(2026, 5, 27), FIXED)
    return registry


def refs(project: Any) -> dict[str, str]:
    return {spec.id: f"{spec.repository}:{project.tags[spec.id][0]}" for spec in project.expansion.specs}


def read(capsys: Streams, *words: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(out(capsys, "advisories", *words, "--format", "json"))
    return value


def test_an_image_of_the_engine_has_its_findings(
    built: dict[str, ImagePackages], project: Any, capsys: Streams
) -> None:
    built[refs(project)[CPU]] = OLD
    (entry,) = read(capsys, CPU, *BOTH)["images"]
    assert [one["id"] for one in entry["findings"]] == [
        "CVE-2026-1001", "CVE-2026-1002", "CVE-2026-1003", "CVE-2026-1004", "CVE-2026-2001",
    ]  # fmt: skip
    (entry,) = read(capsys, CPU, "--severity", "high", "--fixable", "--kind", "debian", *BOTH)["images"]
    assert [one["id"] for one in entry["findings"]] == ["CVE-2026-1001"]


def test_the_table_begins_with_the_most_severe(
    built: dict[str, ImagePackages], project: Any, capsys: Streams
) -> None:  # fmt: skip
    built[refs(project)[CPU]] = OLD
    capsys.readouterr()
    assert cli.main(["advisories", CPU, *BOTH]) == 0
    streams = capsys.readouterr()
    rows = streams.out.splitlines()
    assert rows[1].split()[:4] == ["CVE-2026-1001", "critical", "libseal3", "3.0.18-1~deb12u1"]
    assert rows[2].split()[:2] == ["CVE-2026-2001", "high"]
    assert "5 known vulnerabilities (1 critical, 1 high, 1 low, 1 negligible, 1 unknown), 3 with a fix" in streams.err


def test_fail_on_ends_with_its_own_code(built: dict[str, ImagePackages], project: Any, capsys: Streams) -> None:
    built[refs(project)[CPU]] = OLD
    words = ("advisories", CPU, *BOTH, "--format", "json", "--fail-on")
    assert cli.main([*words, "high"]) == VulnerableError.exit_code
    streams = capsys.readouterr()
    assert json.loads(streams.out)["images"]
    assert CPU in streams.err
    assert cli.main([*words, "unknown"]) == VulnerableError.exit_code
    built[refs(project)[CPU]] = FIXED
    assert cli.main([*words, "medium"]) == 0
    assert "without a severity" not in capsys.readouterr().err
    assert cli.main([*words, "low"]) == VulnerableError.exit_code


def test_an_unknown_severity_that_does_not_count_is_named(
    built: dict[str, ImagePackages], project: Any, capsys: Streams, tmp_path: Path
) -> None:
    built[refs(project)[CPU]] = image(deb("sealwax", "1"))
    release = {"bookworm": {"status": "open", "urgency": "not yet assigned"}}
    file = tmp_path / "tracker.json"
    file.write_text(json.dumps({"sealwax": {"CVE-2026-1": {"releases": release}}}))
    words = ("advisories", CPU, "--advisories", str(file), "--matrix", MATRIX, "--fail-on")
    assert cli.main([*words, "low"]) == 0
    assert "1 vulnerabilities without a severity" in capsys.readouterr().err
    assert cli.main([*words, "unknown"]) == VulnerableError.exit_code


def test_no_selection_hides_the_severity_that_fails(
    built: dict[str, ImagePackages], project: Any, capsys: Streams
) -> None:
    built[refs(project)[CPU]] = OLD
    words = ("--severity", "critical", "--fail-on", "high", *BOTH)
    assert "--severity critical" in err(capsys, "advisories", CPU, *words, code=UsageError.exit_code)
    assert cli.main(["advisories", CPU, "--severity", "high", "--fail-on", "high", *BOTH]) == VulnerableError.exit_code


def test_an_ignored_python_package_has_several_spellings(
    built: dict[str, ImagePackages], project: Any, capsys: Streams
) -> None:
    built[refs(project)[CPU]] = OLD
    (entry,) = read(capsys, CPU, "--kind", "python", "--ignore", "Quill_Tools", *BOTH)["images"]
    assert entry["findings"] == []


def test_packages_that_no_file_covers_do_not_pass(
    built: dict[str, ImagePackages], project: Any, capsys: Streams
) -> None:
    built[refs(project)[CPU]] = FIXED
    capsys.readouterr()
    assert cli.main(["advisories", CPU, *DEBIAN]) == 0
    assert "no advisory file covers its python packages (pypi)" in capsys.readouterr().err
    assert cli.main(["advisories", CPU, *DEBIAN, "--fail-on", "critical"]) == AdvisoryError.exit_code
    assert cli.main(["advisories", CPU, *DEBIAN, "--fail-on", "critical", "--kind", "debian"]) == 0


def test_an_image_that_cannot_be_read_is_an_error(
    built: dict[str, ImagePackages], project: Any, capsys: Streams
) -> None:
    built[refs(project)[CPU]] = OLD
    capsys.readouterr()
    assert cli.main(["advisories", CPU, INIT, *BOTH]) == EngineError.exit_code
    streams = capsys.readouterr()
    assert "CVE-2026-1001" in streams.out
    assert f"{INIT}: it is not in the engine" in streams.err


def test_the_newest_release_is_judged_by_its_sbom(released: MemoryRegistry, capsys: Streams) -> None:
    value = read(capsys, CPU, "--released", *REGISTRY, *BOTH)
    (entry,) = value["images"]
    assert entry["place"] == f"ghcr.io/acme/pytorch:{CPU}-r1"
    assert [one["id"] for one in entry["findings"]] == ["CVE-2026-1002", "CVE-2026-1003"]
    assert "history" not in value


def test_a_platform_has_releases_of_its_own(released: MemoryRegistry, project: Any, capsys: Streams) -> None:
    spec = next(one for one in project.expansion.specs if one.platform == "linux/arm64" and one.torch == "2.15.0")
    put_release(released, f"{platform_tag(spec)}-r0", date(2026, 5, 27), FIXED)
    (entry,) = read(capsys, spec.id, "--released", *REGISTRY, *BOTH)["images"]
    assert entry["place"] == f"ghcr.io/acme/pytorch:{spec.own_tag}-arm64-r0"


def test_the_history_has_the_days_to_each_fix(released: MemoryRegistry, capsys: Streams, tmp_path: Path) -> None:
    value = read(capsys, CPU, "--history", *REGISTRY, *BOTH)
    days = {one["id"]: (one["open_since"], one["days"]) for one in value["history"] if one["end"]}
    assert days == {
        "CVE-2026-1001": ("2026-05-12", 7), "CVE-2026-1004": ("2026-05-12", 7), "CVE-2026-2001": ("2026-06-02", None),
    }  # fmt: skip
    page = tmp_path / "page.html"
    table = out(capsys, "advisories", CPU, "--page", str(page), *REGISTRY, *BOTH)
    assert ["critical", "1", "7", "7", "0", "–", "0"] in [line.split() for line in table.splitlines()]
    assert f"{CPU}-r1" in page.read_text()


@pytest.mark.parametrize("option", ["--released", "--history"])
def test_an_image_without_a_release_is_an_error(
    released: MemoryRegistry, capsys: Streams, option: str
) -> None:  # fmt: skip
    assert cli.main(["advisories", INIT, option, *REGISTRY, *BOTH]) == RegistryError.exit_code
    assert "not released" in capsys.readouterr().err


def test_what_is_missing_is_a_usage_error(capsys: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHBAKE_ADVISORIES", raising=False)
    assert "--advisories" in err(capsys, "advisories", CPU, "--matrix", MATRIX, code=UsageError.exit_code)
    for option in (["--released"], ["--history"], ["--page", "x.html"]):
        text = err(capsys, "advisories", CPU, *option, "--registry", "", *BOTH, code=UsageError.exit_code)
        assert "--registry HOST" in text


def test_a_wrong_file_is_named_before_images_are_read(
    built: dict[str, ImagePackages], capsys: Streams, tmp_path: Path
) -> None:
    (tmp_path / "scan.json").write_text("{}")
    words = ("--advisories", str(tmp_path / "scan.json"), "--matrix", MATRIX)
    assert "scan.json: it is neither" in err(capsys, "advisories", CPU, *words, code=AdvisoryError.exit_code)
