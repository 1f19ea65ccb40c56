"""`publish --gate`: images that known vulnerabilities refuse, images that pass, and the VEX documents of releases."""

import json
import os
import re
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.advisories import scans
from tests.unit.advisories.feeds import TRACKER
from tests.unit.builds import INIT
from tests.unit.commands.test__release_images import Site, site
from tests.unit.layouts import archive, file, put
from tests.unit.registries import MemoryRegistry, Store
from torchbake import cli
from torchbake.commands._release_gate import open_gate
from torchbake.errors import AdvisoryError, GateError, PublishError
from torchbake.oci.in_toto import MEDIA_TYPE
from torchbake.oci.labels import ID, INPUTS
from torchbake.oci.manifest import Manifest
from torchbake.registry.artifact import text_of
from torchbake.registry.referrers import referrers_of
from torchbake.store.layout import Layout

__all__ = ["site"]
STATUS = "Package: libssl3\nStatus: install ok installed\nArchitecture: amd64\nSource: sealwax\nVersion: {}\n"
OSV = {
    "id": "PYSEC-2026-9",
    "modified": "2026-10-01T00:00:00Z",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "jinja2"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.1.5"}]}],
        }
    ],
}
METADATA = b"Name: Jinja2\nVersion: 3.1.5\n"
TODAY = datetime.now(UTC).date()


@dataclass
class Gated:
    """A site with an image of two packages, and a gate."""

    site: Site

    @property
    def path(self) -> Path:
        return self.site.project.root / "gates/gate.yaml"

    def build(self, version: str = "3.0.17-1") -> Manifest:
        """Put an image with this version of libssl3 into the store, and test it."""
        folder = self.site.project.root / f"export-{version}"
        layer = archive(
            file("var/lib/dpkg/status", STATUS.format(version).encode()),
            file("etc/os-release", b"ID=debian\nVERSION_ID=12\n"),
            file(
                "opt/venv/lib/python3.11/site-packages/jinja2-3.1.5.dist-info/METADATA",
                b"Name: Jinja2\nVersion: 3.1.5\n",
            ),
        )
        labels = {ID: INIT, INPUTS: self.site.inputs}
        digest = put(Layout(folder=folder), layer, config={"config": {"Labels": labels}})
        self.site.layout.take(folder, digest)
        self.site.test(digest)
        return self.site.layout.get(digest)

    def scan(self, image: Manifest, name: str = "scan.json", **changes: Any) -> None:
        """Write a report of Trivy on the image."""
        metadata = {"ImageID": image.config.digest, "RepoTags": [scans.NAME]}
        scans.write(self.path.parent / "scans", name, scans.trivy(Metadata=metadata, **changes))

    def publish(
        self, *words: str, inputs: str = "reports: [scans]", allow: str = ""
    ) -> tuple[int, dict[str, Any], str]:
        self.path.parent.mkdir(exist_ok=True)
        # The small advisories have a fixed date, and their files that of the checkout.
        age = "" if "max_age_days" in inputs else "max_age_days: 36500\n"
        text = f"{inputs}\n{age}refuse:\n  - severity: high\n"
        self.path.write_text(text + (f"allow:\n{allow}" if allow else ""))
        return self.site.publish("--no-engine", "--gate", str(self.path), *words)

    def table(self, allow: str) -> tuple[int, list[list[str]], str]:
        """The exit code, the rows of the tables, and stderr."""
        self.publish("--dry-run", allow=allow)
        matrix = str(self.site.project.document.path)
        words = ["publish", INIT, "--registry", "example.com/team", "--no-engine", "--gate", str(self.path)]
        code = cli.main([*words, "--matrix", matrix])
        out, err = self.site.capsys.readouterr()
        return code, [re.split(r"  +", line.strip()) for line in out.splitlines()], err

    @property
    def registry(self) -> MemoryRegistry:
        return MemoryRegistry(self.site.registry)

    def documents(self, digest: str) -> list[dict[str, Any]]:
        """The attached VEX documents of an image."""
        manifests = [self.registry.manifest(one) for one in sorted(referrers_of(self.registry, digest))]
        statements = [one for one in manifests if one and one.content.get("artifactType") == MEDIA_TYPE]
        texts = [json.loads(text_of(self.registry, one, "")) for one in statements]
        return [one["predicate"] for one in texts if one["predicateType"] == "https://cyclonedx.org/bom"]


@pytest.fixture
def gated(site: Site) -> Gated:
    return Gated(site)


def entry(days: int, number: str = "CVE-2026-1001") -> str:
    return f"  - {{id: {number}, reason: in staging, expires: {TODAY + timedelta(days)}}}\n"


