"""The chart in a real registry, signed by the real cosign: the pushed chart is trusted, and a replacement is not."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import helm_python
import pytest

from tests.e2e import test_signature
from tests.e2e.conftest import CPU, INIT, ROOT, Completed, torchbake
from tests.e2e.registries import Running, registry
from tests.e2e.test_signature import SECRET, TOOLS, Keys, signer
from tests.e2e.test_validate import Place
from torchbake.charts.package import package
from torchbake.charts.push import config_of, manifest_of, push
from torchbake.matrix.project import load_project
from torchbake.oci.reference import Reference
from torchbake.registry.artifact import send
from torchbake.registry.client import Registry
from torchbake.release.candidate import Candidate
from torchbake.release.publisher import Publisher

pytestmark = pytest.mark.charts

cosign, ours, theirs = test_signature.cosign, test_signature.ours, test_signature.theirs  # fixtures
known_secrets = test_signature.known_secrets
PLACES = (("image",), ("volumePermissions", "image"))
NOWHERE = "127.0.0.1:9"  # nothing answers there


@dataclass(frozen=True, kw_only=True)
class Charts:
    """A registry with signed releases of both images; each test uses a different version of the chart."""

    place: Place
    cosign: Path
    ours: Keys
    theirs: Keys

    @property
    def registry(self) -> Registry:
        return self.place.registry("charts/pytorch")

    def chart(self, action: str, version: str, *words: str) -> Completed:
        where = (CPU, "--registry", self.place.where, "--chart-version", version, "--no-transparency-log")
        return torchbake("chart", action, *where, *words)

    def push(self, version: str, *words: str) -> str:
        """Push the chart and return the printed digest."""
        process = self.chart("push", version, *words)
        assert process.returncode == 0, process.stderr
        output, _, digest = process.stdout.strip().partition("@")
        assert output == f"{self.registry.repository}:{version}"
        return digest

    def push_signed(self, version: str, keys: Keys | None = None) -> str:
        """Push and sign as `chart push --key` does, but skip reading the matrix and verifying the images, for speed."""
        product = package(ROOT / "charts/pytorch", self.released(), version)
        return push(self.registry, product, signer(keys or self.ours, self.cosign))[0].digest

    def validate(self, version: str, keys: Keys | None = None) -> tuple[int, str]:
        """Validate the chart; return the exit code and the output on one line."""
        process = self.chart("validate", version, "--key", (keys or self.ours).public, "--require-signature")
        assert "Traceback" not in process.stderr
        return process.returncode, re.sub(r"\s+", " ", process.stdout + process.stderr)

    def by_hand(self, digest: str, keys: Keys) -> bool:
        """Return True if a plain `cosign verify` trusts the digest."""
        ref = f"{self.registry.repository}@{digest}"
        command = [str(self.cosign), "verify", "--key", keys.public, "--insecure-ignore-tlog=true", ref]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode == 0:
            signed = [claim["critical"]["image"]["docker-manifest-digest"] for claim in json.loads(process.stdout)]
            assert set(signed) == {digest}
        return process.returncode == 0

    def sign(self, digest: str, keys: Keys) -> None:
        signer(keys, self.cosign).sign(self.registry.repository, [digest])

    def released(self) -> dict[tuple[str, ...], Reference]:
        """Return the references of both images, by their places in the chart's values."""
        tags = {"pytorch": f"{CPU}-r0", INIT: f"{self.place.project.tags[INIT][0]}-r0"}
        images = [(self.place.registry(name), tag) for name, tag in tags.items()]
        matches = [
            Reference(repository=there.repository, tag=tag, digest=there.digest(tag) or "") for there, tag in images
        ]
        return dict(zip(PLACES, matches, strict=True))


