"""A release of several platforms: the names of its parts, and the labels of the index that joins them. Pure.

The image of a platform is released under ``<own tag>-<architecture>-r<N>`` and under no rolling tag. The release of
all platforms is an index of their images, under ``<own tag>-r<N>`` and the rolling tags.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from torchbake.matrix.platforms import id_of_tag
from torchbake.oci.labels import ID, INPUTS


@dataclass(frozen=True, kw_only=True)
class PlatformPart:
    """One platform of an image. The image has the ``id``, and its releases are ``<name>-r<N>``.

    The function ``why_old`` returns the reason why an image with these labels is not of today's files, or "".
    """

    platform: str
    id: str
    name: str
    why_old: Callable[[Mapping[str, str]], str] = lambda labels: ""


@dataclass(frozen=True, kw_only=True)
class PlatformSet:
    """All platforms of an image. The index has the ``id``, and ``tags``: the own tag, then the other rolling tags.

    The ``repository`` is the name of the image in its documents.
    """

    id: str
    repository: str
    tags: tuple[str, ...]
    parts: tuple[PlatformPart, ...]


def joined_labels(labels: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the labels of an index by the labels of its images, a mapping by platform: those of the first image.

    The id is that of all platforms. The inputs digest depends on the inputs of each platform. The labels of one image
    stay as they are. Raises ValueError if the images have different ids.
    """
    first, *others = labels.values()
    if not others:
        return dict(first)
    ids = {id_of_tag(each.get(ID, "")) for each in labels.values()}
    if len(ids) > 1 or "" in ids:
        raise ValueError("the index joins different images")
    inputs = {platform: each.get(INPUTS, "") for platform, each in labels.items()}
    return {**first, ID: ids.pop(), INPUTS: joined_inputs(inputs)}


def joined_inputs(inputs: Mapping[str, str]) -> str:
    """Return the inputs digest of an index by the digests of its images, a mapping by platform; "" if one is empty."""
    if not all(inputs.values()):
        return ""
    text = "".join(f"{platform} {digest}\n" for platform, digest in sorted(inputs.items()))
    return f"sha256:{sha256(text.encode()).hexdigest()}"