def test_a_vulnerability_refuses_before_anything_is_written(gated: Gated) -> None:
    gated.scan(gated.build())
    code, image, err = gated.publish()
    assert code == PublishError.exit_code
    assert "the gate refuses it: CVE-2026-1001" in image["problem"]
    assert "the gate refuses it" in err
    assert [one["id"] for one in image["gate"]["refused"]] == ["CVE-2026-1001"]
    (refused,) = image["gate"]["refused"]
    assert (refused["fixed"], refused["fixed_on"], refused["expired"]) == ("3.0.18-1", None, None)
    assert (image["gate"]["open"], image["gate"]["below"]) == (False, 1)
    assert gated.site.registry == Store()


def test_a_release_has_a_vex_document_of_what_is_allowed(gated: Gated) -> None:
    image = gated.build()
    gated.scan(image)
    code, result, _ = gated.publish(allow=entry(0))
    assert (code, result["digest"]) == (0, image.digest), result
    (document,) = gated.documents(image.digest)
    assert [one["id"] for one in document["vulnerabilities"]] == ["CVE-2026-1001"]
    assert result["attached"]["vex"] in referrers_of(gated.registry, image.digest)
    assert [(one["id"], one["reason"]) for one in result["gate"]["allowed"]] == [("CVE-2026-1001", "in staging")]


def test_an_expired_entry_refuses_again_and_is_named(gated: Gated) -> None:
    gated.scan(gated.build())
    code, image, _ = gated.publish(allow=entry(-1))
    assert code == PublishError.exit_code
    assert [one["expired"] for one in image["gate"]["refused"]] == [str(TODAY - timedelta(1))]
    assert gated.site.registry.tags == {}


def test_a_released_image_gets_a_new_document_and_no_second_one(gated: Gated) -> None:
    image = gated.build()
    gated.scan(image)
    assert gated.publish(allow=entry(0))[0] == 0
    assert gated.publish(allow=entry(0))[1]["action"] == "nothing"
    assert len(gated.documents(image.digest)) == 1
    assert gated.publish(allow=entry(1))[0] == 0
    assert len(gated.documents(image.digest)) == 2


def test_an_empty_document_follows_when_nothing_is_allowed(gated: Gated) -> None:
    image = gated.build()
    gated.scan(image)
    assert gated.publish(allow=entry(0))[0] == 0
    scans.write(gated.path.parent / "scans", "scan.json", scans.grype(matches=[], ignoredMatches=None) | {
        "source": {"type": "image", "target": {"imageID": image.config.digest}},
    })  # fmt: skip
    code, result, _ = gated.publish()
    assert (code, result["gate"]["allowed"]) == (0, []), result
    newest = gated.registry.manifest(result["attached"]["vex"])
    assert newest
    assert json.loads(text_of(gated.registry, newest, ""))["predicate"]["vulnerabilities"] == []
    assert len(gated.documents(image.digest)) == 2


def test_a_newer_package_opens_the_gate_of_advisories(gated: Gated) -> None:
    scans.write(gated.path.parent, "osv.json", OSV)
    inputs = f"advisories: [{TRACKER}, osv.json]\nunknown_severity: low"
    gated.build()
    code, image, _ = gated.publish(inputs=inputs)
    assert (code, image["gate"]["problems"]) == (PublishError.exit_code, []), image
    refused = [(one["package"], one["version"], one["fixed"]) for one in image["gate"]["refused"]]
    assert refused == [("libssl3", "3.0.17-1", "3.0.18-1~deb12u1")]
    gated.site.layout.tidy(())
    new = gated.build("3.0.18-1")
    code, image, _ = gated.publish(inputs=inputs)
    assert (code, image["digest"], image["gate"]["refused"]) == (0, new.digest, [])
    assert gated.documents(new.digest) == []


def test_advisories_that_do_not_cover_python_refuse(gated: Gated) -> None:
    gated.build("3.0.18-1")
    code, image, _ = gated.publish(inputs=f"advisories: [{TRACKER}]")
    assert (code, image["gate"]["problems"]) == (PublishError.exit_code, ["no input covers its Python packages (pypi)"])


def test_the_report_of_another_build_is_refused_and_named(gated: Gated) -> None:
    gated.scan(gated.build("3.0.16-1"), Results=[])
    gated.site.layout.tidy(())
    gated.build()
    code, image, _ = gated.publish(allow=entry(0))
    assert code == PublishError.exit_code
    assert any("scan.json" in one for one in image["gate"]["problems"])
    assert gated.site.registry.tags == {}


def test_an_image_without_a_report_is_refused(gated: Gated) -> None:
    gated.build()
    gated.path.parent.joinpath("scans").mkdir(parents=True)
    code, image, _ = gated.publish()
    assert (code, image["gate"]["open"]) == (PublishError.exit_code, False)
    assert "no report is of this image" in image["problem"]
    assert "Scan this build" in image["problem"]


