"""`validate` compares a real registry with the matrix: an intact release has no failures, each damage has its own."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import docker
import pytest

from tests.e2e.conftest import CPU, INIT, ROOT, Completed, tags_of, torchbake
from tests.e2e.registries import Running, registry
from tests.small import Small
from torchbake.checks.verdict import CheckResult, Outcome
from torchbake.core.digest import short_digest
from torchbake.engine.client import connect
from torchbake.engine.export import Content, EngineSource
from torchbake.lock.image_lock import read_lock
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.spec import ImageSpec
from torchbake.oci.manifest import Manifest, sha256
from torchbake.oci.reference import Reference, Repository
from torchbake.registry.client import Registry
from torchbake.registry.transport import RegistryTransport
from torchbake.release.attestations import supply_of
from torchbake.release.candidate import Candidate, Supply
from torchbake.release.promote import shift
from torchbake.release.publisher import Publisher
from torchbake.release.record import read_record, write_record
from torchbake.render.dockerfile import promised_labels
from torchbake.validate.expect import parse_expected
from torchbake.validate.promise import promise_of
from torchbake.validate.pull import NoInspection
from torchbake.validate.run import Foreign, MatrixSubject

pytestmark = pytest.mark.validate

TOOLS = ROOT / ".torchbake/tools"
OLD, NEW = "2.9.1-cuda12.8-cudnn9-runtime-debian12", "2.10.0-cuda12.8-cudnn9-runtime-debian12"
NOT_PULLED = NoInspection(reason="nothing is pulled (--no-pull)")
INPUTS = {letter: f"sha256:{letter * 64}" for letter in "abc"}


@dataclass(frozen=True)
class Place:
    """A separate namespace in a real registry, and the real matrix with the namespace's images."""

    running: Running
    namespace: str
    project: Project
    small: Small = field(default_factory=Small)

    @property
    def where(self) -> str:
        return f"{self.running.host}/{self.namespace}"

    def registry(self, name: str = "pytorch") -> Registry:
        host = self.running.host
        return Registry(
            RegistryTransport(host, sleep=lambda _: None), Repository(host=host, path=f"{self.namespace}/{name}")
        )

    def spec(self, name: str) -> ImageSpec:
        (value,) = (spec for spec in self.project.expansion.specs if spec.id == name)
        assert isinstance(value, ImageSpec)
        return value

    def candidate(self, name: str, inputs: str = "a", lies: Mapping[str, str] | None = None) -> Candidate:
        """Make an image of a few bytes with the labels that its row promises; ``lies`` replaces some of them."""
        spec = self.spec(name)
        labels = promised_labels(spec, read_lock(self.project.root, spec))
        labels |= {"org.torchbake.inputs": INPUTS[inputs], **(lies or {})}
        # Blobs are shared by all repositories of a registry: what one test breaks, no other may have.
        layer = f"of {name} from {inputs} in {self.namespace}".encode()
        manifest = self.small.make(labels, [layer], author=self.namespace)
        return Candidate(
            id=name, digest=manifest.digest, labels=labels, tags=self.project.tags[name], verdict=None
        )  # fmt: skip

    def publish(self, name: str, inputs: str = "a", lies: Mapping[str, str] | None = None) -> Manifest:
        candidate = self.candidate(name, inputs, lies)
        Publisher(self.registry()).publish(candidate, self.small.supply, lambda _: None, lambda *_: None)
        return self.small.images[candidate.digest][0]

    def validate(self, name: str) -> dict[str, tuple[CheckResult, ...]]:
        """The checks of each tag of an image."""
        spec, tags = self.spec(name), self.project.tags[name]
        promise = promise_of(spec, tags, read_lock(self.project.root, spec))
        ids = frozenset(self.project.tags)
        storeds = MatrixSubject(promise=promise, registry=self.registry(), known_ids=ids).validate(
            NOT_PULLED, lambda _: None
        )
        assert [one.ref.partition(":")[0] for one in storeds] == [self.running.host.partition(":")[0]] * len(storeds)
        return {one.ref.rpartition(":")[2]: one.checks for one in storeds}

    def failures(self, name: str) -> dict[str, dict[str, str]]:
        """Return the messages of the failed checks, by tag and check."""
        failed = {
            tag: {check.id.partition(".")[2]: check.text for check in checks if check.outcome is Outcome.FAILED}
            for tag, checks in self.validate(name).items()
        }
        return {tag: checks for tag, checks in failed.items() if checks}

    def forget_tag(self, tag: str, name: str = "pytorch") -> None:
        repositories = self.running.folder / "docker/registry/v2/repositories"
        shutil.rmtree(repositories / self.namespace / name / "_manifests/tags" / tag)

    def blob(self, digest: str) -> Path:
        name = digest.removeprefix("sha256:")
        return self.running.folder / "docker/registry/v2/blobs/sha256" / name[:2] / name / "data"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with registry(TOOLS, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real matrix and its locks in a folder of their own, where reports go too."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(ROOT / "matrix.yaml", folder)
    for path in ROOT.glob("images/*/requirements.lock"):
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True)
        shutil.copy(path, target)
    return folder / "matrix.yaml"


