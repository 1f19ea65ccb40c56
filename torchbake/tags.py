"""The tags an image carries, as one pure function over the whole matrix.

A form such as ``{minor}-{accelerator}`` is a tag with parts. A part that a form leaves out must have its
default value, so ``2.10-cuda12.8`` never names a devel image. Of all images that a tag could name, the
highest version holds it: an old patch release never moves a shorter tag.
"""

from collections.abc import Callable, Iterable, Sequence
from string import Formatter
from typing import Any

from torchbake.accelerator import Accelerator
from torchbake.errors import MatrixError
from torchbake.matrix import TagDefaults, Tags
from torchbake.spec import ImageSpec, InitSpec, Spec

PARTS: dict[str, Callable[[ImageSpec], str]] = {
    "torch": lambda spec: spec.torch,
    "minor": lambda spec: ".".join(map(str, spec.version.release[:2])),
    "accelerator": lambda spec: "-".join(
        filter(None, (str(spec.accelerator), f"cudnn{spec.cudnn}" if spec.cudnn else ""))
    ),
    "cuda": lambda spec: str(spec.accelerator),
    "family": lambda spec: spec.accelerator.family,
    "flavor": lambda spec: spec.flavor,
    "base": lambda spec: spec.base.name,
}
_ACCELERATOR_PARTS = {"accelerator", "cuda", "family"}


def tags_of(specs: Sequence[Spec], rules: Tags) -> dict[str, tuple[str, ...]]:
    """Every image's rolling tags by id, most specific first; the id itself is always the first.

    Raises MatrixError for an unknown part of a form and for two images that claim one tag.
    """
    tags: dict[str, list[str]] = {spec.id: [_own_tag(spec)] for spec in specs}
    images = [spec for spec in specs if isinstance(spec, ImageSpec)]
    taken = {(spec.repository, _own_tag(spec)) for spec in specs}
    for form in rules.rolling:
        for tag, holder in _holders(form, images, rules.defaults).items():
            if (holder.repository, tag) not in taken:
                taken.add((holder.repository, tag))
                tags[holder.id].append(tag)
    for spec in specs:
        if isinstance(spec, InitSpec):
            tags[spec.id] += _init_tags(spec)
    return {name: tuple(found) for name, found in tags.items()}


def parts_of(form: str) -> frozenset[str]:
    """The parts that a form names. Raises MatrixError for one that does not exist."""
    try:
        named = frozenset(name for _, name, _, _ in Formatter().parse(form) if name is not None)
    except ValueError as error:
        raise MatrixError(f"tags.rolling: {form!r}: {error}.", hint="Write parts as {torch}.") from None
    unknown = named - PARTS.keys()
    if unknown:
        raise MatrixError(
            f"tags.rolling: {form!r}: unknown part {sorted(unknown)[0]!r}.",
            hint=f"The parts are: {', '.join(PARTS)}.",
        )
    return named


def _own_tag(spec: Spec) -> str:
    return spec.release if isinstance(spec, InitSpec) else spec.id


def _init_tags(spec: InitSpec) -> list[str]:
    release = spec.version.release
    if spec.version.is_prerelease:
        return []
    shorter = [".".join(map(str, release[:length])) for length in range(len(release) - 1, 0, -1)]
    return [*shorter, "latest"]


def _holders(form: str, images: Iterable[ImageSpec], defaults: TagDefaults) -> dict[str, ImageSpec]:
    named = parts_of(form)
    holders: dict[str, ImageSpec] = {}
    for spec in images:
        if spec.version.is_prerelease or not _fits(spec, named, defaults):
            continue
        tag = form.format(**{part: PARTS[part](spec) for part in named})
        holder = holders.get(tag)
        if holder and _rank(holder) == _rank(spec):
            raise MatrixError(
                f"Two images claim the tag {tag!r}: {holder.id} and {spec.id}.",
                hint=f"Name the part that tells them apart in the form {form!r} of tags.rolling.",
            )
        if holder is None or _rank(holder) < _rank(spec):
            holders[tag] = spec
    return holders


def _fits(spec: ImageSpec, named: frozenset[str], defaults: TagDefaults) -> bool:
    return (
        ("base" in named or spec.base.name == defaults.base)
        and ("flavor" in named or spec.flavor == defaults.flavor)
        and (bool(named & _ACCELERATOR_PARTS) or defaults.accelerator in spec.accelerator.names)
    )


def _rank(spec: ImageSpec) -> tuple[Any, Accelerator, int]:
    return spec.version, spec.accelerator, int(spec.cudnn or 0)
