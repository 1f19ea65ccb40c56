"""Images of two platforms, released by two machines, and the index that any machine writes when both are there."""

import random
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from tests.small import Small
from tests.unit.conftest import NIGHTLY
from tests.unit.registries import MemoryRegistry, MemorySigner, OnMessage, Store, Turns
from torchbake.checks.verdict import Outcome
from torchbake.errors import PublishError, RegistryError, UsageError
from torchbake.matrix.spec import AMD64, ARM64
from torchbake.oci.manifest import INDEX, MANIFEST, Manifest
from torchbake.oci.platforms import images_for
from torchbake.oci.tag_names import ARTIFACTS, artifact_tag, revisions_of
from torchbake.oci.variants import ZSTD, index_of
from torchbake.registry.artifact import put_artifact, read_artifact
from torchbake.registry.cosign import NoCosign, Signer
from torchbake.release.candidate import Candidate, IndexPublication
from torchbake.release.platforms import PlatformPart, PlatformSet
from torchbake.release.promote import Shift, shift
from torchbake.release.publisher import Publisher
from torchbake.release.record import Record, RecordedVerdict, read_record, write_record

OWN = "2.10.0-cpu-runtime-debian12"
TAGS = (OWN, "2.10-cpu", "latest")
NAMES = {AMD64: f"{OWN}-amd64", ARM64: f"{OWN}-arm64"}
IDS = {AMD64: OWN, ARM64: f"{OWN}-arm64"}
UNSIGNED = NoCosign(skip_reason="no key was given")
VERDICT = RecordedVerdict(suite="today", started="now", outcome=Outcome.PASSED, counts={"passed": 40})


@dataclass
class TwoPlatforms:
    """A registry, the machines that build one platform each, and the inputs digests of today's files."""

    store: Store = field(default_factory=Store)
    small: Small = field(default_factory=Small)
    today: dict[str, str] = field(default_factory=lambda: {AMD64: "a", ARM64: "b"})
    variant: str = ""

    @property
    def key(self) -> MemorySigner:
        return MemorySigner(store=self.store)

    def registry(self, message: OnMessage = lambda *_: None) -> MemoryRegistry:
        return MemoryRegistry(self.store, "one", message)

    def image(self, platform: str = AMD64, torch: str = "2.10.0+cpu") -> Manifest:
        labels = {"org.torchbake.id": IDS[platform], "org.torchbake.torch": torch}
        labels["org.torchbake.inputs"] = self.today[platform]
        architecture = platform.partition("/")[2]
        variant = {"variant": self.variant} if self.variant and platform == ARM64 else {}
        return self.small.make(labels, [f"{self.today[platform]}".encode()], architecture=architecture, **variant)

    def candidate(self, platform: str) -> Candidate:
        manifest = self.image(platform)
        labels = self.small.images[manifest.digest][2]
        return Candidate(
            id=IDS[platform], digest=manifest.digest, labels=labels, tags=(), own=NAMES[platform], verdict=VERDICT
        )

    @property
    def both(self) -> PlatformSet:
        def why_old(platform: str) -> Callable[[Mapping[str, str]], str]:
            return lambda labels: "" if labels["org.torchbake.inputs"] == self.today[platform] else "its inputs changed"

        parts = [PlatformPart(platform=one, id=IDS[one], name=NAMES[one], why_old=why_old(one)) for one in NAMES]
        return PlatformSet(id=OWN, repository="team/pytorch", tags=TAGS, parts=tuple(parts))

    def publish(self, *platforms: str, signer: Signer = UNSIGNED) -> IndexPublication:
        """Release platforms on a machine of their own, which then tries to release the index."""
        for platform in platforms:
            machine = Publisher(self.registry(), signer=signer)
            machine.publish(self.candidate(platform), self.small.supply, lambda _: None, lambda *_: None)
        return self.join(signer)

    def join(
        self, signer: Signer = UNSIGNED, *, message: OnMessage = lambda *_: None, later: bool = False, dry: bool = False
    ) -> IndexPublication:
        """Release the index on a machine that has no image."""
        publisher = Publisher(self.registry(message), signer=signer, immutable_only=later)
        return publisher.publish_index(self.both, lambda _: None, dry=dry)

    def back(self, to: int | None = None) -> Shift:
        return shift(self.registry(), TAGS, to=to, back=True)

    def index(self, tag: str = OWN) -> Manifest:
        manifest = self.registry().manifest(tag)
        assert manifest
        return manifest

    def record(self, revision: int = 0) -> Record:
        record = read_record(self.registry(), f"{OWN}-r{revision}")
        assert record
        return record

    def rolling(self) -> set[str | None]:
        return {self.store.tags.get(tag) for tag in TAGS}


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TwoPlatforms:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # turns are taken by a file there
    return TwoPlatforms()


