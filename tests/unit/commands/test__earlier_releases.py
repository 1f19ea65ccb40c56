"""A gate and releases of earlier runs: an index names them, or they stay in place of the image that was judged."""

from dataclasses import replace
from pathlib import Path

from tests.unit.advisories import scans
from tests.unit.advisories.feeds import TRACKER, deb, image
from tests.unit.commands.test__index_releases import ID, Checkout, checkout
from tests.unit.commands.test__release_gate import OSV, Gated, gated
from tests.unit.commands.test__release_images import site
from tests.unit.registries import MemoryRegistry
from torchbake.commands._publish_tables import PublishResult
from torchbake.commands._release_gate import ReleaseGate, open_gate
from torchbake.engine.export import Content
from torchbake.errors import PublishError
from torchbake.gate.judge import GateResult
from torchbake.matrix.spec import AMD64, ARM64
from torchbake.oci.tag_names import SBOM, artifact_tag
from torchbake.registry.artifact import Artifact
from torchbake.release.attestations import SBOM_TYPE
from torchbake.sbom.cyclonedx import sbom_text

__all__ = ["checkout", "gated", "site"]
OLD, NEW, TAG = "3.0.17-1", "3.0.18-1", "1.0.0-arm64-r0"


def gate_of(folder: Path, inputs: str) -> ReleaseGate:
    path = folder / "gate.yaml"
    path.write_text(f"{inputs}\nmax_age_days: 36500\nrefuse: [{{fixed_only: true}}]\n")
    return open_gate(path)


def release_arm64(checkout: Checkout, version: str) -> None:
    """Release an image for arm64 with this version of libssl3, as another machine did."""

    def describe(content: Content) -> tuple[Artifact, ...]:
        packages = image(deb("libssl3", version, source="sealwax"))
        text = sbom_text(packages, name="acme", version="1", digest=content.manifest.digest, created=None)
        return (Artifact(name=SBOM, media_type=SBOM_TYPE, text=text),)

    checkout.publish(ARM64, describe=describe)


def join(checkout: Checkout, gate: ReleaseGate) -> PublishResult:
    """Release the image for amd64, and its index."""
    (result,) = checkout.join(checkout.publish(AMD64), gate=gate)
    return result


def test_an_index_names_no_release_that_the_gate_refuses(checkout: Checkout) -> None:
    gate = gate_of(checkout.path.parent, f"advisories: [{TRACKER}]")
    release_arm64(checkout, OLD)
    refused = join(checkout, gate)
    assert f"the gate refuses {ID}-arm64, which an earlier run released as {TAG}: CVE-" in refused.problem
    assert [one.finding.name for one in refused.gates[TAG].refused] == ["libssl3"]
    assert checkout.rolling() == {None}


def test_an_index_names_a_release_that_passes(checkout: Checkout) -> None:
    gate = gate_of(checkout.path.parent, f"advisories: [{TRACKER}]")
    release_arm64(checkout, NEW)
    joint = join(checkout, gate)
    assert joint.published, joint
    assert {tag: one.is_open for tag, one in joint.gates.items()} == {TAG: True}
    assert checkout.rolling() == {joint.published.decision.digest}


def test_an_earlier_release_needs_a_report(checkout: Checkout) -> None:
    release_arm64(checkout, NEW)
    folder = checkout.path.parent
    (folder / "scans").mkdir()
    assert "no report is of this image" in join(checkout, gate_of(folder, "reports: [scans]")).problem
    digest = checkout.store.tags[TAG]
    metadata = {"ImageID": checkout.store.manifests[digest].config.digest}
    clean = {"Target": "debian", "Class": "os-pkgs", "Type": "debian"}
    scans.write(folder / "scans", "arm64.json", scans.trivy(Metadata=metadata, Results=[clean]))
    assert join(checkout, gate_of(folder, "reports: [scans]")).published


def test_an_earlier_release_without_an_sbom_is_refused(checkout: Checkout) -> None:
    release_arm64(checkout, NEW)
    gate = gate_of(checkout.path.parent, f"advisories: [{TRACKER}]")
    del checkout.store.tags[artifact_tag(TAG, SBOM)]
    assert "its packages cannot be read: it has no SBOM" in join(checkout, gate).problem


def test_a_dry_run_judges_earlier_releases(checkout: Checkout) -> None:
    gate = gate_of(checkout.path.parent, f"advisories: [{TRACKER}]")
    release_arm64(checkout, OLD)
    (refused,) = checkout.join(checkout.publish(AMD64, dry=True), dry=True, gate=gate)
    assert f"released as {TAG}: CVE-" in refused.problem


def test_a_build_that_stays_is_judged_once(checkout: Checkout) -> None:
    gate = gate_of(checkout.path.parent, f"advisories: [{TRACKER}]")
    release_arm64(checkout, NEW)
    image = checkout.publish(AMD64)
    assert image.published
    other = replace(image, published=replace(image.published, tested=f"sha256:{'0' * 64}"))
    (refused,) = checkout.join(other, gate=gate)
    assert "1.0.0-amd64-r0: its packages cannot be read" in refused.problem
    (joint,) = checkout.join(replace(other, gates={"1.0.0-amd64-r0": GateResult(id=ID)}), gate=gate)
    assert (joint.problem, [*joint.gates]) == ("", [TAG])


def test_another_build_that_stays_is_judged(gated: Gated) -> None:
    scans.write(gated.path.parent, "osv.json", OSV)
    gated.build(OLD)
    assert gated.site.publish("--no-engine")[0] == 0  # without a gate
    registry = MemoryRegistry(gated.site.registry)
    first = registry.digest("latest")
    gated.site.layout.tidy(())
    assert gated.build(NEW).digest != first
    code, result, _ = gated.publish(inputs=f"advisories: [{TRACKER}, osv.json]\nunknown_severity: low")
    assert (code, result["gate"]["open"]) == (PublishError.exit_code, True), result
    assert "the gate refuses the build that stays as" in result["problem"]
    ((tag, decision),) = result["gates"].items()
    assert (registry.digest(tag), decision["open"]) == (first, False)
