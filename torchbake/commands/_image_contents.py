"""The options of commands that read any image, and the inventory of an image by its name on the command line."""

import contextlib
import platform
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from torchbake.build.plan import ref_of
from torchbake.commands import _options as opt
from torchbake.contents.layer_cache import LayerCache
from torchbake.contents.model import Inventory
from torchbake.contents.progress import ReadProgress
from torchbake.contents.read import ImageReader
from torchbake.contents.scan import LayerScanner, ReadGpuCode
from torchbake.core.json_text import read_object
from torchbake.core.paths import CONTENTS, cache_folder
from torchbake.core.signals import interruptible
from torchbake.core.sizes import human
from torchbake.engine.client import Engine, connect
from torchbake.errors import EngineError, RegistryError, SelectorError, TorchbakeError, UsageError
from torchbake.matrix.project import load_project
from torchbake.matrix.select import select
from torchbake.oci.manifest import DIGEST
from torchbake.oci.platforms import fits
from torchbake.oci.reference import Reference, names_host, parse_reference
from torchbake.store.layout import Layout
from torchbake.ui.progress_board import board

_GROUP = "where the image is"
_ARCHIVE = re.compile(r"\.(?:tar|tar\.\w+|tgz)$")  # a file without such a name needs a slash, as in ./image
_CPUS = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm/v7"}  # Go's names of architectures; others are alike
IMAGE_HELP = (
    "an image of the matrix (cpu, an id, a tag), any reference (pytorch/pytorch:latest), a folder with an OCI image "
    "layout (FOLDER, FOLDER@DIGEST), or an archive of `docker save`"
)


@dataclass(frozen=True, kw_only=True)
class WithImageContents(opt.Common):
    """The options of a command that reads what images hold."""

    place: Literal["engine", "registry"] | None = opt.option(
        "read images from there (default: those of the matrix from the store, others from the engine if it has them, "
        "else from their registry)", "--from", group=_GROUP,
    )  # fmt: skip
    platform: str = opt.option(
        "of an image for several platforms (default: that of this machine)", group=_GROUP, metavar="OS/ARCHITECTURE"
    )
    plain_http: bool = opt.plain_http(group=_GROUP)


@dataclass(frozen=True, kw_only=True)
class _ImageLocation:
    """A place that has an image, as text, the function that reads it, and the digest by which the place names it.

    The digest is computed without reading a layer. It is empty if the place names none.
    """

    place: str
    read: Callable[[ImageReader], Inventory]
    digest: Callable[[], str] = str


def inventory_of(args: WithImageContents, text: str, gpu_code: ReadGpuCode | None = None) -> Inventory:
    """Read the contents of an image. ``gpu_code`` reads the GPU code of an ELF file; without it no file has any.

    Raises TorchbakeError if no place has the image, or if the image cannot be read.
    """
    location, start = _find(args, text), time.monotonic()
    layers = LayerCache(folder=cache_folder() / CONTENTS, scanner=LayerScanner(gpu_code=gpu_code))
    with interruptible(), board(1, doing="reading") as progress:
        progress.start(text, location.place)
        count = ReadProgress(lambda state: progress.look(text, state))
        reader = ImageReader(platform=args.platform or host_platform(), cache=layers, progress=count)
        try:
            inventory = location.read(reader)
            _check_platform(args, inventory)
        except TorchbakeError as error:
            progress.end(text, error.message, good=False)
            raise
        size = f"{len(inventory.layers)} layers, {len(inventory.files)} files, {human(inventory.size)}"
        progress.end(text, f"{size}, {location.place}, in {time.monotonic() - start:.1f} s", good=True)
    return inventory


def digest_of(args: WithImageContents, text: str) -> str:
    """Return the digest by which the place of an image names it, without reading a layer; empty if it names none.

    Images with one digest are one image; one image can have several digests in several places. Raises TorchbakeError
    if no place answers.
    """
    return _find(args, text).digest()


def host_platform() -> str:
    """Return the platform of this machine, whose containers run Linux."""
    machine = platform.machine()
    return f"linux/{_CPUS.get(machine, machine)}"


def _check_platform(args: WithImageContents, inventory: Inventory) -> None:
    if args.platform and not fits(inventory.platform, args.platform):
        raise UsageError(
            f"{inventory.name} is for {inventory.platform} alone, not for {args.platform}.",
            hint="Leave --platform out.",
        )


def _find(args: WithImageContents, text: str) -> _ImageLocation:
    """Find the place of an image. Raises TorchbakeError with the answer of each place if there is none."""
    if args.place is None and (location := _in_file(text)):
        return location
    if not any(mark in text for mark in "/:@") and (location := _in_matrix(args, text)):
        return location
    return _by_reference(args, text)