@pytest.fixture
def place(running: Running, matrix: Path, request: pytest.FixtureRequest) -> Place:
    name = hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    return Place(running, f"v{name}", load_project(matrix))


@pytest.fixture
def validate(matrix: Path) -> Callable[..., Completed]:
    return lambda *words: torchbake("validate", *words, "--matrix", str(matrix))


def test_what_was_published_is_good(place: Place, validate: Callable[..., Completed], matrix: Path) -> None:
    place.publish(OLD)
    place.publish(NEW)
    place.publish(NEW, "b")
    process = validate(OLD, NEW, "--registry", place.where, "--no-pull", "--format", "json")
    assert process.returncode == 0, process.stderr
    assert "Traceback" not in process.stderr
    images = json.loads(process.stdout)["images"]
    refs = [f"{place.where}/pytorch:{tag}" for name in (OLD, NEW) for tag in place.project.tags[name]]
    refs += [f"{place.where}/pytorch:{tag}" for tag in (f"{OLD}-r0", f"{NEW}-r0", f"{NEW}-r1")]
    assert sorted(image["ref"] for image in images) == sorted(refs)
    for image in images:
        assert {check["id"].partition(".")[2] for check in image["checks"] if check["outcome"] == "not-run"} == {
            "pull",
            "versions",
            "signature",
        }
        page = Path(image["report"])
        assert page.is_relative_to(matrix.parent / "reports/validate")
        suite = ElementTree.parse(page.with_suffix(".xml")).getroot()[0]
        assert (suite.get("failures"), suite.get("skipped")) == ("0", "3")


def test_after_a_rollback_all_is_good(place: Place) -> None:
    place.publish(NEW)
    place.publish(NEW, "b")
    shift(place.registry(), place.project.tags[NEW], to=None, back=True)
    assert place.failures(NEW) == {}


def test_a_tag_moved_by_hand_is_named_with_where_it_belongs(place: Place, validate: Callable[..., Completed]) -> None:
    old, new = place.publish(OLD), place.publish(NEW)
    place.registry().put(old, "cuda12")
    failed = place.failures(NEW)
    assert failed.keys() == {"cuda12"}
    assert failed["cuda12"].keys() == {"rolling", "labels"}
    reason = failed["cuda12"]["rolling"]
    assert reason.splitlines() == [
        f"points at {OLD} ({short_digest(old.digest)}), and should point at {NEW}-r0 ({short_digest(new.digest)})",
        f"Put it there: nox -s promote -- {NEW} --registry {place.where} --to 0",
    ]
    process = validate(NEW, "--registry", place.where, "--no-pull")
    assert process.returncode == 15
    assert f"should point at {NEW}-r0" in process.stdout
    assert f"{place.where}/pytorch:cuda12" in process.stderr
    assert torchbake(*reason.splitlines()[1].partition("nox -s ")[2].replace(" -- ", " ").split()).returncode == 0
    assert place.failures(NEW) == {}


