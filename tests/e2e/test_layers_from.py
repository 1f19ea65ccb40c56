"""Packed layers of a release in a real registry, signed by the real cosign, for a machine that has packed nothing."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import ROOT, images_of
from tests.e2e.registries import Running, program, registry
from tests.e2e.test_layers import DEVEL, PACKED, Site, make_site, write_stack
from tests.e2e.test_signature import SECRET, Keys, make_keys
from torchbake.engine.client import connect
from torchbake.engine.export import source_of
from torchbake.errors import UsageError
from torchbake.matrix.project import load_project
from torchbake.oci.reference import parse_registry
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Cosign, CosignSigner, NoCosign, Signer
from torchbake.registry.referrers import referrers_of
from torchbake.registry.transport import RegistryTransport
from torchbake.release.attestations import supply_of
from torchbake.release.candidate import Candidate
from torchbake.release.publisher import Publisher
from torchbake.release.shared_layers import LAYERS_TYPE
from torchbake.store.layout import Layout

pytestmark = pytest.mark.release

TOOLS = ROOT / ".torchbake/tools"


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A project whose image was built here, a registry, and the keys of its user and of somebody else."""

    site: Site
    running: Running
    cosign: Path
    ours: Keys
    theirs: Keys
    image: dict[str, Any]
    packed: frozenset[str]  # names of blobs

    def there(self, namespace: str) -> Registry:
        repository = parse_registry(f"{self.running.host}/{namespace}") / "pytorch"
        return Registry(RegistryTransport(repository.host), repository)

    def release(self, namespace: str, *, signed: bool = True) -> None:
        """Release the image as `publish` does, except for the verdict: its torch is a stand-in of some bytes."""
        project, engine, there = load_project(self.site.folder / "matrix.yaml"), connect(), self.there(namespace)
        cosign = Cosign(program=str(self.cosign), log=False)
        signer: Signer = (
            CosignSigner(cosign=cosign, key=self.ours.private) if signed else NoCosign(skip_reason="no key")
        )
        source, digest = source_of(engine, Layout(folder=project.layout)), self.image["digest"]
        candidate = Candidate(
            id=DEVEL, digest=digest, labels=engine.images()[self.image["ref"]].labels, tags=project.tags[DEVEL],
            verdict=None,
        )  # fmt: skip
        supply = supply_of("pytorch", source, project.cache, self.site.store)
        Publisher(there, signer=signer).publish(candidate, supply, lambda _: None, lambda *_: None)

    def build(self, where: str, key: str = "") -> tuple[dict[str, Any], list[str]]:
        """Build on a machine that has packed nothing; how many layers came, and what was warned of."""
        shutil.rmtree(self.site.store, ignore_errors=True)
        self.site.forget()
        words = ("--layers-from", where, "--layers-key", key or self.ours.public, "--no-transparency-log")
        process = self.site.build(DEVEL, *words)
        assert process.returncode == 0, process.stderr
        image = images_of(process)[DEVEL]
        assert (image["status"], image["digest"]) == ("built", self.image["digest"])
        assert {path.name for path in self.site.blobs()} == self.packed
        return json.loads(process.stdout)["layers_from"], [
            line for line in process.stderr.splitlines() if line.startswith("warning: --layers-from")
        ]

    def blob(self, name: str) -> Path:
        return self.running.folder / "docker/registry/v2/blobs/sha256" / name[:2] / name / "data"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, bases: Path) -> Iterator[Fleet]:
    folder, cosign = tmp_path_factory.mktemp("fleet"), program(TOOLS, "cosign")
    (folder / "site").mkdir()
    (folder / "wheels").mkdir()
    site = make_site(folder / "site", write_stack(folder / "wheels"), bases, "layers-from")
    site.env["SOURCE_DATE_EPOCH"] = "1767225600"  # outside of git, the date of an image is that of its build
    site.forget()
    image = site.built(DEVEL)
    with registry(TOOLS, folder / "registry") as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSIGN_PASSWORD", SECRET)
        patch.setenv("DOCKER_CONFIG", str(folder / "no-login"))
        patch.setenv("PATH", f"{cosign.parent}:{os.environ['PATH']}")
        fleet = Fleet(
            site=site, running=running, cosign=cosign, image=image,
            ours=make_keys(cosign, folder / "ours"), theirs=make_keys(cosign, folder / "theirs"),
            packed=frozenset(path.name for path in site.blobs()),
        )  # fmt: skip
        for namespace in ("good", "unsigned", "unlisted"):
            fleet.release(namespace, signed=namespace != "unsigned")
        yield fleet
    site.forget()


def test_layers_of_a_signed_release_make_the_same_image(fleet: Fleet) -> None:
    matches, warnings = fleet.build(f"{fleet.running.host}/good")
    whole = sum(path.stat().st_size for path in fleet.site.blobs() if path.name not in fleet.site.steps())
    assert matches == {"registry": f"{fleet.running.host}/good", "layers": PACKED, "bytes": whole}
    assert warnings == []


def test_an_image_without_the_signature_of_the_key_is_refused(fleet: Fleet) -> None:
    matches, (warning,) = fleet.build(f"{fleet.running.host}/unsigned")
    assert matches["layers"] == 0
    assert "is not signed" in warning
    matches, (warning,) = fleet.build(f"{fleet.running.host}/good", fleet.theirs.public)
    assert matches["layers"] == 0
    assert f"not by the key {fleet.theirs.public}" in warning


@pytest.mark.long  # test_signature.py and the test above refuse others
def test_a_list_without_a_signature_is_refused(fleet: Fleet) -> None:
    there = fleet.there("unlisted")
    image = there.digest(f"{DEVEL}-r0")
    assert image
    manifests = [there.manifest(digest) for digest in referrers_of(there, image)]
    (listed,) = [one.digest for one in manifests if one and one.content.get("artifactType") == LAYERS_TYPE]
    tags = fleet.running.folder / "docker/registry/v2/repositories/unlisted/pytorch/_manifests/tags"
    shutil.rmtree(tags / f"{listed.replace(':', '-')}.sig")
    matches, (warning,) = fleet.build(f"{fleet.running.host}/unlisted")
    assert matches["layers"] == 0
    assert "list of layers" in warning
    assert "is not signed" in warning


@pytest.mark.long  # tests/unit/release/test_shared_layers.py has failures
def test_a_registry_that_is_away_is_one_warning(fleet: Fleet) -> None:
    matches, (warning,) = fleet.build("127.0.0.1:1/good")
    assert matches["layers"] == matches["bytes"] == 0
    assert "127.0.0.1:1 does not answer" in warning


def test_an_altered_layer_is_refused_and_the_others_come(fleet: Fleet) -> None:
    """It comes after the others, as all repositories of a registry share a blob."""
    path = max(map(fleet.blob, fleet.packed - fleet.site.steps()), key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    matches, (warning,) = fleet.build(f"{fleet.running.host}/good")
    assert matches["layers"] == PACKED - 1
    assert path.parent.name in warning


def test_options_that_lack_the_other_are_refused(fleet: Fleet) -> None:
    for words in (("--layers-from", "ghcr.io/acme"), ("--layers-key", fleet.ours.public), ("--plain-http",)):
        assert fleet.site.build(DEVEL, *words).returncode == UsageError.exit_code
    missing = fleet.site.build(DEVEL, "--layers-from", "ghcr.io/acme", "--layers-key", "/nowhere.pub")
    assert missing.returncode == UsageError.exit_code
    assert "/nowhere.pub" in missing.stderr
