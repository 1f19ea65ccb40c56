"""Decide which releases of torch deserve a row in the matrix, and why the others do not. Pure.

A release is proposed if its minor version is newer than all of the matrix, or if it is for a newer CUDA. A newer patch
release of a minor version in the matrix is proposed too. The CPU and CUDA are judged apart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packaging.version import Version

from torchbake.matrix.accelerator import Accelerator
from torchbake.matrix.spec import ImageSpec, Spec, pytorch_of

_TOO_OLD = "older than the oldest of the matrix, "


@dataclass(frozen=True, kw_only=True)
class TorchRelease:
    """A release of torch in the package indexes.

    ``version`` is without a local version. ``accelerator`` is None until the CUDA of its dependencies is known. The
    ``pythons`` are those of the matrix for which it has a wheel. A ``problem`` is a reason against every proposal.
    """

    version: Version
    accelerator: Accelerator | None = None
    pythons: tuple[str, ...] = ()
    problem: str = ""

    @property
    def kind(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.accelerator.kind if self.accelerator else "cuda"

    @property
    def minor(self) -> tuple[int, ...]:
        return self.version.release[:2]


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A release for the matrix: in place of the version ``replaces``, or in a new row if that is empty."""

    release: TorchRelease
    replaces: str = ""
    reason: str


def judged_alone(spec: Spec) -> bool:
    """Return whether the matrix, and no project's lock, decides the torch of an image."""
    return isinstance(spec, ImageSpec) and spec.project is None


def proposal_of(release: TorchRelease, specs: Iterable[Spec], releases: Sequence[TorchRelease]) -> Proposal | str:
    """Return the proposal for a release, or the reason why there is none.

    ``releases`` are all releases in the indexes. If the release's CUDA is not known yet, a proposal is not final.
    """
    own = [spec for spec in pytorch_of(specs) if judged_alone(spec) and spec.family == release.kind]
    if not own:
        return f"the matrix has no row for {'the CPU' if release.kind == 'cpu' else 'CUDA'} that could be followed"
    if reason := _unfit(release, own):
        return reason
    if release.version in {spec.version for spec in own}:
        return _another_cuda(release, own)
    return _another_version(release, own, releases)


def _unfit(release: TorchRelease, own: Sequence[ImageSpec]) -> str:
    """Return why no image could have the release, whatever the matrix has; "" if one could."""
    if release.version < (oldest := min(spec.version for spec in own)):
        return f"{_TOO_OLD}{oldest}"
    if release.problem:
        return release.problem
    if release.version.is_prerelease:
        return "a pre-release"
    pythons = sorted({spec.base.python for spec in own}, key=Version)
    fits = {*pythons} & {*release.pythons}
    return "" if fits else f"no wheel for Python {' or '.join(pythons)} on this platform"


def is_too_old(reason: str) -> bool:
    """Return whether a reason is that the release is older than all of the matrix."""
    return reason.startswith(_TOO_OLD)


def _another_cuda(release: TorchRelease, own: Sequence[ImageSpec]) -> Proposal | str:
    accelerators = {spec.accelerator for spec in own if spec.version == release.version}
    if release.accelerator is None or release.accelerator in accelerators:
        return "in the matrix"
    newest = max(spec.accelerator for spec in own)
    if release.accelerator < newest:
        return f"in the matrix for another CUDA, and the matrix has a newer CUDA, {newest}"
    return Proposal(release=release, reason=f"a newer CUDA for torch {release.version}")


def _another_version(
    release: TorchRelease, own: Sequence[ImageSpec], releases: Sequence[TorchRelease]
) -> Proposal | str:
    same = [spec for spec in own if spec.version.release[:2] == release.minor]
    newest = max(spec.version for spec in same or own)
    if release.version < newest:
        return f"older than {newest} of the matrix" + ("" if same else "; if you need it, add a row by hand")
    patches = (each for each in releases if (each.kind, each.minor) == (release.kind, release.minor))
    latest = max((each.version for each in patches if not _unfit(each, own)), default=release.version)
    if release.version < latest:
        return f"{latest} is newer"
    accelerators = {spec.accelerator for spec in same or own}
    if same and release.accelerator and release.accelerator not in accelerators:
        others = " and ".join(map(str, sorted(accelerators)))
        return f"its wheels are for {release.accelerator}, and the row is for {others}; change the row by hand"
    if release.accelerator and release.accelerator < max(accelerators):
        return f"for {release.accelerator}, which is older than {max(accelerators)} of the matrix"
    if same:
        return Proposal(release=release, replaces=str(newest), reason=f"a newer patch release than {newest}")
    return Proposal(release=release, reason=f"a newer minor version than {newest}")
