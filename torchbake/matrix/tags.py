"""The tags of images, as a pure function of the whole matrix.

A form such as ``{minor}-{accelerator}`` is a tag with parts. Images have the default value of each part that the form
leaves out, so ``2.10-cuda12.8`` never names a devel image. The image with the highest version gets the tag, so an older
patch release never moves a shorter tag.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from string import Formatter
from typing import Any

from torchbake.matrix.accelerator import Accelerator
from torchbake.matrix.model import TagDefaults, Tags
from torchbake.matrix.platforms import tag_key
from torchbake.matrix.problems import problems
from torchbake.matrix.spec import ImageSpec, InitSpec, Spec, pytorch_of, suffix_of
from torchbake.matrix.yaml_source import Document, Location
from torchbake.oci.tag_names import reserved_reason

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
_LITERAL = re.compile(r"[A-Za-z0-9._-]*")  # the characters of an OCI tag
_ACCELERATOR_PARTS = {"accelerator", "cuda", "family"}


def tags_of(specs: Sequence[Spec], rules: Tags, document: Document) -> dict[str, tuple[str, ...]]:
    """Return every image's tags by id, most specific first: its own tag, then its rolling tags.

    Images that differ by their platform alone have the same tags: in a registry each tag is an index of them.
    Raises MatrixError, with each form's line, for malformed forms and for two images that claim one tag.
    """
    families = {tag_key(spec): spec for spec in reversed(specs)}
    tags = _tags_of_families([*reversed(families.values())], rules, document)
    return {spec.id: tags[families[tag_key(spec)].id] for spec in specs}


def engine_tags(spec: Spec, tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags of an image in an engine, which has one image for a tag: ``cpu-arm64`` for that platform."""
    return tuple(tag + suffix_of(spec.platform) for tag in tags)


def _tags_of_families(specs: Sequence[Spec], rules: Tags, document: Document) -> dict[str, tuple[str, ...]]:
    tags: dict[str, list[str]] = {spec.id: [spec.own_tag] for spec in specs}
    images = pytorch_of(specs)
    used_names = {tag_key(spec): spec.id for spec in specs}
    wrong: list[tuple[Location, str]] = []
    for number, form in enumerate(rules.rolling):
        try:
            holders = _holders(form, images, rules.defaults)
        except ValueError as error:
            wrong.append((("tags", "rolling", number), str(error)))
            continue
        for tag, holder in holders.items():
            first = used_names.setdefault((holder.repository, tag), holder.id)
            if first != holder.id:
                wrong.append((("tags", "rolling", number), _claimed_twice(form, tag, first, holder.id)))
            elif tag not in tags[holder.id]:
                tags[holder.id].append(tag)
    if wrong:
        raise problems(document, wrong)
    for spec in specs:
        if isinstance(spec, InitSpec) and not spec.version.is_prerelease:
            release = spec.version.release
            tags[spec.id] += [".".join(map(str, release[:length])) for length in range(len(release) - 1, 0, -1)]
            tags[spec.id].append("latest")
    return {name: tuple(matches) for name, matches in tags.items()}


def parts_of(form: str) -> frozenset[str]:
    """Return the parts of a form. Raises ValueError for an unknown part, and for characters that no tag can have."""
    try:
        pieces = list(Formatter().parse(form))
    except ValueError as error:
        raise ValueError(f"{form!r}: {error}; write parts as {{torch}}") from None
    names = frozenset(name for _, name, _, _ in pieces if name is not None)
    unknown = names - PARTS.keys()
    if unknown:
        raise ValueError(f"{form!r}: unknown part {sorted(unknown)[0]!r}; the parts are {', '.join(PARTS)}")
    plain = all(_LITERAL.fullmatch(text) and not spec and not conversion for text, _, spec, conversion in pieces)
    if not plain or not form or form[0] in ".-":
        raise ValueError(f"{form!r}: a tag holds letters, digits, '_', '.' and '-', and does not start with '.' or '-'")
    return names


def _holders(form: str, images: Iterable[ImageSpec], defaults: TagDefaults) -> dict[str, ImageSpec]:
    names = parts_of(form)
    holders: dict[str, ImageSpec] = {}
    for spec in images:
        if spec.version.is_prerelease or not _fits(spec, names, defaults):
            continue
        tag = form.format(**{part: PARTS[part](spec) for part in names})
        reason = reserved_reason(tag)
        if reason:
            raise ValueError(f"{form!r}: the tag {tag!r} {reason}")
        holder = holders.get(tag)
        if holder and _rank(holder) == _rank(spec):
            raise ValueError(_claimed_twice(form, tag, holder.id, spec.id))
        if holder is None or _rank(holder) < _rank(spec):
            holders[tag] = spec
    return holders


def _claimed_twice(form: str, tag: str, first: str, second: str) -> str:
    return f"{form!r}: two images claim the tag {tag!r}: {first} and {second}; name the part that tells them apart"


def _fits(spec: ImageSpec, facets: frozenset[str], defaults: TagDefaults) -> bool:
    return (
        ("base" in facets or spec.base.name == defaults.base)
        and ("flavor" in facets or spec.flavor == defaults.flavor)
        and (bool(facets & _ACCELERATOR_PARTS) or defaults.accelerator in spec.accelerator.names)
    )


def _rank(spec: ImageSpec) -> tuple[Any, Accelerator, int]:
    return spec.version, spec.accelerator, int(spec.cudnn or 0)