def test_an_old_report_is_refused_with_its_date(gated: Gated) -> None:
    gated.scan(gated.build(), CreatedAt="2025-11-29T10:00:00Z")
    code, image, _ = gated.publish(allow=entry(1), inputs="reports: [scans]\nmax_age_days: 7")
    assert code == PublishError.exit_code
    assert re.search(r"scan.json is of 2025-11-29: \d+ days old, more than max_age_days: 7", image["problem"])
    assert gated.publish(allow=entry(1))[0] == 0


def test_old_advisories_end_the_run_first(gated: Gated) -> None:
    gated.build()
    path = gated.path.parent / "tracker.json"
    path.parent.mkdir()
    shutil.copy(TRACKER, path)
    old = datetime.now(UTC) - timedelta(9)
    os.utime(path, (old.timestamp(), old.timestamp()))
    code, image, err = gated.publish(inputs="advisories: [tracker.json]\nmax_age_days: 8")
    assert (code, image) == (AdvisoryError.exit_code, {})
    assert f"tracker.json is of {old.date()} by the file's last change" in err
    assert "max_age_days" in err
    assert gated.publish(inputs="advisories: [tracker.json]\nmax_age_days: 9")[0] == PublishError.exit_code


def test_old_advisories_of_no_package_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "osv.json").write_text('{"id": "GHSA-1", "modified": "2025-11-01T10:00:00Z", "affected": []}')
    (tmp_path / "gate.yaml").write_text("advisories: [osv.json]\nrefuse: [{severity: high}]\n")
    with pytest.raises(AdvisoryError, match=r"osv.json is of 2025-11-01: \d+ days old, more than max_age_days: 7"):
        open_gate(tmp_path / "gate.yaml")


def test_a_dry_run_shows_the_decision_and_attaches_nothing(gated: Gated) -> None:
    gated.scan(gated.build())
    assert gated.publish("--dry-run")[0] == PublishError.exit_code
    code, image, _ = gated.publish("--dry-run", allow=entry(0))
    assert (code, image["gate"]["open"], image["attached"]) == (0, True, {})
    assert gated.site.registry.tags == {}


def test_the_table_has_decisions_and_unused_entries(gated: Gated) -> None:
    gated.scan(gated.build())
    code, rows, err = gated.table(entry(-1) + entry(3, "CVE-2026-9999"))
    assert code == PublishError.exit_code
    assert [row[1:3] for row in rows if row[0] == INIT and row[1] in ("refused", "open")] == [
        ["refused", "CVE-2026-1001"]
    ]
    assert "CVE-2026-9999 is allowed, and not in this image" in err
    code, rows, _ = gated.table(entry(3))
    assert code == 0
    assert [row[1] for row in rows if row[0] == INIT] == ["allowed", "open", "released"]


def test_an_image_that_is_not_known_makes_no_entry_unused(gated: Gated) -> None:
    gated.build()
    gated.path.parent.joinpath("scans").mkdir(parents=True)
    code, _, err = gated.table(entry(3))
    assert (code, "is allowed" in err) == (PublishError.exit_code, False)


def test_the_table_shows_the_severest_of_many(gated: Gated) -> None:
    image = gated.build()
    results = scans.trivy()["Results"][:2]
    (one,) = results[0]["Vulnerabilities"]
    levels = ["HIGH"] * 25 + ["CRITICAL"]
    results[0]["Vulnerabilities"] = [
        one | {"VulnerabilityID": f"CVE-2026-{2000 + number}", "Severity": level} for number, level in enumerate(levels)
    ]
    gated.scan(image, Results=results)
    _, rows, _ = gated.table(entry(1))
    refused = [row for row in rows if row[1:2] == ["refused"]]
    assert (len(refused), refused[0][2], refused[-1][2]) == (21, "CVE-2026-2025", "6 more")
    code, rows, _ = gated.table(entry(1) + f"  - {{package: libssl3, reason: unused, expires: {TODAY}}}\n")
    assert (code, len([row for row in rows if row[1:2] == ["allowed"]])) == (0, 21)


@pytest.mark.parametrize(
    ("inputs", "code", "words"),
    [
        ("reports: [scans]\nsevrity: high", GateError, "gate.yaml:2: sevrity: unknown key"),
        ("reports: [gone.json]", AdvisoryError, "gone.json"),
        ("reports: [gate.yaml]", AdvisoryError, "gate.yaml: it is not JSON"),
        ("advisories: [gone.json]", AdvisoryError, "gone.json"),
    ],
)
def test_a_mistake_ends_the_run_first(gated: Gated, inputs: str, code: type[GateError], words: str) -> None:
    gated.build()
    result, image, err = gated.publish(inputs=inputs)
    assert (result, image, words in err) == (code.exit_code, {}, True), err
    assert gated.site.registry.tags == {}
