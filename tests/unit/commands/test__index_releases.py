"""Images of two platforms in a small matrix: names, today's files, and `publish`, `promote` and `list`."""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.small import Small
from tests.unit.registries import MemoryRegistry, Store
from tests.unit.release.test_publisher import judged
from tests.unit.test_cli import out
from torchbake.build.prepare import ImagePreparation
from torchbake.commands import _narrow, _rolling
from torchbake.commands._index_releases import IndexPlace, Platforms, release_indexes
from torchbake.commands._publish_tables import PublishResult
from torchbake.commands._release_gate import ReleaseGate
from torchbake.engine.export import Content
from torchbake.errors import RegistryError
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.spec import AMD64, ARM64, Spec
from torchbake.oci.labels import INPUTS
from torchbake.oci.reference import Repository
from torchbake.registry.artifact import Artifact
from torchbake.release.candidate import Candidate
from torchbake.release.publisher import Publisher
from torchbake.render.dockerfile import promised_labels

Streams = pytest.CaptureFixture[str]
MATRIX = """\
repository: acme/pytorch
bases:
  debian12: {image: "debian:bookworm-slim", suite: bookworm, python: "3.11"}
flavors: {runtime: {}}
rows: [{torch: 2.13.0, accelerator: cpu, base: debian12}]
tags: {defaults: {accelerator: cpu, base: debian12}, rolling: [latest]}
init:
  volume-permissions: {version: 1.0.0, base: debian12, platforms: [linux/amd64, linux/arm64]}
"""
ID, TAGS = "volume-permissions", ("1.0.0", "1.0", "1", "latest")
REPOSITORY = Repository(host="ghcr.io", path="acme/volume-permissions")
WHERE = ("--registry", "ghcr.io/acme")


@dataclass
class Checkout:
    """A matrix on disk, and the registry of its releases."""

    path: Path
    store: Store = field(default_factory=Store)
    small: Small = field(default_factory=Small)

    @property
    def project(self) -> Project:
        return load_project(self.path)

    @property
    def specs(self) -> list[Spec]:
        return [spec for spec in self.project.expansion.specs if spec.kind == "init"]

    @property
    def platforms(self) -> Platforms:
        return Platforms(project=self.project, preparation=ImagePreparation.to_ask(self.project, print))

    def registry(self, *_: object, **__: object) -> MemoryRegistry:
        return MemoryRegistry(self.store)

    def spec(self, platform: str) -> Spec:
        (spec,) = (each for each in self.specs if each.platform == platform)
        return spec

    def publish(
        self, platform: str, *, dry: bool = False, describe: Callable[[Content], Sequence[Artifact]] | None = None
    ) -> PublishResult:
        """Release the image of one platform as `publish` does, without its index."""
        spec = self.spec(platform)
        labels = promised_labels(spec, None) | {INPUTS: f"{platform} of 1"}
        architecture = platform.partition("/")[2]
        manifest = self.small.make(labels, [f"{platform} {spec.own_tag}".encode()], architecture=architecture)
        platforms = self.platforms
        candidate = Candidate(
            id=spec.id, digest=manifest.digest, labels=labels, tags=platforms.tags(spec), own=platforms.name(spec),
            verdict=judged("suite"),
        )  # fmt: skip
        publisher = Publisher(self.registry())
        if dry:
            published = publisher.rehearse(candidate)
        else:
            supply = self.small.supply
            supply = replace(supply, describe=describe) if describe else supply
            published = publisher.publish(candidate, supply, lambda _: None, lambda *_: None)
        return PublishResult(id=spec.id, repository=REPOSITORY, published=published, index=ID)

    def join(
        self, *results: PublishResult, later: bool = False, dry: bool = False, gate: ReleaseGate | None = None
    ) -> list[PublishResult]:
        image = self.platforms.sets([self.spec(AMD64)])[ID]
        publisher = Publisher(self.registry(), immutable_only=later)
        place = IndexPlace(image=image, repository=REPOSITORY, publisher=publisher, later=later)
        return release_indexes([place], results, lambda _: None, dry=dry, gate=gate)

    def rolling(self) -> set[str | None]:
        return {self.store.tags.get(tag) for tag in TAGS}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # turns are taken by a file there
    path = tmp_path / "matrix.yaml"
    path.write_text(MATRIX)
    value = Checkout(path)
    monkeypatch.setattr(_rolling, "registry_of", value.registry)
    monkeypatch.setattr(_narrow, "Registry", value.registry)
    monkeypatch.setattr(_narrow, "_served_base", lambda image: ("", "nobody answers"))
    return value


