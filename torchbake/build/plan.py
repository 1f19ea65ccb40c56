"""The plan of a build: the images to build, with reasons, and the images that are up to date. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torchbake.build.bakefile import BuildJob
from torchbake.build.result import BuildResult
from torchbake.engine.image import EngineImage
from torchbake.errors import BuildError, TorchbakeError, all_errors
from torchbake.matrix.spec import Spec
from torchbake.matrix.tags import engine_tags
from torchbake.oci.labels import INPUTS


@dataclass(kw_only=True)
class BuildPlan:
    """Jobs to build with their reasons, results of failed images, and images that are up to date (``fresh``)."""

    jobs: list[BuildJob] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    decided: list[BuildResult] = field(default_factory=list)
    fresh: list[tuple[BuildJob, EngineImage]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class PreparedImage:
    """A selected image with its job, or with the error for which it has none: its own, or its base's."""

    spec: Spec
    tags: tuple[str, ...]
    job: BuildJob | TorchbakeError
    base_failed: bool = False


def ref_of(spec: Spec, tags: tuple[str, ...]) -> str:
    """Return an image's name in the engine."""
    return f"{spec.repository}:{engine_tags(spec, tags)[0]}"


def refs_of(specs: Iterable[Spec], tags: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return the names of images in the engine, by id; ``tags`` are those of the project."""
    return {spec.id: ref_of(spec, tags[spec.id]) for spec in specs}


def make_plan(
    prepared_images: Sequence[PreparedImage], images: Mapping[str, EngineImage], *, force: bool = False,
    lacking: Mapping[str, str] = {}, place: str = "the engine",
) -> BuildPlan:  # fmt: skip
    """Decide for each image whether it is built.

    ``images`` are the images in ``place``, by reference. ``lacking`` has reasons to build an image again although its
    inputs are the same, by digest.
    """
    plan = BuildPlan()
    for one in prepared_images:
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


def same_inputs(
    prepared_images: Sequence[PreparedImage], images: Mapping[str, EngineImage], *, force: bool
) -> list[EngineImage]:
    """Return the images with the inputs of their jobs. Only these can be up to date."""
    jobs = [one.job for one in prepared_images if isinstance(one.job, BuildJob)]
    pairs = [(job, images.get(job.ref)) for job in jobs]
    return [image for job, image in pairs if image and not why_build(job, image, force=force)]


def why_build(job: BuildJob, image: EngineImage | None, *, force: bool, place: str = "the engine") -> str:
    """Return why an image must be built; empty if the place has it with the same inputs."""
    if image is None:
        return f"not in {place}"
    if force:
        return "asked for with --no-cache or --pull"
    label = image.labels.get(INPUTS)
    return "" if label == job.inputs else "its inputs changed"


def build_error(results: Sequence[BuildResult]) -> TorchbakeError | None:
    """Return one error for all images that were not built, of their kind if they have one; None if all were built."""
    bad = [result for result in results if result.status in ("failed", "skipped")]
    if not bad:
        return None
    codes = {result.exit_code for result in bad}
    kind = next((error for error in all_errors() if {error.exit_code} == codes), BuildError)
    # A failure during the build was shown before, with the end of its log.
    reasons = ["" if not each.next and each.exit_code == BuildError.exit_code else f": {each.reason}" for each in bad]
    lines = [f"{result.id}{reason}" for result, reason in zip(bad, reasons, strict=True)]
    return kind(
        ("\n  " if any(reasons) else " ").join((f"{len(bad)} of {len(results)} images were not built:", *lines)),
        hint="\n        ".join(dict.fromkeys(result.next for result in bad if result.next)) or None,
    )


def _undone(image: PreparedImage, error: TorchbakeError) -> BuildResult:
    return BuildResult(
        id=image.spec.id,
        ref=ref_of(image.spec, image.tags),
        tags=(),
        status="skipped" if image.base_failed else "failed",
        reason=("its base failed: " if image.base_failed else "") + error.message,
        exit_code=error.exit_code,
        next=error.hint or "",
    )