def test_a_tag_moved_to_a_newer_image_needs_no_promotion(place: Place) -> None:
    place.publish(OLD)
    place.registry().put(place.publish(NEW), "2.9")
    (failed,) = place.failures(OLD).values()
    assert f"and should point at {OLD}-r0" in failed["rolling"]
    assert f"Remove it in the registry, as promote leaves it alone ({NEW} is newer). Put it there" in failed["rolling"]
    place.forget_tag("2.9")
    shift(place.registry(), place.project.tags[OLD], to=0, back=False)
    assert place.failures(OLD) == {}


def test_an_own_tag_moved_by_hand_does_not_accuse_the_others(place: Place) -> None:
    old, _ = place.publish(OLD), place.publish(NEW)
    place.registry().put(old, NEW)
    failed = place.failures(NEW)
    assert failed.keys() == {NEW}
    assert f"should point at {NEW}-r0" in failed[NEW]["rolling"]


def test_an_older_revision_is_not_the_current_one(place: Place) -> None:
    first, second = place.publish(NEW), place.publish(NEW, "b")
    place.registry().put(first, "latest" if "latest" in place.project.tags[NEW] else "cuda12")
    (failed,) = place.failures(NEW).values()
    assert failed.keys() == {"rolling"}
    assert f"{NEW}-r1 ({short_digest(second.digest)})" in failed["rolling"]


def test_an_immutable_tag_that_was_overwritten(place: Place) -> None:
    first, other = place.publish(NEW), place.publish(OLD)
    place.registry().put(other, f"{NEW}-r0")
    failed = place.failures(NEW)
    assert failed.keys() == {f"{NEW}-r0"}
    assert failed[f"{NEW}-r0"].keys() == {"immutable", "labels"}
    assert f"{short_digest(first.digest)} was released, and it is {OLD}" in failed[f"{NEW}-r0"]["immutable"]


def test_tags_that_are_not_there(place: Place) -> None:
    place.publish(NEW)
    place.forget_tag("cuda12")
    place.forget_tag(f"{NEW}-r0")
    failed = place.failures(NEW)
    assert failed.keys() == {"cuda12", f"{NEW}-r0"}
    assert f"should point at {NEW}-r0" in failed["cuda12"]["exists"]
    assert "and is gone" in failed[f"{NEW}-r0"]["exists"]


def test_what_was_never_released(place: Place) -> None:
    failed = place.failures(NEW)
    assert failed.keys() == set(place.project.tags[NEW])
    assert all(f"no release of {NEW}" in checks["exists"] for checks in failed.values())


def test_a_release_without_its_record(place: Place) -> None:
    manifest = place.publish(NEW)
    place.publish(NEW, "b")
    place.registry().put(manifest, NEW)  # as if a run had been killed before its tags moved
    assert "is not finished" in place.failures(NEW)[f"{NEW}-r1"]["record"]
    place.forget_tag(f"{NEW}-r1.release")
    assert "has no release record" in place.failures(NEW)[f"{NEW}-r1"]["record"]


@pytest.mark.parametrize("which", ["layer", "config"])
def test_a_blob_that_the_registry_has_lost(place: Place, which: str) -> None:
    manifest = place.publish(NEW)
    blob = manifest.layers[0] if which == "layer" else manifest.config
    place.blob(blob.digest).unlink()
    failed = place.failures(NEW)
    assert failed.keys() == {*place.project.tags[NEW], f"{NEW}-r0"}
    assert all(checks == {"blobs": f"1 of 2 blobs: {blob.digest} is not there"} for checks in failed.values())


def test_a_blob_that_was_cut_and_a_manifest_that_was_changed(place: Place) -> None:
    manifest = place.publish(NEW)
    layer = place.blob(manifest.layers[0].digest)
    whole = layer.read_bytes()
    layer.write_bytes(whole[:-1])
    assert f"has {len(whole) - 1} bytes, not {len(whole)}" in place.failures(NEW)[NEW]["blobs"]
    path = place.blob(manifest.digest)
    path.write_bytes(path.read_bytes().replace(b'"schemaVersion"', b' "schemaVersion"'))
    failed = place.failures(NEW)
    assert failed.keys() == {*place.project.tags[NEW], f"{NEW}-r0"}
    assert all(checks.keys() == {"manifest"} for checks in failed.values())
    assert "but what is served for it is sha256:" in failed["cuda12"]["manifest"]


