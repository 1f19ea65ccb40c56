"""The plan of a build: which images are up to date, which are built, and why. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torchbake.build.bakefile import Job
from torchbake.build.result import Result
from torchbake.engine.image import Image
from torchbake.errors import BuildError, TorchbakeError, all_errors
from torchbake.matrix.spec import Spec
from torchbake.oci.labels import INPUTS


@dataclass(kw_only=True)
class Plan:
    """Jobs to build and what is decided already; every selected image is in exactly one of the two."""

    jobs: list[Job] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    decided: list[Result] = field(default_factory=list)
    fresh: list[tuple[Job, Image]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A selected image with its job, or with the error for which it has none: its own, or that of its base."""

    spec: Spec
    tags: tuple[str, ...]
    job: Job | TorchbakeError
    base_failed: bool = False


def ref_of(spec: Spec, tags: tuple[str, ...]) -> str:
    return f"{spec.repository}:{tags[0]}"


def make_plan(
    prepared: Sequence[Prepared], images: Mapping[str, Image], *, force: bool = False,
    lacking: Mapping[str, str] = {}, place: str = "the engine",
) -> Plan:  # fmt: skip
    """Decide for each image. One whose base or lock failed is skipped, with that as its reason.

    ``images`` are those of ``place``, by reference. ``lacking`` says, by digest, why one of them is not enough though
    it is of the same inputs.
    """
    plan = Plan()
    for one in prepared:
        if isinstance(one.job, TorchbakeError):
            plan.decided.append(_undone(one, one.job))
            continue
        image = images.get(one.job.ref)
        reason = why_build(one.job, image, force=force, place=place) or (lacking.get(image.digest, "") if image else "")
        if image and not reason:
            plan.fresh.append((one.job, image))
        else:
            plan.jobs.append(one.job)
            plan.reasons[one.spec.id] = reason
    return plan


def same_inputs(prepared: Sequence[Prepared], images: Mapping[str, Image], *, force: bool) -> list[Image]:
    """The engine's images that need no build for their inputs' sake: of them alone it matters how they are packed."""
    jobs = [one.job for one in prepared if isinstance(one.job, Job)]
    pairs = [(job, images.get(job.ref)) for job in jobs]
    return [image for job, image in pairs if image and not why_build(job, image, force=force)]


def why_build(job: Job, image: Image | None, *, force: bool, place: str = "the engine") -> str:
    """Why an image must be built; empty when the place has it with the same inputs."""
    if image is None:
        return f"not in {place}"
    if force:
        return "asked for with --no-cache or --pull"
    known = image.labels.get(INPUTS)
    return "" if known == job.inputs else "its inputs changed"


def not_built(results: Sequence[Result]) -> TorchbakeError | None:
    """One error for all images that were not built, of their own kind where they failed alike; None where all were."""
    bad = [result for result in results if result.status in ("failed", "skipped")]
    if not bad:
        return None
    codes = {result.exit_code for result in bad}
    kind = next((error for error in all_errors() if {error.exit_code} == codes), BuildError)
    # What failed while it was built has been told already, with the end of its log.
    told = [result.id if _is_told(result) else f"{result.id}: {result.reason}" for result in bad]
    between = " " if all(map(_is_told, bad)) else "\n  "
    return kind(
        between.join((f"{len(bad)} of {len(results)} images were not built:", *told)),
        hint="\n        ".join(dict.fromkeys(result.next for result in bad if result.next)) or None,
    )


def _is_told(result: Result) -> bool:
    return not result.next and result.exit_code == BuildError.exit_code


def _undone(image: Prepared, error: TorchbakeError) -> Result:
    return Result(
        id=image.spec.id,
        ref=ref_of(image.spec, image.tags),
        tags=(),
        status="skipped" if image.base_failed else "failed",
        reason=("its base failed: " if image.base_failed else "") + error.message,
        exit_code=error.exit_code,
        next=error.hint or "",
    )