def test_the_last_platform_completes_the_index(fleet: TwoPlatforms) -> None:
    first = fleet.publish(ARM64)
    assert first.decision is None
    assert first.lacking == {AMD64: f"{OWN} is not released yet"}
    assert not set(TAGS) & set(fleet.store.tags)
    one_release = fleet.publish(AMD64)
    assert one_release.lacking == {}
    assert one_release.decision
    assert (one_release.decision.action, str(one_release.decision.tag)) == ("release", f"{OWN}-r0")
    assert fleet.rolling() == {one_release.decision.digest} == {fleet.store.tags[f"{OWN}-r0"]}


def test_a_client_gets_the_image_of_its_platform(fleet: TwoPlatforms) -> None:
    fleet.publish(AMD64, ARM64)
    index = fleet.index()
    assert index.media_type == INDEX
    assert [where for _, where in index.images] == [AMD64, ARM64]
    for platform, name in NAMES.items():
        (blob,) = images_for(index, platform, name="it")
        assert blob.digest == fleet.image(platform).digest
        assert fleet.index(f"{name}-r0").digest == blob.digest
    with pytest.raises(UsageError):
        images_for(index, "linux/ppc64le", name="it")


def test_every_machine_writes_the_same_index(fleet: TwoPlatforms) -> None:
    other = TwoPlatforms(store=Store())
    fleet.publish(AMD64, ARM64)
    other.publish(ARM64, AMD64)
    assert fleet.index().data == other.index().data
    for name in ARTIFACTS:
        ours, theirs = (read_artifact(one.registry(), f"{OWN}-r0", name) for one in (fleet, other))
        assert ours
        assert theirs
        assert ours[1] == theirs[1]


def test_the_record_names_the_release_of_each_platform(fleet: TwoPlatforms) -> None:
    fleet.publish(AMD64, ARM64)
    record = fleet.record()
    assert {platform: one.tag for platform, one in record.platforms.items()} == {
        platform: f"{name}-r0" for platform, name in NAMES.items()
    }
    assert {one.digest for one in record.platforms.values()} == {blob.digest for blob, _ in fleet.index().images}
    assert record.verdict is None
    assert record.labels["org.torchbake.id"] == record.id == OWN
    for platform, one in record.platforms.items():
        part = read_record(fleet.registry(), one.tag)
        assert part
        assert part.verdict == VERDICT
        assert part.id == IDS[platform]
        assert part.rolling == ()
        assert part.platforms == {}


def test_a_record_of_one_platform_has_no_platforms(fleet: TwoPlatforms) -> None:
    fleet.publish(AMD64, ARM64)
    part = read_artifact(fleet.registry(), f"{NAMES[ARM64]}-r0", "release")
    index = read_artifact(fleet.registry(), f"{OWN}-r0", "release")
    assert part
    assert index
    assert b"platforms" not in part[1]
    assert b"platforms" in index[1]


def test_a_second_run_changes_nothing(fleet: TwoPlatforms) -> None:
    fleet.publish(AMD64, ARM64)
    before = dict(fleet.store.tags)
    again = fleet.publish(AMD64, ARM64)
    assert again.decision
    assert again.decision.action == "nothing"
    assert fleet.store.tags == before


def test_an_image_may_name_the_variant_of_its_platform(fleet: TwoPlatforms) -> None:
    """Images on Debian's own base for arm64 are for linux/arm64/v8."""
    fleet.variant = "v8"
    fleet.publish(AMD64, ARM64)
    assert [where for _, where in fleet.index().images] == [AMD64, f"{ARM64}/v8"]
    again = fleet.publish(AMD64, ARM64)
    assert again.decision
    assert (again.decision.action, str(again.decision.tag)) == ("nothing", f"{OWN}-r0")
    assert shift(fleet.registry(), TAGS, to=0, back=False).digest == fleet.index().digest


def test_the_index_waits_for_every_changed_platform(fleet: TwoPlatforms) -> None:
    fleet.publish(AMD64, ARM64)
    first = fleet.index().digest
    fleet.today = {AMD64: "a2", ARM64: "b2"}
    waiting = fleet.publish(AMD64)
    assert waiting.lacking == {ARM64: f"{NAMES[ARM64]}-r0 is not of today's files: its inputs changed"}
    assert fleet.rolling() == {first}
    fleet.publish(ARM64)
    assert fleet.index().digest != first
    assert fleet.rolling() == {fleet.store.tags[f"{OWN}-r1"]}
    assert {one.tag for one in fleet.record(1).platforms.values()} == {f"{name}-r1" for name in NAMES.values()}


def test_one_changed_platform_is_a_new_index(fleet: TwoPlatforms) -> None:
    fleet.publish(AMD64, ARM64)
    fleet.today[ARM64] = "b2"
    fleet.publish(ARM64)
    assert {one.tag for one in fleet.record(1).platforms.values()} == {f"{NAMES[AMD64]}-r0", f"{NAMES[ARM64]}-r1"}