def test_a_config_that_is_another_of_the_same_size(place: Place) -> None:
    manifest = place.publish(NEW)
    path = place.blob(manifest.config.digest)
    path.write_bytes(path.read_bytes().replace(b"2.10.0", b"2.11.0"))
    failed = place.failures(NEW)
    assert failed.keys() == {*place.project.tags[NEW], f"{NEW}-r0"}
    assert all("is something else" in checks.pop("blobs") and not checks for checks in failed.values())


def test_labels_that_lie(place: Place) -> None:
    place.publish(NEW, lies={"org.torchbake.torch": "2.9.1", "org.torchbake.nvjpeg": "1"})
    failed = place.failures(NEW)
    assert failed.keys() == {*place.project.tags[NEW], f"{NEW}-r0"}
    first = failed[NEW]["labels"].splitlines()[0]
    assert first == "org.torchbake.torch is 2.9.1, not 2.10.0; org.torchbake.nvjpeg is 1, and is not promised"


def test_inputs_that_are_not_the_records(place: Place) -> None:
    manifest = place.publish(NEW)
    record = read_record(place.registry(), f"{NEW}-r0")
    assert record
    write_record(place.registry(), record.model_copy(update={"inputs": INPUTS["c"]}), manifest)
    assert f"org.torchbake.inputs is {INPUTS['a']}, not {INPUTS['c']}" in place.failures(NEW)[NEW]["labels"]


def test_any_reference_by_its_labels(place: Place) -> None:
    place.publish(NEW)

    def failed(expected: str, key: str = NEW) -> dict[str, str]:
        reference = Reference(repository=place.registry().repository, tag=key)
        subject = Foreign(reference=reference, registry=place.registry(), expected=parse_expected(expected))
        (stored,) = subject.validate(NOT_PULLED, lambda _: None)
        return {check.id: check.text for check in stored.checks if check.outcome is Outcome.FAILED}

    assert failed("torch=2.10.0,cuda=12.8,python=3.11") == {}
    assert failed("torch=2.11.0,cuda=12") == {"registry.labels": "by its labels torch is 2.10.0, not 2.11.0"}
    assert failed("cuda=none")["registry.labels"].startswith("by its labels cuda is 12.8")
    assert failed("torch=2.10.0", "2.11.0") == {"registry.exists": "2.11.0 is not there"}
    record = failed("torch=2.10.0", f"{NEW}-r0.release")
    assert record == {"registry.platform": "it is for no platform, not for linux/amd64"}


def test_a_repository_that_does_not_answer_hides_no_other(place: Place, validate: Callable[..., Completed]) -> None:
    place.publish(NEW)
    words = (NEW, "127.0.0.1:1/acme/pytorch:latest", "--registry", place.where, "--no-pull", "--format", "json")
    process = validate(*words)
    assert process.returncode == 14
    outcomes = {image["ref"]: image["outcome"] for image in json.loads(process.stdout)["images"]}
    assert outcomes.pop("127.0.0.1:1/acme/pytorch:latest") == "not-run"
    assert set(outcomes.values()) == {"passed"}


def test_real_images_are_pulled_by_digest_and_looked_into(
    place: Place,
    validate: Callable[..., Completed],
    engine: docker.DockerClient,
    built: dict[str, dict[str, Any]],
    tmp_path: Path,
) -> None:
    images = connect().images()
    init = images[built[INIT]["ref"]]
    tags = place.project.tags[INIT]
    candidate = Candidate(id=INIT, digest=init.digest, labels=init.labels, tags=tags, verdict=None)
    supply = supply_of(INIT, EngineSource(engine=connect()), tmp_path, tmp_path / "layers")
    Publisher(place.registry(INIT)).publish(candidate, supply, lambda _: None, lambda *_: None)
    process = validate(INIT, "--registry", place.where, "--format", "json")
    assert process.returncode == 0, process.stdout
    checks = [check for image in json.loads(process.stdout)["images"] for check in image["checks"]]
    assert {check["id"] for check in checks if check["outcome"] != "passed"} == {
        "registry.signature"
    }  # no key was given
    assert {"registry.sbom", "registry.provenance"} <= {check["id"] for check in checks}
    assert sum(check["id"] == "registry.versions" for check in checks) == len(tags) + 1
    assert not tags_of(engine, f"{place.where}/")


