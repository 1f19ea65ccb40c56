"""Advisories about the packages of a real image, from its engine and from releases in a real registry."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import registries
from tests.e2e.conftest import CPU, ROOT, torchbake
from tests.e2e.serving import serving
from tests.releases import put_release
from torchbake.oci.reference import Repository
from torchbake.registry.client import Registry
from torchbake.registry.transport import RegistryTransport
from torchbake.sbom.packages import ImagePackages
from torchbake.sbom.read_cyclonedx import packages_of_sbom

pytestmark = pytest.mark.advisories

Built = dict[str, dict[str, Any]]
Run = Callable[..., str]
QUERY = "${Package} ${source:Package} ${source:Version}\\n"
# Versions near an installed one, as fixed versions of advisories.
NEAR = ("{}", "{}+fix1", "{}~", "{}.1", "0:{}", "1:{}", "{}+b1")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@dataclass(frozen=True, kw_only=True)
class Installed:
    """The Debian packages of the image by dpkg: the version and the binary packages of each source package."""

    versions: Mapping[str, str]
    binaries: Mapping[str, tuple[str, ...]]


@pytest.fixture(scope="module")
def contents(built: Built, tmp_path_factory: pytest.TempPathFactory) -> ImagePackages:
    folder = tmp_path_factory.mktemp("sbom")
    process = torchbake("sbom", CPU, "--output", str(folder))
    assert process.returncode == 0, process.stderr
    return packages_of_sbom((folder / CPU / "sbom.cdx.json").read_bytes())


@pytest.fixture
def installed(built: Built, run: Run) -> Installed:
    rows = [line.split() for line in run(built[CPU]["ref"], "dpkg-query", "-W", "-f", QUERY).splitlines()]
    sources = {source: version for _, source, version in rows}
    binaries = {source: tuple(name for name, own, _ in rows if own == source) for source in sources}
    return Installed(versions=sources, binaries=binaries)


def tracker(folder: Path, fixed: Mapping[str, Mapping[str, str]]) -> Path:
    """Write the tracker's data: for each source package its numbers, each with the version that fixes it."""
    value = {
        source: {
            number: {"releases": {"bookworm": {"status": "resolved", "fixed_version": version, "urgency": "high"}}}
            for number, version in numbers.items()
        }
        for source, numbers in fixed.items()
    }
    path = folder / "tracker.json"
    path.write_text(json.dumps(value))
    return path


def record(folder: Path, number: str, package: Mapping[str, str], events: list[dict[str, str]], **more: Any) -> None:
    affected = [{"package": package, "ranges": [{"type": "ECOSYSTEM", "events": events}]}]
    value = {"id": number, "modified": "2026-06-01T00:00:00Z", "affected": affected, **more}
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.json").write_text(json.dumps(value))


def findings(*words: str) -> list[dict[str, Any]]:
    process = torchbake("advisories", CPU, *words, "--format", "json")
    assert process.returncode == 0, process.stderr
    (image,) = json.loads(process.stdout)["images"]
    result: list[dict[str, Any]] = image["findings"]
    return result


def test_findings_agree_with_dpkg_for_each_package(
    built: Built, run: Run, installed: Installed, tmp_path: Path
) -> None:
    fixed = {
        source: {f"CVE-2026-{1000 + place}": form.format(version) for place, form in enumerate(NEAR)}
        for source, version in installed.versions.items()
    }
    pairs = [(source, number, version) for source, own in fixed.items() for number, version in own.items()]
    lines = [f"{source} {number} {installed.versions[source]} {version}" for source, number, version in pairs]
    script = 'while read -r a b c d; do dpkg --compare-versions "$c" lt "$d" && echo "$a $b"; done; true'
    answer = run(built[CPU]["ref"], "sh", "-c", f"{{ {script}; }} <<'END'\n" + "\n".join(lines) + "\nEND")
    expected = {
        (name, number) for source, number in map(str.split, answer.splitlines()) for name in installed.binaries[source]
    }
    result = findings("--advisories", str(tracker(tmp_path, fixed)), "--kind", "debian")
    assert {(one["package"], one["id"]) for one in result} == expected
    assert len(expected) > 100