def test_a_rollback_moves_the_index_and_stays(fleet: TwoPlatforms) -> None:
    fleet.publish(AMD64, ARM64)
    first = fleet.index().digest
    fleet.today[ARM64] = "b2"
    fleet.publish(ARM64)
    assert fleet.back().digest == first
    waiting = fleet.publish(AMD64, ARM64)
    assert waiting.decision
    assert waiting.decision.action == "held"
    assert fleet.rolling() == {first}


def test_every_part_of_a_signed_release_is_signed(fleet: TwoPlatforms) -> None:
    fleet.publish(AMD64, ARM64, signer=fleet.key)
    signed = {digest for _, digest in fleet.store.signed}
    names = ("", *(f".{name}" for name in ARTIFACTS), ".release")
    for own in (OWN, *NAMES.values()):
        assert {fleet.store.tags[f"{own}-r0{name}"] for name in names} <= signed


def test_an_unsigned_platform_is_not_joined_by_a_key(fleet: TwoPlatforms) -> None:
    fleet.publish(ARM64)
    with pytest.raises(PublishError, match=f"{NAMES[ARM64]}-r0 .* is not signed"):
        fleet.publish(AMD64, signer=fleet.key)
    assert f"{OWN}-r0" not in fleet.store.tags


def test_signed_platforms_need_a_signed_index(fleet: TwoPlatforms) -> None:
    for platform in NAMES:
        _publish_alone(fleet, platform, fleet.key)
    with pytest.raises(PublishError, match="its record is signed"):
        fleet.join()
    fleet.join(fleet.key, dry=True)
    assert f"{OWN}-r0" not in fleet.store.tags
    fleet.join(fleet.key)
    assert fleet.join().decision  # nothing is due, so nothing must be signed


def test_an_interrupted_platform_is_named(fleet: TwoPlatforms) -> None:
    fleet.publish(ARM64)
    del fleet.store.tags[f"{NAMES[ARM64]}-r0.release"]
    assert fleet.publish(AMD64).lacking == {ARM64: f"the release of {NAMES[ARM64]}-r0 was interrupted"}
    assert fleet.publish(ARM64).decision


def test_another_machine_finishes_a_killed_index(fleet: TwoPlatforms) -> None:
    """A killed run leaves all rolling tags or none at the index, and the next run completes it."""
    whole = _puts_of_an_index()
    assert len(whole) > 6
    for last in range(len(whole)):
        killed = TwoPlatforms()
        killed.publish(AMD64)
        _publish_alone(killed, ARM64)
        requests_log = list[str]()

        def kill(method: str, key: str, requests_log: list[str] = requests_log, last: int = last) -> None:
            if method == "PUT":
                if len(requests_log) >= last:  # a dead process also restores nothing
                    raise RegistryError("killed")
                requests_log.append(key)

        with pytest.raises(RegistryError, match="killed"):
            killed.join(message=kill)
        killed.join()
        assert killed.rolling() == {killed.store.tags[f"{OWN}-r0"]}
        assert killed.record().platforms.keys() == {AMD64, ARM64}
        assert not [tag for tag in killed.store.tags if "-r1" in tag]


def _puts_of_an_index() -> list[str]:
    fleet, puts = TwoPlatforms(), list[str]()
    fleet.publish(AMD64)
    _publish_alone(fleet, ARM64)
    fleet.join(message=lambda method, key: puts.append(key) if method == "PUT" else None)
    return puts


def _publish_alone(fleet: TwoPlatforms, platform: str, signer: Signer = UNSIGNED) -> None:
    machine = Publisher(fleet.registry(), signer=signer)
    machine.publish(fleet.candidate(platform), fleet.small.supply, lambda _: None, lambda *_: None)


def test_the_rolling_tags_of_an_index_can_move_later(fleet: TwoPlatforms) -> None:
    _publish_alone(fleet, AMD64)
    _publish_alone(fleet, ARM64)
    one_release = fleet.join(later=True)
    assert one_release.decision
    assert one_release.decision.left
    assert fleet.rolling() == {None}
    assert f"{OWN}-r0" in fleet.store.tags
    Publisher(fleet.registry()).finish(TAGS, lambda _: None)
    assert fleet.rolling() == {fleet.store.tags[f"{OWN}-r0"]}


