"""The images of the matrix that share their tags, and differ by their platform alone, and all bases. Pure."""

from collections.abc import Iterable
from typing import TypeVar

from torchbake.matrix.spec import AMD64, ARM64, BaseSpec, ImageSpec, InitSpec, Spec, suffix_of

AnySpec = TypeVar("AnySpec", ImageSpec, InitSpec, Spec)


def bases_of(specs: Iterable[Spec]) -> list[BaseSpec]:
    """Return the bases of images, each once for a platform."""
    return list({spec.base.id: spec.base for spec in specs}.values())


def words_of_base(base: BaseSpec) -> str:
    """Return the words that select the images on a base: ``debian12``, or ``debian12 arm64`` for that platform."""
    return base.name if base.platform == AMD64 else f"{base.name} {base.architecture}"


def images_of_tag(spec: Spec, specs: Iterable[Spec]) -> tuple[Spec, ...]:
    """Return the images with the own tag of an image, ordered by platform. One index joins them."""
    key = _key(spec)
    return tuple(sorted((each for each in specs if _key(each) == key), key=lambda each: each.platform))


def one_of_each_tag(specs: Iterable[AnySpec]) -> tuple[AnySpec, ...]:
    """Return the first of the images that share an own tag: a tag of a registry is an index of all of them."""
    first: dict[tuple[str, str], AnySpec] = {}
    for spec in specs:
        first.setdefault(_key(spec), spec)
    return tuple(first.values())


def platform_tag(spec: Spec) -> str:
    """Return the name of the releases of one platform: the own tag and the architecture, ``1.0.0-arm64``."""
    return f"{spec.own_tag}{suffix_of(spec.platform) or '-amd64'}"


def release_name(spec: Spec, specs: Iterable[Spec]) -> str:
    """Return the beginning of an image's immutable tags: its own tag, or of several platforms that of its platform."""
    return platform_tag(spec) if len(images_of_tag(spec, specs)) > 1 else spec.own_tag


def id_of_tag(image_id: str) -> str:
    """Return an id without the end for its platform: the id of the images of all platforms."""
    return image_id.removesuffix(suffix_of(ARM64))


def shared_id(spec: Spec) -> str:
    """Return the id of the images of all platforms, which the image for amd64 has."""
    return spec.id.removesuffix(suffix_of(spec.platform))


def _key(spec: Spec) -> tuple[str, str]:
    return spec.repository, spec.own_tag
