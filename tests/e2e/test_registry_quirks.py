"""Releases on registries that refuse what others take: a real one, behind a proxy that plays their quirks."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.e2e.conftest import ROOT
from tests.e2e.quirks import Quirky, quirky
from tests.e2e.registries import Running, registry
from tests.e2e.test_publish import Killed, in_child
from tests.small import Small
from torchbake.checks.verdict import Outcome
from torchbake.errors import RegistryError
from torchbake.oci.in_toto import MEDIA_TYPE
from torchbake.oci.manifest import INDEX, Manifest
from torchbake.oci.reference import Repository
from torchbake.registry.artifact import IMAGE_CONFIG, Artifact, put_artifact
from torchbake.registry.client import Registry
from torchbake.registry.probe import Abilities
from torchbake.registry.referrers import referrers_of
from torchbake.registry.transport import RegistryTransport
from torchbake.release.attestations import SBOM_TYPE
from torchbake.release.candidate import Candidate, Publication
from torchbake.release.promote import shift
from torchbake.release.publisher import Publisher
from torchbake.release.record import ARTIFACT
from torchbake.validate.promise import Promise
from torchbake.validate.pull import NoInspection
from torchbake.validate.run import MatrixSubject

pytestmark = pytest.mark.release

TOOLS = ROOT / ".torchbake/tools"
OURS = "2.7.1-cuda12.6"
TAGS = (OURS, "2.7", "latest")
REVISIONS = r"-r\d+"  # what docs/explanation/tags.md says may be made immutable
NOT_PULLED = NoInspection(reason="nothing is pulled")


@dataclass(frozen=True)
class Place:
    """A repository behind the proxy, and images of a few bytes."""

    proxy: Quirky
    path: str
    small: Small = field(default_factory=Small)

    def registry(self, **options: Any) -> Registry:
        host = self.proxy.host
        return Registry(RegistryTransport(host, **options), Repository(host=host, path=self.path))

    def candidate(self, inputs: str) -> Candidate:
        labels = {
            "org.torchbake.id": OURS, "org.torchbake.torch": "2.7.1", "org.torchbake.inputs": inputs,
            "org.opencontainers.image.version": OURS,
        }  # fmt: skip
        manifest = self.small.make(labels, [f"of {inputs}".encode() * 100])
        return Candidate(id=OURS, digest=manifest.digest, labels=labels, tags=TAGS, verdict=None)

    def publisher(self, registry_: Registry | None = None, **options: Any) -> Publisher:
        return Publisher(registry_ or self.registry(), **options)

    def publish(self, candidate: Candidate, registry_: Registry | None = None, **options: Any) -> Publication:
        publisher = self.publisher(registry_, **options)
        return publisher.publish(candidate, self.small.supply, lambda _: None, lambda *_: None)

    def rolling(self) -> set[str | None]:
        return set(self.registry().digests(TAGS))

    def failures(self) -> list[str]:
        """Return the failures of `validate` except those of labels, as no matrix row promises labels here."""
        promise = Promise(id=OURS, tags=TAGS, fixed_labels={}, labels={})
        storeds = MatrixSubject(promise=promise, registry=self.registry(), known_ids=frozenset()).validate(
            NOT_PULLED, lambda _: None
        )
        failed = [(one.ref, check) for one in storeds for check in one.checks if check.outcome is Outcome.FAILED]
        return [f"{ref}: {check.id} {check.text}" for ref, check in failed if check.id in JUDGED]


JUDGED = {
    f"registry.{name}"
    for name in (
        "answers", "exists", "manifest", "blobs", "rolling", "record", "immutable", "sbom", "provenance", "referrers",
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with registry(TOOLS, tmp_path_factory.mktemp("registry")) as running:
        yield running


def place_in(proxy: Quirky, request: pytest.FixtureRequest, more: str = "") -> Place:
    return Place(proxy, "q/" + hashlib.sha256(f"{request.node.name}{more}".encode()).hexdigest()[:12])


def test_revisions_can_be_immutable(running: Running, request: pytest.FixtureRequest) -> None:
    with quirky(running.host, immutable=REVISIONS) as proxy:
        place = place_in(proxy, request)
        first, second, third = map(place.candidate, "abc")
        for candidate in (first, second):
            assert place.publish(candidate).decision.action == "release"
            assert place.publish(candidate).decision.action == "nothing"
            assert (place.rolling(), place.failures()) == ({candidate.digest}, [])
        for _ in range(2):
            shift(place.registry(), TAGS, to=None, back=True)
            assert place.publish(second).decision.action == "held"
            assert (place.rolling(), place.failures()) == ({first.digest}, [])
            shift(place.registry(), TAGS, to=None, back=False)
            assert (place.rolling(), place.failures()) == ({second.digest}, [])
        place.publish(third, immutable_only=True)
        (unfinished,) = place.failures()
        assert f"{OURS}-r2: registry.record its release was begun" in unfinished
        place.publisher().finish(TAGS, print)
        assert (place.rolling(), place.failures()) == ({third.digest}, [])


def test_a_registry_that_moves_no_tag_is_reported(running: Running, request: pytest.FixtureRequest) -> None:
    with quirky(running.host, immutable=".") as proxy:
        place = place_in(proxy, request)
        first, second = map(place.candidate, "ab")
        place.publish(first)
        with pytest.raises(RegistryError, match="cannot be overwritten") as end:
            place.publish(second)
        assert "exclude rolling tags" in str(end.value.hint)
        assert place.rolling() == {first.digest}
        proxy.immutable = REVISIONS
        assert place.publish(second).decision.action == "finish"
        assert (place.rolling(), place.failures()) == ({second.digest}, [])


def test_an_answer_that_is_lost_is_no_second_write(running: Running, request: pytest.FixtureRequest) -> None:
    """The registry has written the tag, and refuses the same when it is asked again."""
    with quirky(running.host, immutable=REVISIONS) as proxy:
        place, lost = place_in(proxy, request), set[str]()

        def choose(_: int, method: str, path: str) -> Any:
            if method != "PUT" or f"{OURS}-r0" not in path or path in lost:
                return ""
            lost.add(path)
            return "lost"

        proxy.choose = choose
        candidate = place.candidate("a")
        place.publish(candidate, place.registry(sleep=lambda _: None))
        assert len(lost) == 4  # the tag, both artifacts and the record
        assert (place.rolling(), place.failures()) == ({candidate.digest}, [])


@pytest.mark.long  # tests/unit/release/test_publisher.py stops at each request
def test_a_release_killed_on_immutable_revisions_is_finished(running: Running, request: pytest.FixtureRequest) -> None:
    at, finished = 0, 0
    with quirky(running.host, immutable=REVISIONS) as proxy:
        while True:
            place = place_in(proxy, request, str(at))
            first, second = map(place.candidate, "ab")
            place.publish(first)
            where = Repository(host=proxy.host, path=place.path)
            code = in_child(
                lambda: place.publish(second, Registry(Killed(proxy.host, at, after=True), where))  # noqa: B023
            )
            if code == 0:
                break
            recorded = place.registry().digest(f"{OURS}-r1.release")
            if recorded and finished < 2:
                place.publisher().finish(TAGS, print)
                finished += 1
            else:
                place.publish(second)
            assert (place.rolling(), place.failures()) == ({second.digest}, []), f"killed at request {at}"
            at += 11
    assert at > 30
    assert finished == 2


@pytest.mark.parametrize("lists", [False, True], ids=["list by a tag", "list of the registry"])
def test_artifacts_are_listed_with_their_image(running: Running, request: pytest.FixtureRequest, lists: bool) -> None:
    with quirky(running.host, immutable=REVISIONS, lists=lists) as proxy:
        place = place_in(proxy, request)
        first = place.candidate("a")
        place.publish(first)
        there, tag = place.registry(), first.digest.replace(":", "-")
        artifacts = {there.digest(f"{OURS}-r0.{name}") for name in ("sbom", "provenance", "release")}
        assert referrers_of(there, first.digest) == artifacts
        assert (there.digest(tag) is None) == lists
        assert place.failures() == []
        if lists:
            return
        index = there.manifest(tag)
        assert index
        assert {entry["artifactType"] for entry in index.content["manifests"]} == {SBOM_TYPE, MEDIA_TYPE, ARTIFACT}
        # Another client's artifact stays in the list, and ours are put back.
        image = place.small.images[first.digest][0]
        foreign = put_artifact(there, Artifact(name="x", media_type="a/b", text="{}"), image)
        index = there.manifest(tag)
        assert index
        entries = [entry for entry in index.content["manifests"] if entry["artifactType"] in (SBOM_TYPE, "a/b")]
        left = {**index.content, "manifests": entries}
        there.put(Manifest(data=json.dumps(left).encode(), media_type=INDEX), tag)
        (failed,) = place.failures()
        assert "registry.referrers not listed with the image: provenance" in failed
        assert "release" in failed
        assert place.publish(first).decision.action == "nothing"
        assert place.failures() == []
        assert referrers_of(there, first.digest) == {*artifacts, foreign.digest}


@pytest.mark.parametrize("indexes", [True, False], ids=["and indexes", "and no index"])
def test_a_registry_of_images_alone_takes_releases(
    running: Running, request: pytest.FixtureRequest, indexes: bool
) -> None:
    with quirky(running.host, immutable=REVISIONS, artifacts=False, indexes=indexes) as proxy:
        place = place_in(proxy, request)
        for candidate in map(place.candidate, "ab"):
            assert place.publish(candidate).decision.action == "release"
            assert (place.rolling(), place.failures()) == ({candidate.digest}, [])
        record = place.registry().manifest(f"{OURS}-r1.release")
        assert record
        assert (record.config.media_type, record.content["artifactType"]) == (IMAGE_CONFIG, ARTIFACT)
        config = place.registry().config(record)
        assert config["rootfs"]["diff_ids"] == [record.layers[0].digest]
        # A later version of the registry accepts artifacts: existing tags keep their digests.
        proxy.artifacts = True
        state = {tag: place.registry().digest(tag) for tag in place.registry().tags()}
        place.registry().put(place.registry().manifest(record.digest), "any")  # type: ignore[arg-type]
        assert place.publish(place.candidate("b")).decision.action == "nothing"
        shift(place.registry(), TAGS, to=0, back=True)
        shift(place.registry(), TAGS, to=1, back=False)
        assert place.failures() == []
        assert {tag: place.registry().digest(tag) for tag in state} == state


def test_a_dry_run_asks_and_leaves_nothing(running: Running, request: pytest.FixtureRequest) -> None:
    with quirky(running.host, artifacts=False) as proxy:
        place = place_in(proxy, request)
        candidate = place.candidate("a")

        def rehearsed() -> Abilities:
            value = place.publisher().rehearse(candidate).abilities
            assert value
            return value

        value = rehearsed()
        assert value.push == "yes"
        assert all(text.startswith("not known") for text in (value.artifacts, value.referrers, value.immutable_tags))
        assert place.path not in requests.get(f"http://{running.host}/v2/_catalog", timeout=5).json()["repositories"]
        place.publish(candidate)
        assert place.publisher().rehearse(candidate).abilities is None  # nothing is due
        candidate, tags = place.candidate("b"), place.registry().tags()
        proxy.requests.clear()
        value = rehearsed()
        assert value.artifacts.startswith("no: sent with the config of an image")
        assert value.referrers.startswith("no: a tag sha256-")
        assert place.registry().tags() == tags
        changes = [(method, path) for method, path, _ in proxy.requests if method not in ("GET", "HEAD")]
        assert [method for method, _ in changes] == ["POST", "DELETE"]
        assert requests.get(f"http://{running.host}{changes[1][1]}", timeout=5).status_code == 404  # it is cancelled
        proxy.lists, proxy.push = True, False
        with pytest.raises(RegistryError, match=r"takes no upload: .* 403 DENIED"):
            rehearsed()
        proxy.push = True
        assert rehearsed().referrers == "yes"


def test_tokens_that_end_during_an_upload_are_renewed(
    running: Running, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))  # nobody is logged in
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "none"))
    with quirky(running.host, life=1, slow=6) as proxy:  # uploads go three at a time: each is slow twice
        place = place_in(proxy, request)
        candidate = place.candidate("a")
        sizes: list[int] = []
        publisher = place.publisher()
        published = publisher.publish(candidate, place.small.supply, lambda _: None, lambda _, n: sizes.append(n))
        assert published.transfer
        assert sum(sizes) == published.transfer.bytes  # bytes that went again are not counted twice
        assert min(sizes) < 0
        assert (place.rolling(), place.failures(), proxy.slow) == ({candidate.digest}, [], 0)
        proxy.slow = 10**6
        with pytest.raises(RegistryError, match="gives tokens for 1 s") as end:
            place.publish(place.candidate("b"))
        assert "docker login" not in end.value.sentence


def test_a_token_without_rights_is_not_an_expired_one(
    running: Running, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "none"))
    with quirky(running.host, life=300) as proxy:
        proxy.may = lambda authorization: False  # type: ignore[method-assign]
        place = place_in(proxy, request)
        with pytest.raises(RegistryError, match="nobody is logged in"):
            place.publish(place.candidate("a"))
        assert len(proxy.arguments) == 1