def test_both_compressions_of_both_platforms_are_one_list(fleet: TwoPlatforms) -> None:
    """A client takes the first image of its platform: the one in gzip."""
    expected = []
    for platform, name in NAMES.items():
        zstd = fleet.image(platform)
        _publish_alone(fleet, platform)
        gzip = Manifest(data=zstd.data + b" ", media_type=MANIFEST)
        both = index_of(gzip, zstd, fleet.registry().config(zstd))
        for each in (gzip, both):
            fleet.registry().put(each, each.digest)
        _replace(fleet, f"{name}-r0", both)
        expected += [(gzip.digest, platform), (zstd.digest, platform)]
    fleet.join()
    index = fleet.index()
    assert [(blob.digest, where) for blob, where in index.images] == expected
    marked = [bool(entry.get("annotations", {}).get(ZSTD)) for entry in index.content["manifests"]]
    assert marked == [False, True, False, True]


def _replace(fleet: TwoPlatforms, tag: str, manifest: Manifest) -> None:
    """Let a release be of another manifest of the same image."""
    record, content = read_record(fleet.registry(), tag), fleet.small.take_out
    assert record
    artifacts = fleet.small.describe(content(record.digest, Path("/nowhere"), lambda _: False))
    attached = {}
    for artifact in artifacts:
        pushed = put_artifact(fleet.registry(), artifact, manifest)
        fleet.registry().put(pushed, artifact_tag(tag, artifact.name))
        attached[artifact.name] = pushed.digest
    fleet.registry().put(manifest, tag)
    changed = record.model_copy(update={"digest": manifest.digest, "attached": attached})
    write_record(fleet.registry(), changed, manifest)


def test_an_image_of_another_platform_is_refused(fleet: TwoPlatforms) -> None:
    fleet.publish(AMD64)
    wrong = fleet.small.make({**fleet.candidate(ARM64).labels}, [b"b"], architecture="amd64")
    candidate = Candidate(
        id=IDS[ARM64], digest=wrong.digest, labels=fleet.small.images[wrong.digest][2], tags=(), own=NAMES[ARM64],
        verdict=VERDICT,
    )  # fmt: skip
    Publisher(fleet.registry()).publish(candidate, fleet.small.supply, lambda _: None, lambda *_: None)
    with pytest.raises(RegistryError, match="is for linux/amd64, not for linux/arm64"):
        fleet.join()
    assert f"{OWN}-r0" not in fleet.store.tags


@pytest.mark.parametrize("platform", NAMES)
def test_a_row_can_get_and_lose_a_platform(fleet: TwoPlatforms, platform: str) -> None:
    labels = fleet.candidate(platform).labels

    def alone() -> None:
        single = Candidate(
            id=IDS[platform], digest=fleet.image(platform).digest, labels=labels, tags=TAGS, own=OWN, verdict=VERDICT
        )  # fmt: skip
        Publisher(fleet.registry()).publish(single, fleet.small.supply, lambda _: None, lambda *_: None)

    alone()
    assert fleet.rolling() == {fleet.image(platform).digest}
    fleet.publish(AMD64, ARM64)
    assert fleet.rolling() == {fleet.store.tags[f"{OWN}-r1"]}
    assert fleet.index().is_index
    alone()
    assert fleet.rolling() == {fleet.store.tags[f"{OWN}-r2"]} == {fleet.image(platform).digest}
    assert fleet.back(1).digest == fleet.store.tags[f"{OWN}-r1"]


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize("inputs", ["b", "b2"])
def test_two_machines_at_once_leave_a_whole_index(inputs: str) -> None:
    """One joins the platforms of an older checkout while the other releases and joins the newer ones."""
    for seed in range(20 if NIGHTLY else 10):
        older = TwoPlatforms()
        _publish_alone(older, AMD64)
        _publish_alone(older, ARM64)
        newer = replace(older, today={AMD64: "a", ARM64: inputs})

        published = dict[str, IndexPublication]()

        def work(name: str, message: OnMessage, published: dict[str, IndexPublication] = published) -> None:
            registry, fleet = MemoryRegistry(older.store, name, message), {"one": older, "two": newer}[name]  # noqa: B023
            machine = Publisher(registry)
            if name == "two":
                machine.publish(fleet.candidate(ARM64), fleet.small.supply, lambda _: None, lambda *_: None)
            published[name] = machine.publish_index(fleet.both, lambda _: None)

        order = random.Random(seed).choices(["one", "two"], weights=[1, 3], k=200)  # the second has more to do
        ends = Turns(order).run({name: partial(work, name) for name in ("one", "two")})
        assert all(isinstance(error, RegistryError | None) for error in ends.values()), ends
        for decision in (each.decision for each in published.values() if each.decision):
            assert older.store.tags[str(decision.tag)] == decision.digest, seed
        newer.join()
        newest = f"{NAMES[ARM64]}-r{int(inputs != 'b')}"
        assert newer.store.tags[newest] in {blob.digest for blob, _ in newer.index().images}, seed
        (digest,) = newer.rolling()
        last = max(revisions_of(OWN, newer.store.tags))
        assert newer.store.tags[str(last)] == newer.record(last.revision).digest == digest, seed