@pytest.mark.long  # it is pulled twice
def test_an_image_of_no_matrix_is_compared_with_what_is_expected(
    place: Place, validate: Callable[..., Completed], engine: docker.DockerClient, built: dict[str, dict[str, Any]]
) -> None:
    ref = f"{place.where}/foreign"
    engine.images.get(built[CPU]["ref"]).tag(ref, "cpu")
    try:
        events = list(engine.api.push(ref, "cpu", stream=True, decode=True))
        assert not [event for event in events if "error" in event]
    finally:
        engine.images.remove(f"{ref}:cpu")
    good = validate(f"{ref}:cpu", "--expect", "torch=2.13.0,python=3.11,cuda=none")
    assert good.returncode == 0, good.stdout
    bad = validate(f"{ref}:cpu", "--expect", "torch=2.12.0,python=3.11", "--format", "json")
    assert bad.returncode == 15
    (image,) = json.loads(bad.stdout)["images"]
    failed = {check["id"]: check["reason"] for check in image["checks"] if check["outcome"] == "failed"}
    assert failed.keys() == {"registry.labels", "registry.versions"}
    assert "torch is 2.13.0+cpu, expected 2.12.0" in failed["registry.versions"]
    assert not tags_of(engine, f"{place.where}/")


@pytest.mark.long  # test_test_command.py runs them
def test_all_image_checks_can_be_run_on_what_is_served(
    place: Place,
    validate: Callable[..., Completed],
    engine: docker.DockerClient,
    built: dict[str, dict[str, Any]],
    tmp_path: Path,
) -> None:
    init = engine.images.get(built[INIT]["ref"])
    good = EngineSource(engine=connect()).take_out(str(init.id), tmp_path / "good", lambda _: True)
    outcomes, reasons = [], set()
    for inputs, content in (("a", good), ("b", _as_anybody(good, tmp_path / "bad"))):
        labels = init.labels | {"org.torchbake.inputs": INPUTS[inputs]}  # a release each
        tags, digest = place.project.tags[INIT], content.manifest.digest
        candidate = Candidate(id=INIT, digest=digest, labels=labels, tags=tags, verdict=None)
        supply = Supply(source=Ready(content))
        Publisher(place.registry(INIT)).publish(candidate, supply, lambda _: None, lambda *_: None)
        process = validate(INIT, "--registry", place.where, "--suite", "--format", "json")
        images = json.loads(process.stdout)["images"]
        checks = [check for one in images for check in one["checks"] if check["id"] == "registry.suite"]
        assert len(checks) == len(images), process.stdout
        outcomes.append([check["outcome"] for check in checks])
        reasons |= {check["reason"].partition("\n")[0] for check in checks}
    assert outcomes[0] == ["passed"] * (len(tags) + 1)
    assert sorted(outcomes[1]) == ["failed"] * (len(tags) + 1) + ["passed"]  # the older revision is as good as before
    assert any("metadata.user" in reason for reason in reasons)


@dataclass(frozen=True)
class Ready:
    """A source of one image that is taken out already."""

    content: Content

    def take_out(self, digest: str, folder: Path, select: Callable[[str], bool]) -> Content:
        return self.content


def _as_anybody(content: Content, folder: Path) -> Content:
    """The same image, but for the user that it runs as."""
    folder.mkdir()
    for layer in content.manifest.layers:
        shutil.copy(content.path(layer), folder)
    config = json.loads(content.path(content.manifest.config).read_bytes())
    config["config"]["User"] = "nobody"
    data = json.dumps(config).encode()
    (folder / sha256(data).removeprefix("sha256:")).write_bytes(data)
    described = json.loads(content.manifest.data)
    described["config"] |= {"digest": sha256(data), "size": len(data)}
    manifest = Manifest(data=json.dumps(described).encode(), media_type=content.manifest.media_type)
    return Content(manifest=manifest, folder=folder)
