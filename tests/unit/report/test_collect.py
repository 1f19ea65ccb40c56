"""The verdict that a report shows of an image that several machines have tested, and its newest release."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.small import Small
from tests.unit.checks.test_verdict import FAILED, NOT_RUN, check, verdict
from tests.unit.conftest import image as spec_of
from tests.unit.registries import MemoryRegistry, Store
from torchbake.checks.verdict import Verdict
from torchbake.matrix.spec import AMD64, ARM64, ImageSpec
from torchbake.oci.variants import entry_of, joined_index
from torchbake.report.collect import combine, released_in

OLD = "sha256:old"
A, B, CONFIG = (f"sha256:{digit * 64}" for digit in "abc")


SUITE = {"files.setuid", "smoke.nccl"}


def missing(one: Verdict) -> Sequence[str]:
    return sorted(SUITE - {each.id for each in one.checks})


def render(*verdicts: Verdict) -> Verdict | None:
    """The verdict that is shown, the same in each order."""
    orders: list[Sequence[Verdict]] = list(itertools.permutations(verdicts))
    actual = [combine(order, lambda one: one.suite != OLD, missing) for order in orders]
    assert all(one == actual[0] for one in actual)
    return actual[0]


def test_verdicts_of_one_image_and_suite_are_merged() -> None:
    without = verdict(check(), check("smoke.nccl", NOT_RUN), digest=A)
    with_gpu = verdict(check("smoke.nccl"), digest=A, how=("only=smoke.*",))
    merged = render(without, with_gpu)
    assert merged
    assert [each.outcome.value for each in merged.checks] == ["passed", "passed"]
    packed_otherwise = verdict(check(outcome=FAILED), digest=B, config=CONFIG)
    merged = render(without.model_copy(update={"config": CONFIG}), packed_otherwise)
    assert merged
    assert merged.outcome is FAILED


def test_other_images_and_suites_are_not_merged() -> None:
    first = verdict(check(outcome=FAILED), digest=A)
    later = verdict(check(), digest=B, started="2026-11-22")
    latest_of_old = verdict(check(outcome=FAILED), digest=B, suite=OLD, started="2026-11-23")
    assert render(first, later, latest_of_old) == later
    assert render(latest_of_old.model_copy(update={"started": "2026-11-20"}), latest_of_old) == latest_of_old


def test_a_part_of_the_checks_alone_is_not_shown() -> None:
    part = verdict(check(), digest=A, how=("only=files.*",))
    assert render(part) is None
    assert render(part, part.model_copy(update={"seconds": 9.0})) is None
    assert render(part, verdict(check("smoke.nccl"), digest=B, how=("skip=files.*",))) is None
    assert render() is None
    assert render(verdict()) == verdict()


def test_parts_that_make_a_whole_suite_are_shown() -> None:
    rest = verdict(check("smoke.nccl"), digest=A, how=("skip=files.*",))
    merged = render(verdict(check(), digest=A, how=("only=files.*",)), rest)
    assert merged
    assert {each.id for each in merged.checks} == SUITE


@dataclass
class Releases:
    """A registry with the releases of one own tag."""

    store: Store = field(default_factory=Store)
    small: Small = field(default_factory=Small)

    def release(self, spec: ImageSpec, tag: str, *platforms: str) -> None:
        """Release an image for one platform, or the index of several, with its record."""
        registry = MemoryRegistry(self.store)
        entries = []
        for platform in platforms:
            image = self.small.make({}, [platform.encode()], architecture=platform.partition("/")[2])
            self.store.blobs |= self.small.images[image.digest][1]
            registry.put(image, image.digest)
            entries.append(entry_of(image, registry.config(image)))
        whole = joined_index([entries]) if len(platforms) > 1 else image
        for name in (tag, spec.own_tag):
            registry.put(whole, name)

    def newest(self, *specs: ImageSpec) -> dict[str, str]:
        """Return the tag of the newest release of each image that has one."""
        registries = {spec.repository: MemoryRegistry(self.store) for spec in specs}
        releases = released_in(specs, {spec.id: (spec.own_tag,) for spec in specs}, registries)
        return {name: release.tag for name, release in releases.items()}


def test_a_release_for_one_platform_is_none_of_the_other() -> None:
    """A row got arm64, and its newest release is of the time before."""
    specs, place = (spec_of(), spec_of(platform=ARM64)), Releases()
    own = specs[0].own_tag
    place.release(specs[0], f"{own}-r0", AMD64)
    assert place.newest(*specs) == {specs[0].id: f"{own}-r0"}
    place.release(specs[0], f"{own}-r1", AMD64, ARM64)
    assert place.newest(*specs) == {spec.id: f"{own}-r1" for spec in specs}
    place.release(specs[1], f"{own}-r2", ARM64)
    assert place.newest(*specs) == {specs[1].id: f"{own}-r2"}
