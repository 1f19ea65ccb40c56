"""Checks that a tag has a complete image, in steps. Pure.

The registry answers, the tag exists, the manifest agrees with its digest, all blobs exist, and the platform is right.
If a step fails, the checks that depend on it are not run.
"""

from collections.abc import Callable

from torchbake.checks.verdict import CheckResult
from torchbake.core.problem import Problem, unknown
from torchbake.validate.facts import Image, Served

PLATFORM = "linux/amd64"
SILENT = "registry.answers"  # the only check whose failure says nothing about the content of the registry
SILENCE = unknown("the registry did not answer")
_NO_TAG, _DAMAGED = unknown("there is no such tag"), unknown("its manifest is damaged")
_NO_IMAGE = unknown("there is no image")


def served_whole(served: Served, missing: Problem) -> tuple[list[CheckResult], Problem | None]:
    """Return the checks of every tag, and the problem that stops later checks (None: they can run)."""
    found: list[CheckResult] = []
    stop: Problem | None = None
    for name, problem, then in (
        ("answers", served.answer_problem, SILENCE),
        ("exists", None if served.digest else missing, _NO_TAG),
        ("manifest", served.manifest_problem, _DAMAGED),
    ):
        found.append(check(name, stop or problem))
        stop = stop or (then if problem else None)
    found.append(when("blobs", stop, _lost, served))
    found.append(when("platform", unread(served, stop), _elsewhere, served))
    return found, stop


def unread(served: Served, stop: Problem | None) -> Problem | None:
    """Return the problem that stops checks of the image's config: ``stop``, or that it cannot be read."""
    problem = served.image.config_problem if served.image else None
    return stop or (unknown(f"its config cannot be read: {problem.reason}") if problem else None)


def when(name: str, stop: Problem | None, judged: Callable[[Image], Problem | None], served: Served) -> CheckResult:
    """Run a check of an image, unless an earlier problem stops it."""
    return check(name, stop or (judged(served.image) if served.image else _NO_IMAGE))


def check(name: str, problem: Problem | None) -> CheckResult:
    return CheckResult.of(f"registry.{name}", problem)


def _lost(image: Image) -> Problem | None:
    """Name the blobs that are missing or incomplete."""
    wrong = [
        f"{piece.digest} is not there"
        if piece.found is None
        else f"{piece.digest} has {piece.found} bytes, not {piece.size}"
        for piece in image.pieces
        if piece.found != piece.size
    ]
    if not wrong:
        return image.config_problem
    return Problem(reason=f"{len(wrong)} of {len(image.pieces)} blobs: " + "\n".join(wrong))


def _elsewhere(image: Image) -> Problem | None:
    if PLATFORM in image.platforms:
        return None
    return Problem(reason=f"it is for {', '.join(image.platforms) or 'no platform'}, not for {PLATFORM}")