def test_each_platform_has_releases_of_its_own_name(checkout: Checkout) -> None:
    platforms = checkout.platforms
    for spec, name in ((checkout.spec(AMD64), "1.0.0-amd64"), (checkout.spec(ARM64), "1.0.0-arm64")):
        assert (platforms.name(spec), platforms.tags(spec)) == (name, ())
    sets = platforms.sets(checkout.project.expansion.specs)
    assert set(sets) == {ID, f"{ID}-arm64"}
    for one in sets.values():
        assert (one.id, one.tags) == (ID, TAGS)
        assert [(part.platform, part.name) for part in one.parts] == [(AMD64, "1.0.0-amd64"), (ARM64, "1.0.0-arm64")]


def test_a_row_with_one_platform_has_no_index(checkout: Checkout) -> None:
    checkout.path.write_text(MATRIX.replace("[linux/amd64, linux/arm64]", "[linux/arm64]"))
    platforms, spec = checkout.platforms, checkout.spec(ARM64)
    assert (platforms.name(spec), platforms.tags(spec)) == ("1.0.0", TAGS)
    assert platforms.sets([spec]) == {}


def test_an_index_waits_and_is_shown(checkout: Checkout) -> None:
    (waiting,) = checkout.join(checkout.publish(AMD64))
    assert waiting.lacking == {ARM64: f"{ID}-arm64 is not released yet"}
    assert (waiting.published, waiting.problem, waiting.name) == (None, "", f"{ID} (index)")
    assert checkout.rolling() == {None}
    (joint,) = checkout.join(checkout.publish(ARM64))
    assert joint.published
    assert checkout.rolling() == {joint.published.decision.digest}


def test_a_failed_platform_writes_no_index(checkout: Checkout) -> None:
    checkout.publish(AMD64)
    good = checkout.publish(ARM64)
    failed = PublishResult(id=ID, repository=REPOSITORY, problem="a gate refuses it")
    assert checkout.join(failed, good) == []
    assert checkout.rolling() == {None}


def test_a_dry_run_counts_the_platforms_of_this_run(checkout: Checkout) -> None:
    alone = checkout.publish(AMD64, dry=True)
    (waiting,) = checkout.join(alone, dry=True)
    assert set(waiting.lacking) == {ARM64}
    (whole,) = checkout.join(alone, checkout.publish(ARM64, dry=True), dry=True)
    assert (whole.lacking, whole.published, whole.problem) == ({}, None, "")
    assert checkout.store.tags == {}


def test_with_several_registries_rolling_tags_move_last(checkout: Checkout) -> None:
    (joint,) = checkout.join(checkout.publish(AMD64), checkout.publish(ARM64), later=True)
    assert joint.published
    assert (joint.published.decision.action, joint.published.decision.left) == ("release", False)
    assert checkout.rolling() == {joint.published.decision.digest}


def test_another_version_is_not_of_todays_files(checkout: Checkout) -> None:
    spec = checkout.spec(ARM64)
    labels = promised_labels(spec, None)
    assert checkout.platforms.why_old(spec, labels) == ""
    old = {**labels, "org.opencontainers.image.version": "0.9.0"}
    assert checkout.platforms.why_old(spec, old) == "its label org.opencontainers.image.version changed"


