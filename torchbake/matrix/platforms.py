"""The images of the matrix that share their tags, and differ by their platform alone, and all bases. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from torchbake.matrix.spec import AMD64, ARM64, BaseSpec, ImageSpec, InitSpec, Spec, suffix_of

AnySpec = TypeVar("AnySpec", ImageSpec, InitSpec, Spec)


def bases_of(specs: Iterable[Spec]) -> list[BaseSpec]:
    """Return the bases of images, each once for a platform."""
    return list({spec.base.id: spec.base for spec in specs}.values())


def words_of_base(base: BaseSpec) -> str:
    """Return the words that select the images on a base: ``debian12``, or ``debian12 arm64`` for that platform."""
    return base.name if base.platform == AMD64 else f"{base.name} {base.architecture}"


@dataclass(frozen=True, kw_only=True)
class PlatformGroups:
    """The images of a matrix, grouped by their own tag. An index joins the images of a group."""

    specs: tuple[Spec, ...]

    @cached_property
    def _groups(self) -> Mapping[tuple[str, str], tuple[Spec, ...]]:
        groups: dict[tuple[str, str], list[Spec]] = {}
        for spec in self.specs:
            groups.setdefault(tag_key(spec), []).append(spec)
        return {key: tuple(sorted(own, key=lambda spec: spec.platform)) for key, own in groups.items()}

    def of(self, spec: Spec) -> tuple[Spec, ...]:
        """Return the images with the own tag of an image, ordered by platform."""
        return self._groups.get(tag_key(spec), ())

    def release_name(self, spec: Spec) -> str:
        """Return the beginning of an image's immutable tags: its own tag, or the name of its platform's releases."""
        return platform_tag(spec) if len(self.of(spec)) > 1 else spec.own_tag


def one_of_each_tag(specs: Iterable[AnySpec]) -> tuple[AnySpec, ...]:
    """Return the first of the images that share an own tag: a tag of a registry is an index of all of them."""
    first: dict[tuple[str, str], AnySpec] = {}
    for spec in specs:
        first.setdefault(tag_key(spec), spec)
    return tuple(first.values())


def platform_tag(spec: Spec) -> str:
    """Return the name of the releases of one platform: the own tag and the architecture, ``1.0.0-arm64``."""
    return f"{spec.own_tag}{suffix_of(spec.platform) or '-amd64'}"


def id_of_tag(image_id: str) -> str:
    """Return an id without the end for its platform: the id of the images of all platforms."""
    return image_id.removesuffix(suffix_of(ARM64))


def shared_id(spec: Spec) -> str:
    """Return the id of the images of all platforms, which the image for amd64 has."""
    return spec.id.removesuffix(suffix_of(spec.platform))


def tag_key(spec: Spec) -> tuple[str, str]:
    """Return the same value for all images that differ by their platform alone."""
    return spec.repository, spec.own_tag
