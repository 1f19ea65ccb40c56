"""Put a layer of code on an image in a registry: what the registry lacks is sent, and the tag is written last.

A run that ends early leaves nothing but blobs that no manifest names. The next run finishes the work.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import TypeAlias

from torchbake.code.base import CodeBase, find_base
from torchbake.code.image import code_alone, compression_for, labels_of, with_layer
from torchbake.code.layer import CodeLayer, LayerCompression, place_of
from torchbake.core.digest import short_digest
from torchbake.core.parallel import side_by_side
from torchbake.core.sizes import human
from torchbake.errors import RegistryError, UsageError
from torchbake.oci.manifest import Blob, Manifest
from torchbake.oci.reference import Reference
from torchbake.oci.tag_names import CodeTag
from torchbake.registry.client import Registry
from torchbake.registry.transport import StatusError

_AT_ONCE = 4  # parallel requests
_COPIES = 2  # parallel copies of layers; each layer is a temporary file

Tell: TypeAlias = Callable[[str], None]
MakeLayer: TypeAlias = Callable[[LayerCompression], CodeLayer]


@dataclass(frozen=True, kw_only=True)
class PushedCode:
    """An image with code: its reference with tag and digest, that of the image below, and the layer.

    ``alone`` is the reference of the image with the code alone, if the target wants it. ``sent_bytes`` are the bytes
    of blobs that the registry lacked.
    """

    reference: Reference
    base: Reference
    layer: CodeLayer
    sent_bytes: int
    seconds: float
    alone: Reference | None = None


@dataclass(frozen=True, kw_only=True)
class CodeTarget:
    """The destination of an image with code.

    With ``alone`` an image with the layer and no other is pushed too, for launchers that mount the code. With ``copy``
    layers that the registry cannot mount are downloaded and sent. On a ``dry_run`` nothing is sent. Hints name the
    option for another repository by ``to_option``, and by ``copying`` how to copy the layers there.
    """

    registry: Registry
    copy: bool = False
    alone: bool = False
    dry_run: bool = False
    to_option: str = "--to"
    copying: str = "--to REPOSITORY --copy"


def push_code(
    registry: Registry, reference: Reference, make: MakeLayer, *, at: str, work: Path, today: date,
    to: CodeTarget | None = None, platform: str = "", tell: Tell = lambda _: None,
) -> PushedCode:  # fmt: skip
    """Put the layer that ``make`` writes on an image of ``registry``, and push the result to ``to``.

    By default it goes to the image's own repository. ``at`` is the folder of the code in the image, ``today`` the day
    of the tag. Temporary files go into ``work``. ``platform``, as in ``linux/arm64``, chooses an image of an index.
    Raises RegistryError, UsageError and OSError.
    """
    start, to = time.monotonic(), to or CodeTarget(registry=registry)
    labelled_at = f"/{place_of(at)}"
    _check_host(registry, to)
    base = find_base(registry, reference, platform)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(make, compression_for(base.manifest))
        config = registry.config(base.manifest)
        layer = future.result()
    tell(f"{layer.files} files, {human(layer.size)}, as a layer of {human(layer.layer.blob.size)}")
    manifest, data = with_layer(base.manifest, config, layer.layer, labels=labels_of(base.reference, labelled_at))
    if to.registry.repository != registry.repository and not to.dry_run:
        _take_over(registry, to, base, work, tell)
    alone = [code_alone(config, layer.layer, labelled_at)] if to.alone else []
    with _refusals_of(to):
        references, sent_bytes = _send_images(to, [*alone, (manifest, data)], layer, work, today)
    return PushedCode(
        reference=references[-1], base=base.reference, layer=layer, sent_bytes=sent_bytes,
        seconds=time.monotonic() - start, alone=references[0] if alone else None,
    )  # fmt: skip


def _check_host(registry: Registry, to: CodeTarget) -> None:
    if to.registry.repository.host != registry.repository.host and not to.copy:
        raise UsageError(
            f"{to.registry.repository} is in another registry than the image, which cannot mount its layers.",
            hint=f"Name a repository of the same registry; or copy all layers of the image: {to.copying}",
        )


def _send_images(
    to: CodeTarget, images: Sequence[tuple[Manifest, bytes]], layer: CodeLayer, work: Path, today: date
) -> tuple[list[Reference], int]:
    """Send the configs and the layer of images, then their tags. Return the references, and the bytes of the blobs."""
    files, references = [(images[-1][0].layers[-1], layer.path)], list[Reference]()
    for manifest, config in images:
        path = work / f"{short_digest(manifest.config.digest)}.json"
        path.write_bytes(config)
        files.append((manifest.config, path))
    sent_bytes = _send(to, files)
    for manifest, _ in images:
        tag = str(CodeTag(day=today, digits=short_digest(manifest.digest)))
        references.append(Reference(repository=to.registry.repository, tag=tag, digest=manifest.digest))
        if not to.dry_run:
            to.registry.put(manifest, tag)
    return references, sent_bytes


def _send(to: CodeTarget, files: Sequence[tuple[Blob, Path]]) -> int:
    """Send the files that the registry lacks, and return their bytes."""

    def send(file: tuple[Blob, Path]) -> int:
        blob, path = file
        if to.registry.has(blob):
            return 0
        if not to.dry_run:
            to.registry.upload(blob, path)
        return blob.size

    return sum(side_by_side(send, files, most=_AT_ONCE))


def _take_over(registry: Registry, to: CodeTarget, base: CodeBase, work: Path, tell: Tell) -> None:
    """Mount the layers of the image into another repository, or copy them. Raises RegistryError if neither is done."""
    blobs = base.manifest.layers
    same_host = registry.repository.host == to.registry.repository.host
    mount = partial(_is_there, to, registry.repository.path if same_host else "")
    missing = [blob for blob, there in zip(blobs, side_by_side(mount, blobs, most=_AT_ONCE), strict=True) if not there]
    missing = list(dict.fromkeys(missing))
    size = human(sum(blob.size for blob in missing))
    if missing and not to.copy:
        raise RegistryError(
            f"{to.registry.repository} did not mount {len(missing)} of {len(blobs)} layers of {registry.repository}.",
            hint=f"Push to {registry.repository} itself, without {to.to_option}; "
            f"or send these {size} once: {to.copying}",
        )
    if missing:
        tell(f"copying {len(missing)} layers, {size}, to {to.registry.repository}")
        side_by_side(partial(_copy, registry, to, work), missing, most=_COPIES)


def _is_there(to: CodeTarget, source: str, blob: Blob) -> bool:
    with _refusals_of(to):
        return to.registry.has(blob) or bool(source and to.registry.mount(blob, source))


def _copy(source: Registry, to: CodeTarget, work: Path, blob: Blob) -> None:
    path = work / blob.digest.removeprefix("sha256:")
    try:
        source.download(blob, path)
        with _refusals_of(to):
            to.registry.upload(blob, path)
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _refusals_of(to: CodeTarget) -> Iterator[None]:
    """Turn a refusal of the registry into an error that says what to do about it."""
    try:
        yield
    except StatusError as error:
        repository = to.registry.repository
        elsewhere = f"push elsewhere: {to.to_option} REPOSITORY"
        reason, hint = f"{repository} refuses the push: {error.message}", error.hint
        if error.status in (401, 403):
            reason = f"{repository} takes no push from this login: {error.message}"
            hint = f"Log in as somebody who may push (docker login {repository.host}), or {elsewhere}"
        elif error.status == 405 or "UNSUPPORTED" in error.codes:
            reason = f"{repository} is read-only: {error.message}"
            hint = f"Push to a registry that takes images: {to.copying}"
        elif error.status == 404:
            hint = f"Create {repository} in its registry first, or {elsewhere}"
        raise RegistryError(reason, hint=hint) from None
