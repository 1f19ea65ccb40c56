"""Checks that a tag has a complete image, in steps. Pure.

The registry answers, the tag exists, the manifest agrees with its digest, all blobs exist, and the platform is right.
If a step fails, the checks that depend on it are not run.
"""

from collections.abc import Callable
from functools import partial

from torchbake.checks.verdict import CheckResult
from torchbake.core.problem import Problem, unknown
from torchbake.validate.facts import ServedImage, ServedTag

SILENT = "registry.answers"  # the only check whose failure says nothing about the content of the registry
SILENCE = unknown("the registry did not answer")
_NO_TAG, _DAMAGED = unknown("there is no such tag"), unknown("its manifest is damaged")
_NO_IMAGE = unknown("there is no image")


def served_whole(
    answer: ServedTag, missing: Problem, platform: str
) -> tuple[list[CheckResult], Problem | None]:  # fmt: skip
    """Return the checks of every tag for a platform, and the problem that stops later checks (None: they can run)."""
    checks: list[CheckResult] = []
    stop: Problem | None = None
    for name, problem, then in (
        ("answers", answer.answer_problem, SILENCE),
        ("exists", None if answer.digest else missing, _NO_TAG),
        ("manifest", answer.manifest_problem, _DAMAGED),
    ):
        checks.append(check(name, stop or problem))
        stop = stop or (then if problem else None)
    checks.append(when("blobs", stop, _missing_blobs, answer))
    checks.append(when("platform", unread(answer, stop), partial(_elsewhere, platform), answer))
    return checks, stop


def unread(answer: ServedTag, stop: Problem | None) -> Problem | None:
    """Return the problem that stops checks of the image's config: ``stop``, or that it cannot be read."""
    problem = answer.image.config_problem if answer.image else None
    return stop or (unknown(f"its config cannot be read: {problem.reason}") if problem else None)


def when(
    name: str, stop: Problem | None, judge: Callable[[ServedImage], Problem | None], answer: ServedTag
) -> CheckResult:
    """Run a check of an image, unless an earlier problem stops it."""
    return check(name, stop or (judge(answer.image) if answer.image else _NO_IMAGE))


def check(name: str, problem: Problem | None) -> CheckResult:
    return CheckResult.of(f"registry.{name}", problem)


def _missing_blobs(image: ServedImage) -> Problem | None:
    """Name the blobs that are missing or incomplete."""
    wrong = [
        f"{piece.digest} is not there"
        if piece.actual_size is None
        else f"{piece.digest} has {piece.actual_size} bytes, not {piece.size}"
        for piece in image.pieces
        if piece.actual_size != piece.size
    ]
    if not wrong:
        return image.config_problem
    return Problem(reason=f"{len(wrong)} of {len(image.pieces)} blobs: " + "\n".join(wrong))


def _elsewhere(platform: str, image: ServedImage) -> Problem | None:
    if platform in image.platforms:
        return None
    return Problem(reason=f"it is for {', '.join(image.platforms) or 'no platform'}, not for {platform}")