def _release(place: Place, name: str, repository: str, keys: Keys, cosign: Path) -> None:
    """Publish an image of a few bytes, with the labels, tags and signatures of a real release."""
    tags = place.project.tags[name]
    labels = {"org.torchbake.id": name, "org.torchbake.inputs": f"sha256:{'a' * 64}"}
    manifest = place.small.make(labels, [name.encode()])
    value = Candidate(id=name, digest=manifest.digest, labels=labels, tags=tags, verdict=None)
    publisher = Publisher(place.registry(repository), signer=signer(keys, cosign))
    publisher.publish(value, place.small.supply, lambda _: None, lambda *_: None)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with registry(TOOLS, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def charts(running: Running, ours: Keys, theirs: Keys, cosign: Path) -> Charts:
    place = Place(running, "acme", load_project(ROOT / "matrix.yaml"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSIGN_PASSWORD", SECRET)
        _release(place, CPU, "pytorch", ours, cosign)
        _release(place, INIT, INIT, ours, cosign)
    return Charts(place=place, cosign=cosign, ours=ours, theirs=theirs)


def test_what_is_pushed_with_a_key_is_signed_and_valid(charts: Charts) -> None:
    process = charts.chart("push", "1.0.0", "--key", charts.ours.private, "--require-signature")
    assert process.returncode == 0, process.stderr
    assert SECRET not in process.stdout + process.stderr
    digest = charts.registry.digest("1.0.0")
    assert digest
    assert process.stdout == f"{charts.registry.repository}:1.0.0@{digest}\n"
    assert charts.by_hand(digest, charts.ours)
    assert not charts.by_hand(digest, charts.theirs)
    code, output = charts.validate("1.0.0")
    assert (code, "is as it was pushed" in output) == (0, True), output

    signatures = charts.registry.digest(f"{digest.replace(':', '-')}.sig")
    assert signatures
    again = charts.push("1.0.0", "--key", charts.ours.private)
    assert again == digest
    assert charts.registry.digest(f"{digest.replace(':', '-')}.sig") == signatures  # nothing changed


def test_what_was_pushed_without_a_key_is_told_and_signed_later(charts: Charts) -> None:
    digest = charts.push("1.0.1")
    assert not charts.by_hand(digest, charts.ours)
    process = charts.chart("validate", "1.0.1")
    assert (process.returncode, "Signatures are not verified" in process.stderr) == (0, True), process.stderr
    code, output = charts.validate("1.0.1")
    assert (code, f"{charts.registry.repository}@{digest} is not signed." in output) == (15, True), output
    for action in ("push", "validate"):
        process = charts.chart(action, "1.0.1", "--require-signature")
        assert (process.returncode, "--require-signature: no --key" in process.stderr) == (18, True), process.stderr
    assert charts.push("1.0.1", "--key", charts.ours.private) == digest
    assert charts.by_hand(digest, charts.ours)


def test_helm_pulls_what_was_signed_by_its_digest_too(charts: Charts, tmp_path: Path) -> None:
    digest = charts.push_signed("1.0.2+cpu")
    expected = package(ROOT / "charts/pytorch", charts.released(), "1.0.2+cpu").data
    for place, (ref, version) in enumerate({f"@{digest}": None, "": "1.0.2+cpu"}.items()):
        folder = tmp_path / str(place)
        folder.mkdir()
        source = f"oci://{charts.registry.repository}{ref}"
        helm_python.pull(source, version=version, destination=folder, plain_http=True)
        (path,) = folder.iterdir()
        assert path.read_bytes() == expected


def _planted(charts: Charts, version: str, host: str = "") -> str:
    """Overwrite a chart, as any user with push access can. ``host`` replaces the host of its first image."""
    images = charts.released()
    if host:
        image = images[PLACES[0]]
        images[PLACES[0]] = replace(image, repository=replace(image.repository, host=host))
    product = package(ROOT / "charts/pytorch", images, version)
    product = replace(product, metadata={**product.metadata, "description": "not what was pushed"})
    for content in (product.data, config_of(product)):
        send(charts.registry, content)
    manifest = manifest_of(product)
    charts.registry.put(manifest, version)
    return manifest.digest


def _never_signed(charts: Charts, version: str) -> None:
    _planted(charts, version)


def _signed_by_another(charts: Charts, version: str) -> None:
    charts.push_signed(version, charts.theirs)


def _replaced(charts: Charts, version: str) -> None:
    before = charts.push_signed(version)
    planted = _planted(charts, version)
    assert charts.by_hand(before, charts.ours)  # still in the registry, but without a tag
    assert not charts.by_hand(planted, charts.ours)


def _replaced_and_signed_by_another(charts: Charts, version: str) -> None:
    charts.push_signed(version)
    charts.sign(_planted(charts, version), charts.theirs)


def _replaced_with_an_image_of_a_host_that_is_silent(charts: Charts, version: str) -> None:
    charts.push_signed(version)
    _planted(charts, version, NOWHERE)


def _set_back(charts: Charts, version: str) -> None:
    """Move the version to a chart that we have signed as another version."""
    charts.push_signed(version)
    old = charts.registry.manifest(charts.push_signed("0.0.1"))
    assert old
    charts.registry.put(old, version)


def _with_other_bytes(charts: Charts, version: str) -> None:
    """On the registry's disk, where no digest is asked for."""
    manifest = charts.registry.manifest(charts.push_signed(version))
    assert manifest
    path = charts.place.blob(manifest.layers[0].digest)
    path.write_bytes(path.read_bytes()[:-1] + b"\1")


def _with_another_manifest(charts: Charts, version: str) -> None:
    path = charts.place.blob(charts.push_signed(version))
    path.write_bytes(path.read_bytes().replace(b'"pytorch"', b'"pytorcH"'))


NOT_SIGNED = "is not signed"
OTHERS = "is signed, but not by the key"
DAMAGES: dict[str, tuple[Callable[[Charts, str], None], str]] = {
    "2.0.0": (_never_signed, NOT_SIGNED),
    "2.0.1": (_signed_by_another, OTHERS),
    "2.0.2": (_replaced, NOT_SIGNED),
    "2.0.3": (_replaced_and_signed_by_another, OTHERS),
    "2.0.4": (_replaced_with_an_image_of_a_host_that_is_silent, NOT_SIGNED),
    "2.0.5": (_set_back, "its Chart.yaml says version 0.0.1, and its tag 2.0.5"),
    "2.0.6": (_with_other_bytes, "is something else"),
    "2.0.7": (_with_another_manifest, "but what is served for it is"),
}


# Charts that were never signed, or signed by another, are in other tests here; the rest differ by the same bytes.
LONG = {"2.0.0", "2.0.1", "2.0.4", "2.0.7"}


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(version, id=damage.__name__.strip("_"), marks=[pytest.mark.long] * (version in LONG))
        for version, (damage, _) in DAMAGES.items()
    ],
)
def test_what_is_not_as_we_signed_it_is_told(version: str, charts: Charts) -> None:
    damage, words = DAMAGES[version]
    damage(charts, version)
    code, output = charts.validate(version)
    assert (code, words in output) == (15, True), output
    assert f"{charts.registry.repository}:{version}: " in output


def test_a_key_that_signed_none_of_it_trusts_none_of_it(charts: Charts) -> None:
    code, output = charts.validate("3.0.0", charts.theirs)
    assert (code, f"is signed, but not by the key {charts.theirs.public}" in output) == (15, True), output


def test_push_signs_nothing_that_another_put_there(charts: Charts) -> None:
    planted = _planted(charts, "4.0.0")
    process = charts.chart("push", "4.0.0", "--key", charts.ours.private)
    assert (process.returncode, f"exists with other content ({planted})" in process.stderr) == (16, True), (
        process.stderr
    )
    assert not charts.by_hand(planted, charts.ours)
    process = charts.chart("push", "4.0.1", "--key", charts.theirs.private)
    assert (process.returncode, "is signed, but not by the key" in process.stderr) == (16, True), process.stderr
    assert charts.registry.digest("4.0.1") is None


def test_push_restores_a_chart_tag_only_after_its_removal(charts: Charts) -> None:
    """As docs/how-to/chart.md has it: the same chart is the same digest, whose signature is there still."""
    before = charts.push_signed("5.0.0")
    _planted(charts, "5.0.0")
    charts.place.forget_tag("5.0.0", "charts/pytorch")
    assert charts.validate("5.0.0")[0] == 15
    assert charts.push("5.0.0") == before
    assert charts.validate("5.0.0")[0] == 0