def test_torch_is_judged_without_its_local_version(built: Built, contents: ImagePackages, tmp_path: Path) -> None:
    (torch,) = (one for one in contents.of("python") if one.name == "torch")
    public = torch.version.partition("+")[0]
    package = {"ecosystem": "PyPI", "name": "torch"}
    record(tmp_path / "osv", "GHSA-1", package, [{"introduced": "0"}, {"last_affected": public}])
    record(tmp_path / "osv", "GHSA-2", package, [{"introduced": "0"}, {"fixed": public}])
    (finding,) = findings("--advisories", str(tmp_path / "osv"), "--kind", "python")
    assert (finding["id"], finding["version"]) == ("GHSA-1", torch.version)


def test_an_address_is_read_and_fail_on_has_its_code(built: Built, installed: Installed, tmp_path: Path) -> None:
    tracker(tmp_path, {"glibc": {"CVE-2026-1001": f"{installed.versions['glibc']}+fix1"}})
    with serving(partial(_Quiet, directory=str(tmp_path))) as server:
        env = {"TORCHBAKE_ADVISORIES": f"http://127.0.0.1:{server.server_port}/tracker.json", "NO_PROXY": "127.0.0.1"}
        process = torchbake("advisories", CPU, "--kind", "debian", "--fail-on", "high", env=env)
    assert process.returncode == 31, process.stderr
    assert re.search(r"^CVE-2026-1001 +high +.*libc6", process.stdout, re.MULTILINE)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    with registries.registry(ROOT / ".torchbake/tools", tmp_path / "registry") as running:
        yield running.host


def test_the_history_is_of_the_registry_alone(
    contents: ImagePackages, installed: Installed, registry: str, tmp_path: Path
) -> None:
    fixed = f"{installed.versions['glibc']}+fix1"
    newer = replace(contents, packages=tuple(
        replace(one, version=fixed, source_version=fixed) if one.source == "glibc" else one for one in contents.packages
    ))  # fmt: skip
    today = datetime.now(UTC).date()
    days = [today - timedelta(days=count) for count in (40, 10)]
    repository = Repository(host=registry, path="team/pytorch")
    client = Registry(RegistryTransport(registry, plain=True), repository)
    for revision, (day, packages) in enumerate(zip(days, (contents, newer), strict=True)):
        put_release(client, f"{CPU}-r{revision}", day, packages)
    glibc = {"ecosystem": "Debian:12", "name": "glibc"}
    for name, number, events in (
        ("DSA-9001-1", "CVE-2026-1001", [{"introduced": "0"}, {"fixed": fixed}]),
        ("DSA-9002-1", "CVE-2026-1002", [{"introduced": "0"}, {"fixed": f"{fixed}+fix2"}]),
    ):
        record(tmp_path / "osv", name, glibc, events, published=_moment(today - timedelta(days=17)), upstream=[number])
    page = tmp_path / "page.html"
    process = torchbake(
        "advisories", CPU, "--registry", f"{registry}/team", "--plain-http", "--kind", "debian", "--advisories",
        str(tmp_path / "osv"), "--page", str(page), "--format", "json",
    )  # fmt: skip
    value = json.loads(process.stdout)
    history = {one["id"]: (one["days"], one["end"] and one["end"]["tag"]) for one in value["history"]}
    assert history == {"CVE-2026-1001": (7, f"{CPU}-r1"), "CVE-2026-1002": (17, None)}, process.stderr
    assert value["history"][0]["packages"] == sorted(installed.binaries["glibc"])
    assert f"{CPU}-r1" in page.read_text()


def _moment(day: date) -> str:
    return f"{day.isoformat()}T12:00:00Z"