def test_promote_pending_completes_the_index(checkout: Checkout, capsys: Streams) -> None:
    words = ("promote", ID, "--pending", *WHERE, "--matrix", str(checkout.path), "--format", "json")
    checkout.publish(ARM64)
    (waiting,) = json.loads(out(capsys, *words))["images"]
    assert waiting["lacking"] == {AMD64: f"{ID} is not released yet"}
    checkout.publish(AMD64)
    json.loads(out(capsys, *words, "--dry-run"))
    assert checkout.rolling() == {None}
    (joint,) = json.loads(out(capsys, *words))["images"]
    assert (joint["id"], joint["to"], "lacking" in joint) == (ID, "1.0.0-r0", False)
    assert checkout.rolling() == {checkout.store.tags["1.0.0-r0"]}


def test_rollback_moves_the_tags_of_all_platforms_once(checkout: Checkout, capsys: Streams) -> None:
    checkout.join(checkout.publish(AMD64), checkout.publish(ARM64))
    first = checkout.store.tags["1.0.0-r0"]
    checkout.small.images.clear()
    spec = checkout.spec(ARM64)
    labels = promised_labels(spec, None) | {INPUTS: "others"}
    manifest = checkout.small.make(labels, [b"others"], architecture="arm64")
    candidate = Candidate(
        id=spec.id, digest=manifest.digest, labels=labels, tags=(), own="1.0.0-arm64", verdict=judged("suite")
    )
    published = Publisher(checkout.registry()).publish(
        candidate, checkout.small.supply, lambda _: None, lambda *_: None
    )
    checkout.join(PublishResult(id=spec.id, repository=REPOSITORY, published=published))
    assert checkout.rolling() == {checkout.store.tags["1.0.0-r1"]}
    words = ("rollback", ID, f"{ID}-arm64", *WHERE, "--matrix", str(checkout.path), "--format", "json")
    (back,) = json.loads(out(capsys, *words))["images"]
    assert (back["id"], back["from"], back["to"]) == (ID, "1.0.0-r1", "1.0.0-r0")
    assert checkout.rolling() == {first}


def test_list_due_names_a_missing_index(checkout: Checkout, capsys: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    def due() -> dict[str, str]:
        words = (
            "list",
            ID,
            f"{ID}-arm64",
            "--due",
            *WHERE,
            "--bases",
            "keep",
            "--matrix",
            str(checkout.path),
            "--format",
            "json",
        )
        return {image["id"]: image["reason"] for image in json.loads(out(capsys, *words))["images"]}

    # The inputs of the small images are no digests of files.
    monkeypatch.setattr(_narrow.DueQuestion, "_inputs", lambda self, spec, digest: f"{spec.platform} of 1")
    monkeypatch.setattr(_narrow, "find_base", lambda *_: None)
    monkeypatch.setattr(_narrow, "_served_base", lambda image: ("sha256:" + "0" * 64, ""))
    assert due() == dict.fromkeys((ID, f"{ID}-arm64"), "not released yet")
    results = [checkout.publish(AMD64)]
    assert due() == {f"{ID}-arm64": "not released yet"}
    results.append(checkout.publish(ARM64))
    assert due() == dict.fromkeys((ID, f"{ID}-arm64"), "the index of its platforms is not released")
    checkout.join(*results)
    assert due() == {}
    monkeypatch.setattr(_narrow.DueQuestion, "_inputs", lambda self, spec, digest: f"{spec.platform} of 2")
    assert set(due()) == {ID, f"{ID}-arm64"}
    two = {AMD64: "2", ARM64: "1"}  # arm64 is as it was: its index follows, when amd64 is released
    monkeypatch.setattr(
        _narrow.DueQuestion, "_inputs", lambda self, spec, digest: f"{spec.platform} of {two[spec.platform]}"
    )
    assert set(due()) == {ID}
    monkeypatch.setattr(_narrow.DueQuestion, "_inputs", lambda self, spec, digest: f"{spec.platform} of 1")
    del checkout.store.tags["1.0.0-r0.release"]
    assert set(due().values()) == {"the release of the index 1.0.0-r0 was interrupted"}


def test_an_unreachable_registry_is_the_problem_of_the_index(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = checkout.publish(AMD64)

    def away(self: Publisher, *_: object, **__: object) -> None:
        raise RegistryError("nobody answers")

    monkeypatch.setattr(Publisher, "publish_index", away)
    (failed,) = checkout.join(result)
    assert failed.problem.startswith("nobody answers")
