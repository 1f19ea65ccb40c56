"""The gate of a release, with a real image and a real registry: it refuses, then opens for a reason that it shows."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.e2e import registries
from tests.e2e.conftest import INIT, ROOT, images_of, torchbake
from torchbake.errors import PublishError
from torchbake.oci.reference import Repository
from torchbake.registry.artifact import text_of
from torchbake.registry.client import Registry
from torchbake.registry.referrers import referrers_of
from torchbake.registry.transport import RegistryTransport

pytestmark = pytest.mark.gate

ROWS = """\
rows: [{torch: 2.13.0, accelerator: cpu, base: debian12}]
init: {volume-permissions: {version: 1.0.0, base: debian12}}
"""
GATE = "reports: [scans]\nrefuse:\n  - {severity: high, fixed_only: true}\nallow: []\n"


@dataclass(frozen=True, kw_only=True)
class Service:
    """A project with a gate, and a registry."""

    path: Path
    host: str

    def scan(self, image: str) -> None:
        """Write a report as Trivy does for an image of the engine, whose ID it names."""
        one = {
            "VulnerabilityID": "CVE-2026-1001", "PkgName": "stdlib", "InstalledVersion": "1.24", "FixedVersion": "1.25",
            "Severity": "HIGH",
        }  # fmt: skip
        results = [{"Target": "volume-permissions", "Class": "lang-pkgs", "Type": "gobinary", "Vulnerabilities": [one]}]
        report = {
            "SchemaVersion": 2, "ArtifactName": "torchbake-test/gated/volume-permissions",
            "ArtifactType": "container_image", "Metadata": {"ImageID": image}, "Results": results,
        }  # fmt: skip
        (self.path.parent / "scans").mkdir(exist_ok=True)
        (self.path.parent / "scans/scan.json").write_text(json.dumps(report))

    def publish(self, *words: str, allow: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
        gate = self.path.parent / "gate.yaml"
        gate.write_text(GATE.replace("[]", json.dumps([allow])) if allow else GATE)
        command = ("publish", INIT, "--matrix", str(self.path), "--registry", f"{self.host}/team", "--format", "json")
        process = torchbake(*command, "--gate", str(gate), *words)
        assert process.stdout, process.stderr
        return process.returncode, json.loads(process.stdout)["images"][0]


@pytest.fixture
def service(project: Callable[..., Path], tmp_path: Path) -> Iterator[Service]:
    path = project(ROWS, repository="torchbake-test/gated/pytorch")
    with registries.registry(ROOT / ".torchbake/tools", tmp_path / "registry") as running:
        yield Service(path=path, host=running.host)


def allowed(days: int) -> dict[str, str]:
    day = datetime.now(UTC).date() + timedelta(days)
    return {"id": "CVE-2026-1001", "reason": "the program opens no connection", "expires": str(day)}


def documents(registry: Registry, digest: str) -> list[dict[str, Any]]:
    manifests = [registry.manifest(one) for one in referrers_of(registry, digest)]
    texts = [json.loads(text_of(registry, one, "")) for one in manifests if one]
    return [one for one in texts if one.get("predicateType") == "https://cyclonedx.org/bom"]


def test_a_refused_image_is_released_for_a_reason(service: Service) -> None:
    words = (INIT, "--matrix", str(service.path), "--format", "json")
    image = images_of(torchbake("build", *words))[INIT]
    assert torchbake("test", *words).returncode == 0
    service.scan(image["digest"])

    for more in (("--dry-run",), ()):
        code, result = service.publish(*more)
        assert (code, [one["id"] for one in result["gate"]["refused"]]) == (PublishError.exit_code, ["CVE-2026-1001"])
    assert requests.get(f"http://{service.host}/v2/_catalog", timeout=9).json() == {"repositories": []}

    code, result = service.publish(allow=allowed(1) | {"status": "not_affected", "justification": "code_not_reachable"})
    assert (code, result["action"], result["gate"]["refused"]) == (0, "release", []), result
    host, _, name = result["repository"].partition("/")
    registry = Registry(RegistryTransport(host), Repository(host=host, path=name))
    digest = registry.digest("latest")
    assert digest
    assert digest == result["digest"]
    (statement,) = documents(registry, digest)
    assert [one["digest"]["sha256"] for one in statement["subject"]] == [digest.removeprefix("sha256:")]
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(statement["predicate"])) is None
    (analysis,) = (one["analysis"] for one in statement["predicate"]["vulnerabilities"])
    assert (analysis["state"], analysis["justification"]) == ("not_affected", "code_not_reachable")

    tags = {tag: registry.digest(tag) for tag in registry.tags()}
    code, result = service.publish(allow=allowed(-1))
    assert (code, result["gate"]["refused"][0]["expired"]) == (PublishError.exit_code, allowed(-1)["expires"])
    assert {tag: registry.digest(tag) for tag in registry.tags()} == tags
    assert service.publish(allow=allowed(1))[1]["action"] == "nothing"
    assert len(documents(registry, digest)) == 2  # the reason is another one now
