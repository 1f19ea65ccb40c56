"""What is built, what is up to date, and what cannot be, each with its reason."""

import pytest

from tests.unit.conftest import DEBIAN13, image
from torchbake.build.bakefile import Job
from torchbake.build.base_image import Base
from torchbake.build.plan import Prepared, make_plan, not_built, ref_of, same_inputs
from torchbake.build.result import Result
from torchbake.engine.image import Image
from torchbake.errors import BaseError, BuildError, LockError, TorchbakeError
from torchbake.matrix.spec import ImageSpec, Spec

BASE = Base(name="debian12", image="debian:bookworm-slim", source="registry", digest="sha256:b", created="")
SPECS = (image("2.10.0"), image("2.9.1"), image("2.10.0", base=DEBIAN13))
TAGS = {spec.id: (spec.id, "short") for spec in SPECS}


def prepared(spec: Spec, error: TorchbakeError | None = None, *, base_failed: bool = False) -> Prepared:
    """An image with its job, or with this error."""
    tags = TAGS[spec.id]
    job = Job(
        spec=spec, ref=ref_of(spec, tags), tags=tags, inputs="new", base=BASE, contexts={}, dockerfile="", lock=None
    )
    return Prepared(spec=spec, tags=tags, job=error or job, base_failed=base_failed)


ALL = [prepared(spec) for spec in SPECS]
BAD_BASE = [*ALL[:2], prepared(SPECS[2], BaseError("no registry answers"), base_failed=True)]


def held(spec: ImageSpec, inputs: str) -> dict[str, Image]:
    """The engine's images, with one whose label says what it was built from."""
    ref = ref_of(spec, TAGS[spec.id])
    return {ref: Image(digest="sha256:i", tags=(ref,), labels={"org.torchbake.inputs": inputs}, size_bytes=1)}


def test_an_empty_engine_means_that_all_is_built() -> None:
    found = make_plan(ALL, {})
    assert [job.spec for job in found.jobs] == list(SPECS)
    assert set(found.reasons.values()) == {"not in the engine"}


def test_an_image_of_the_same_inputs_is_left_alone() -> None:
    found = make_plan(ALL, held(SPECS[0], "new"))
    assert [job.spec for job, _ in found.fresh] == [SPECS[0]]
    assert [job.spec for job in found.jobs] == list(SPECS[1:])


@pytest.mark.parametrize("inputs", ["old", ""])
def test_an_image_of_other_inputs_is_built(inputs: str) -> None:
    found = make_plan(ALL, held(SPECS[0], inputs))
    assert found.reasons[SPECS[0].id] == "its inputs changed"
    assert not found.fresh


def test_an_image_without_our_label_is_built() -> None:
    ref = ref_of(SPECS[0], TAGS[SPECS[0].id])
    found = make_plan(ALL, {ref: Image(digest="sha256:i", tags=(ref,), labels={}, size_bytes=1)})
    assert SPECS[0] in [job.spec for job in found.jobs]


def test_force_builds_what_is_up_to_date() -> None:
    found = make_plan(ALL, held(SPECS[0], "new"), force=True)
    assert len(found.jobs) == len(SPECS)
    assert "--no-cache" in found.reasons[SPECS[0].id]


@pytest.mark.parametrize("reason", ["not exported reproducibly yet", "compressed with gzip", ""])
def test_an_image_that_is_not_packed_as_asked_is_built_for_that_reason(reason: str) -> None:
    images = held(SPECS[0], "new") | held(SPECS[1], "old")
    found = make_plan(ALL, images, lacking={"sha256:i": reason})
    assert found.reasons.get(SPECS[0].id, "") == reason
    assert [job.spec for job, _ in found.fresh] == ([] if reason else [SPECS[0]])
    assert found.reasons[SPECS[1].id] == "its inputs changed"
    assert found.reasons[SPECS[2].id] == "not in the engine"


def test_how_it_is_packed_matters_only_of_what_is_not_built_anyway() -> None:
    images = held(SPECS[0], "new") | held(SPECS[1], "old")
    assert same_inputs(BAD_BASE, images, force=False) == list(held(SPECS[0], "new").values())
    assert same_inputs(BAD_BASE, images, force=True) == []


def test_a_base_that_failed_ends_the_images_on_it_alone() -> None:
    found = make_plan(BAD_BASE, {})
    assert [(result.id, result.status) for result in found.decided] == [(SPECS[2].id, "skipped")]
    assert "no registry answers" in found.decided[0].reason
    assert [job.spec for job in found.jobs] == list(SPECS[:2])


def test_a_lock_that_failed_ends_its_image_alone() -> None:
    found = make_plan([ALL[0], prepared(SPECS[1], LockError("nothing fits")), ALL[2]], {})
    assert [(result.id, result.status, result.reason) for result in found.decided] == [
        (SPECS[1].id, "failed", "nothing fits")
    ]
    assert found.decided[0].tags == ()


@pytest.mark.parametrize("bad_base", [True, False])
@pytest.mark.parametrize("inputs", ["new", "old"])
def test_every_image_is_in_exactly_one_place(inputs: str, bad_base: bool) -> None:
    found = make_plan(BAD_BASE if bad_base else ALL, held(SPECS[1], inputs))
    places = [job.spec.id for job in found.jobs] + [result.id for result in found.decided]
    places += [job.spec.id for job, _ in found.fresh]
    assert sorted(places) == sorted(spec.id for spec in SPECS)


def test_an_images_name_is_its_repository_with_its_most_specific_tag() -> None:
    assert ref_of(SPECS[0], TAGS[SPECS[0].id]) == f"acme/pytorch:{SPECS[0].id}"


def stale(spec: Spec) -> Prepared:
    return prepared(spec, LockError(f"{spec.id}'s lock is stale.", hint=f"nox -s lock -- {spec.id}"))


def test_images_that_failed_alike_end_with_their_own_exit_code_and_next_steps() -> None:
    decided = make_plan([stale(spec) for spec in SPECS], {}).decided
    error = not_built(decided)
    assert isinstance(error, LockError)
    for spec in SPECS:
        assert f"{spec.id}'s lock is stale." in error.message
        assert f"nox -s lock -- {spec.id}" in (error.hint or "")


def test_images_that_failed_for_different_reasons_end_with_the_builds_exit_code() -> None:
    no_base = prepared(SPECS[2], BaseError("none", hint="Log in."), base_failed=True)
    error = not_built(make_plan([stale(SPECS[0]), no_base], {}).decided)
    assert isinstance(error, BuildError)
    assert "Log in." in (error.hint or "")
    assert "its base failed: none" in error.message


def test_images_that_are_all_there_are_no_error() -> None:
    assert not_built([Result(id="x", ref="x:1", tags=(), status="up-to-date", reason="")]) is None
