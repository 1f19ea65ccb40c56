"""Whether a tag serves a whole image, judged in steps. Pure.

The registry answers, the tag is there, its manifest is what its digest says, all that it names is there, and it is for
our platform. Where a step fails, what needs it is not run.
"""

from collections.abc import Callable

from torchbake.checks.verdict import CheckResult, Outcome
from torchbake.validate.facts import Image, Served
from torchbake.validate.remedies import Unknown

PLATFORM = "linux/amd64"
SILENT = "registry.answers"  # the one check whose failure says nothing of what the registry holds
SILENCE = "the registry did not answer"


def served_whole(served: Served, missing: str) -> tuple[list[CheckResult], str]:
    """The checks that every tag has, and why those after them cannot run (empty: they can)."""
    found, stop = [], ""
    for name, problem, then in (
        ("answers", served.silence, SILENCE),
        ("exists", "" if served.digest else missing, "there is no such tag"),
        ("manifest", served.damage, "its manifest is damaged"),
    ):
        found.append(check(name, problem, stop))
        stop = stop or (then if problem else "")
    found.append(when("blobs", stop, _lost, served))
    found.append(when("platform", unread(served, stop), _elsewhere, served))
    return found, stop


def unread(served: Served, stop: str) -> str:
    """Why what needs the image's config cannot run: ``stop``, or that the config cannot be read."""
    return stop or (f"its config cannot be read: {served.image.unread}" if served.image and served.image.unread else "")


def when(name: str, stop: str, problem: Callable[[Image], str], served: Served) -> CheckResult:
    """A check of an image, unless something before it stops it."""
    if stop or served.image is None:
        return check(name, "", stop or "there is no image")
    image = served.image
    return told(name, "", lambda: problem(image))


def told(name: str, stop: str, problem: Callable[[], str]) -> CheckResult:
    """A check of whose problem only is asked where nothing stops it."""
    found = "" if stop else problem()
    return check(name, "", stop or found) if stop or isinstance(found, Unknown) else check(name, found)


def check(name: str, problem: str, stop: str = "") -> CheckResult:
    """``stop`` is why it did not run, ``problem`` what is wrong; without either it passed."""
    outcome = Outcome.NOT_RUN if stop else Outcome.FAILED if problem else Outcome.PASSED
    return CheckResult(id=f"registry.{name}", outcome=outcome, reason=stop or problem)


def _lost(image: Image) -> str:
    """Which blobs are not there, or not whole."""
    wrong = [
        f"{piece.digest} is not there"
        if piece.found is None
        else f"{piece.digest} has {piece.found} bytes, not {piece.size}"
        for piece in image.pieces
        if piece.found != piece.size
    ]
    if not wrong:
        return image.unread
    return f"{len(wrong)} of {len(image.pieces)} blobs: {wrong[0]}" + "".join(f"\n{one}" for one in wrong[1:])


def _elsewhere(image: Image) -> str:
    there = ", ".join(image.platforms) or "no platform"
    return "" if PLATFORM in image.platforms else f"it is for {there}, not for {PLATFORM}"