def _in_file(text: str) -> _ImageLocation | None:
    """Return the image of a folder or an archive; None if there is no such file."""
    name, at, digest = text.rpartition("@")
    path = Path(name) if at and DIGEST.fullmatch(digest) else Path(text)
    digest = digest if path == Path(name) else ""
    if (path / "index.json").is_file():
        return _ImageLocation(
            place=f"from the folder {path}",
            read=lambda reader: reader.layout(text, path, digest),
            digest=lambda: digest or _only_digest(path),
        )
    if path.is_file() and path == Path(text) and ("/" in text or _ARCHIVE.search(text)):
        return _ImageLocation(place=f"from the archive {path}", read=lambda reader: reader.archive(text, path))
    if path.exists() and text.startswith(("/", "./", "../")):
        raise UsageError(
            f"{text} is neither an archive nor a folder with an OCI image layout.",
            hint="Name a folder with an index.json, or a file of `docker save`.",
        )
    return None


def _only_digest(folder: Path) -> str:
    """Return the digest of the only image that the index of a layout names; empty if there is none, or several."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        (entry,) = read_object((folder / "index.json").read_bytes())["manifests"]
        return str(entry["digest"])
    return ""


def _in_matrix(args: WithImageContents, text: str) -> _ImageLocation | None:
    """Return the image of the matrix that a selector or a tag means, as the store or the engine has it.

    None if there is no matrix, or nothing in it has this name.
    """
    if not args.matrix.exists():
        return None
    project = load_project(args.matrix)
    specs = tuple(spec for spec in project.expansion.specs if text in project.tags[spec.id])
    with contextlib.suppress(SelectorError):
        specs = specs or select(project.expansion.specs, [text]).specs
    if not specs:
        return None
    if len(specs) > 1:
        names = ", ".join(spec.id for spec in specs[:3]) + (", …" if len(specs) > 3 else "")
        raise UsageError(f"{text} means {len(specs)} images: {names}.", hint="Name one of them by its id.")
    reference = ref_of(specs[0], project.tags[specs[0].id])
    if args.place is None:
        layout = Layout(folder=project.layout)
        if digest := _stored_digest(layout, specs[0].id, reference):

            def read(reader: ImageReader) -> Inventory:
                with layout.in_use():
                    return reader.layout(text, layout.folder, digest)

            return _ImageLocation(place=f"from the store, {specs[0].id}", read=read, digest=lambda: digest)
    location = _by_reference(args, reference)
    return replace(location, read=lambda reader: replace(location.read(reader), name=text))


def _stored_digest(layout: Layout, name: str, reference: str) -> str | None:
    """Return the stored image of an id that the engine's tag names, or the only one if the engine has no such tag."""
    images = [entry.key for entry in layout.entries() if entry.name == name and layout.find(entry.key)]
    if not images:
        return None
    image_id = None
    with contextlib.suppress(EngineError):
        image_id = connect().find([reference])
    manifest = layout.find(image_id) if image_id else None
    if manifest:
        return manifest.digest
    return images[0] if len(images) == 1 and image_id is None else None


def _by_reference(args: WithImageContents, text: str) -> _ImageLocation:
    """Return the image of a reference, from the engine if it has the image, else from the registry."""
    missing = ""
    if args.place != "registry":
        try:
            engine = connect()
            if location := _in_engine(engine, text):
                return location
            missing = f"the engine at {engine.address.text} does not have it"
        except EngineError as error:
            missing = error.message.rstrip(".")
        if args.place == "engine":
            raise EngineError(
                f"{text} cannot be read: {missing}.", hint=f"Pull it, or leave --from out: docker pull {text}"
            )
    return _in_registry(args, parse_reference(text), text, missing)


def _in_engine(engine: Engine, text: str) -> _ImageLocation | None:
    image_id = engine.find([text])
    if image_id is None:
        return None
    return _ImageLocation(
        place="from the engine", read=lambda reader: reader.engine(text, engine, image_id), digest=lambda: image_id
    )


def _in_registry(args: WithImageContents, reference: Reference, text: str, missing: str) -> _ImageLocation:
    # Imported here, as the client of registries takes long to load.
    from torchbake.commands._registries import registry_of  # noqa: PLC0415

    registry = registry_of(reference.repository, plain_http=args.plain_http)

    def read(reader: ImageReader) -> Inventory:
        with _other_answer(missing):
            return reader.registry(text, registry, reference.key)

    def digest() -> str:
        with _other_answer(missing):
            manifest = registry.manifest(reference.key)
        return manifest.digest if manifest else ""

    local = "" if names_host(text) else " (Docker Hub)"
    return _ImageLocation(place=f"from the registry {reference.repository.host}{local}", read=read, digest=digest)


@contextlib.contextmanager
def _other_answer(missing: str) -> Iterator[None]:
    """Add the answer of the engine to an error of the registry."""
    try:
        yield
    except RegistryError as error:
        if not missing:
            raise
        raise RegistryError(f"{error.message.rstrip('.')}; and {missing}.", hint=error.hint) from None
