"""The plan of a build: images to build, up to date or impossible, each with its reason."""

import pytest

from tests.unit.conftest import DEBIAN13, image
from torchbake.build.bakefile import BuildJob
from torchbake.build.base_image import BaseImage
from torchbake.build.plan import PreparedImage, build_error, make_plan, ref_of, same_inputs
from torchbake.build.result import BuildResult
from torchbake.engine.image import EngineImage
from torchbake.errors import BaseError, BuildError, LockError, TorchbakeError
from torchbake.matrix.spec import ImageSpec, Spec

BASE = BaseImage(name="debian12", image="debian:bookworm-slim", source="registry", digest="sha256:b", created="")
SPECS = (image("2.10.0"), image("2.9.1"), image("2.10.0", base=DEBIAN13))
TAGS = {spec.id: (spec.id, "short") for spec in SPECS}


def prepared(spec: Spec, error: TorchbakeError | None = None, *, base_failed: bool = False) -> PreparedImage:
    """An image with its job, or with this error."""
    tags = TAGS[spec.id]
    job = BuildJob(
        spec=spec, ref=ref_of(spec, tags), tags=tags, inputs="new", base=BASE, contexts={}, dockerfile="", lock=None
    )
    return PreparedImage(spec=spec, tags=tags, job=error or job, base_failed=base_failed)


ALL = [prepared(spec) for spec in SPECS]
BAD_BASE = [*ALL[:2], prepared(SPECS[2], BaseError("no registry answers"), base_failed=True)]


def hold(spec: ImageSpec, inputs: str) -> dict[str, EngineImage]:
    """The engine's images, with one whose label says what it was built from."""
    ref = ref_of(spec, TAGS[spec.id])
    return {ref: EngineImage(digest="sha256:i", tags=(ref,), labels={"org.torchbake.inputs": inputs}, size_bytes=1)}


def test_an_empty_engine_means_that_all_is_built() -> None:
    value = make_plan(ALL, {})
    assert [job.spec for job in value.jobs] == list(SPECS)
    assert set(value.reasons.values()) == {"not in the engine"}


def test_an_image_of_the_same_inputs_is_left_alone() -> None:
    value = make_plan(ALL, hold(SPECS[0], "new"))
    assert [job.spec for job, _ in value.fresh] == [SPECS[0]]
    assert [job.spec for job in value.jobs] == list(SPECS[1:])


@pytest.mark.parametrize("inputs", ["old", ""])
def test_an_image_of_other_inputs_is_built(inputs: str) -> None:
    value = make_plan(ALL, hold(SPECS[0], inputs))
    assert value.reasons[SPECS[0].id] == "its inputs changed"
    assert not value.fresh


def test_an_image_without_our_label_is_built() -> None:
    ref = ref_of(SPECS[0], TAGS[SPECS[0].id])
    value = make_plan(ALL, {ref: EngineImage(digest="sha256:i", tags=(ref,), labels={}, size_bytes=1)})
    assert SPECS[0] in [job.spec for job in value.jobs]


def test_force_builds_what_is_up_to_date() -> None:
    value = make_plan(ALL, hold(SPECS[0], "new"), force=True)
    assert len(value.jobs) == len(SPECS)
    assert "--no-cache" in value.reasons[SPECS[0].id]


@pytest.mark.parametrize("reason", ["not exported reproducibly yet", "compressed with gzip", ""])
def test_an_image_of_the_other_packing_is_built_again(reason: str) -> None:
    images = hold(SPECS[0], "new") | hold(SPECS[1], "old")
    value = make_plan(ALL, images, lacking={"sha256:i": reason})
    assert value.reasons.get(SPECS[0].id, "") == reason
    assert [job.spec for job, _ in value.fresh] == ([] if reason else [SPECS[0]])
    assert value.reasons[SPECS[1].id] == "its inputs changed"
    assert value.reasons[SPECS[2].id] == "not in the engine"


def test_packing_is_no_reason_for_an_image_that_is_built_anyway() -> None:
    images = hold(SPECS[0], "new") | hold(SPECS[1], "old")
    assert same_inputs(BAD_BASE, images, force=False) == list(hold(SPECS[0], "new").values())
    assert same_inputs(BAD_BASE, images, force=True) == []


def test_a_base_that_failed_ends_the_images_on_it_alone() -> None:
    value = make_plan(BAD_BASE, {})
    assert [(result.id, result.status) for result in value.decided] == [(SPECS[2].id, "skipped")]
    assert "no registry answers" in value.decided[0].reason
    assert [job.spec for job in value.jobs] == list(SPECS[:2])


def test_a_lock_that_failed_ends_its_image_alone() -> None:
    value = make_plan([ALL[0], prepared(SPECS[1], LockError("nothing fits")), ALL[2]], {})
    assert [(result.id, result.status, result.reason) for result in value.decided] == [
        (SPECS[1].id, "failed", "nothing fits")
    ]
    assert value.decided[0].tags == ()


@pytest.mark.parametrize("bad_base", [True, False])
@pytest.mark.parametrize("inputs", ["new", "old"])
def test_every_image_is_in_exactly_one_place(inputs: str, bad_base: bool) -> None:
    value = make_plan(BAD_BASE if bad_base else ALL, hold(SPECS[1], inputs))
    places = [job.spec.id for job in value.jobs] + [result.id for result in value.decided]
    places += [job.spec.id for job, _ in value.fresh]
    assert sorted(places) == sorted(spec.id for spec in SPECS)


def test_an_image_is_named_by_its_most_specific_tag() -> None:
    assert ref_of(SPECS[0], TAGS[SPECS[0].id]) == f"acme/pytorch:{SPECS[0].id}"


def stale(spec: Spec) -> PreparedImage:
    return prepared(spec, LockError(f"{spec.id}'s lock is stale.", hint=f"nox -s lock -- {spec.id}"))


def test_equal_failures_end_with_their_own_exit_code() -> None:
    decided = make_plan([stale(spec) for spec in SPECS], {}).decided
    error = build_error(decided)
    assert isinstance(error, LockError)
    for spec in SPECS:
        assert f"{spec.id}'s lock is stale." in error.message
        assert f"nox -s lock -- {spec.id}" in (error.hint or "")


def test_different_failures_end_with_the_builds_exit_code() -> None:
    no_base = prepared(SPECS[2], BaseError("none", hint="Log in."), base_failed=True)
    error = build_error(make_plan([stale(SPECS[0]), no_base], {}).decided)
    assert isinstance(error, BuildError)
    assert "Log in." in (error.hint or "")
    assert "its base failed: none" in error.message


def test_images_that_are_all_there_are_no_error() -> None:
    assert build_error([BuildResult(id="x", ref="x:1", tags=(), status="up-to-date", reason="")]) is None


def test_a_failure_with_a_next_step_is_shown_again() -> None:
    for hint, end in (("", " a"), ("Free some disk.", "\n  a: the disk is full")):
        result = BuildResult(
            id="a", ref="a:1", tags=(), status="failed", reason="the disk is full", exit_code=BuildError.exit_code,
            next=hint,
        )  # fmt: skip
        error = build_error([result])
        assert error
        assert error.message == f"1 of 1 images were not built:{end}"
