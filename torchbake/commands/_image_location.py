"""The options of commands that read any image, and the place of an image by its name on the command line."""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

from torchbake import REGISTRY_VARIABLE
from torchbake.build.plan import ref_of
from torchbake.commands import _options as opt
from torchbake.commands._registry_choice import configured_registry
from torchbake.commands._selection import repository_of
from torchbake.contents.model import Inventory
from torchbake.contents.read import ImageReader
from torchbake.core.json_text import read_object
from torchbake.engine.client import Engine, connect
from torchbake.errors import EngineError, RegistryError, SelectorError, UsageError
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.select import select
from torchbake.matrix.spec import AMD64, Spec
from torchbake.matrix.tags import engine_tags
from torchbake.oci.manifest import DIGEST
from torchbake.oci.reference import Reference, is_reference, names_host, parse_reference
from torchbake.store.layout import Layout
from torchbake.ui.command import Command

Place = Literal["engine", "registry"]
PLACE_GROUP = "where the image is"
PLACE_DEFAULT = (
    "default: an image of the matrix from the store, others from the engine if it has them, else from their registry"
)
_ARCHIVE = re.compile(r"\.(?:tar|tar\.\w+|tgz)$")  # a file without such a name needs a slash, as in ./image
IMAGE_HELP = (
    "an image of the matrix (cpu, an id, a tag), any reference (pytorch/pytorch:latest), a folder with an OCI image "
    "layout (FOLDER, FOLDER@DIGEST), or an archive of `docker save`"
)


@dataclass(frozen=True, kw_only=True)
class ReadsImages(opt.Common):
    """The options of a command that reads the content of images, wherever they are."""

    platform: str = opt.option(
        "of an image for several platforms (default: that of this machine)",
        group=PLACE_GROUP,
        metavar="OS/ARCHITECTURE",
    )
    plain_http: bool = opt.plain_http(group=PLACE_GROUP)

    def at(self, place: Place | None) -> "WithImageContents":
        """Return the options for an image of a place; None means the default."""
        common = {each.name: getattr(self, each.name) for each in fields(ReadsImages)}
        return WithImageContents(**common, place=place)


@dataclass(frozen=True, kw_only=True)
class WithImageContents(ReadsImages):
    """The options of a command that reads one image."""

    place: Place | None = opt.option(f"read the image from there ({PLACE_DEFAULT})", "--from", group=PLACE_GROUP)


@dataclass(frozen=True, kw_only=True)
class ImageLocation:
    """An image by its ``text`` on the command line: the place that has it, in words, and the function that reads it.

    The digest is computed without reading a layer. It is empty if the place names the image by none.
    """

    text: str
    place: str
    read: Callable[[ImageReader], Inventory]
    digest: Callable[[], str] = str


def find_image(args: WithImageContents, text: str) -> ImageLocation:
    """Find the place of an image. Raises TorchbakeError with the answer of each place if there is none."""
    if args.place is None and (location := _in_file(text)):
        return location
    missing = ""
    if not is_reference(text) and args.matrix.exists():
        project = load_project(args.matrix)
        try:
            return _in_matrix(args, text, project, _spec_of(project, text))
        except SelectorError as error:
            hint = (error.hint or "").rstrip(".")
            missing = f"{args.matrix.name} has no image {text}; {hint[:1].lower()}{hint[1:]}"
    return _by_reference(args, text, missing)


def _in_file(text: str) -> ImageLocation | None:
    """Return the image of a folder or an archive; None if there is no such file."""
    name, at, digest = text.rpartition("@")
    path = Path(name) if at and DIGEST.fullmatch(digest) else Path(text)
    digest = digest if path == Path(name) else ""
    if (path / "index.json").is_file():
        return ImageLocation(
            text=text,
            place=f"from the folder {path}",
            read=lambda reader: reader.layout(text, path, digest),
            digest=lambda: digest or _only_digest(path),
        )
    if path.is_file() and path == Path(text) and ("/" in text or _ARCHIVE.search(text)):
        return ImageLocation(
            text=text, place=f"from the archive {path}", read=lambda reader: reader.archive(text, path)
        )
    is_path = text.startswith(("/", "./", "../"))
    if not path.exists() and (is_path or (":" not in text and _ARCHIVE.search(text))):
        raise UsageError(
            f"There is no file {name if digest else text}.",
            hint="Name an archive of `docker save`, or correct the path.",
        )
    if is_path:
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


def _spec_of(project: Project, text: str) -> Spec:
    """Return the image that a selector or a tag means. Raises SelectorError for none, and UsageError for several."""
    specs = tuple(spec for spec in project.expansion.specs if text in engine_tags(spec, project.tags[spec.id]))
    specs = specs or select(project.expansion.specs, [text]).specs
    if len(specs) > 1:
        names = ", ".join(spec.id for spec in specs[:3]) + (", …" if len(specs) > 3 else "")
        raise UsageError(f"{text} means {len(specs)} images: {names}.", hint="Name one of them by its id.")
    return specs[0]


def _in_matrix(args: WithImageContents, text: str, project: Project, spec: Spec) -> ImageLocation:
    """Return the image of the matrix as the store, the engine or the registry of its releases has it."""
    reference = ref_of(spec, project.tags[spec.id])
    layout = Layout(folder=project.layout)
    if args.place is None and (digest := _stored_digest(layout, spec.id, reference)):

        def read(reader: ImageReader) -> Inventory:
            with layout.in_use():
                return reader.layout(text, layout.folder, digest)

        return ImageLocation(text=text, place=f"from the store, {spec.id}", read=read, digest=lambda: digest)
    location, missing = _from_engine(args, reference)
    if location is None:
        registry = configured_registry(args.matrix) if args.place != "engine" else ""
        if not registry:
            raise EngineError(_not_built(args, text, reference, missing), hint=f"Build it: {Command('build', text)}")
        released = f"{repository_of(registry, spec)}:{spec.own_tag}"
        location = _in_registry(args, parse_reference(released), released, missing)
        if spec.platform != AMD64:  # its name chooses one image of the index, whose digest names all
            location = _for_platform(location, args.platform or spec.platform)
    return replace(location, text=text, read=lambda reader: replace(location.read(reader), name=text))


def _for_platform(location: ImageLocation, platform: str) -> ImageLocation:
    return replace(location, digest=str, read=lambda reader: location.read(replace(reader, platform=platform)))


def _not_built(args: WithImageContents, text: str, reference: str, missing: str) -> str:
    if args.place == "registry":
        return f"{text} is in no registry: neither {args.matrix.name} nor {REGISTRY_VARIABLE} names one."
    if args.place == "engine":
        return f"{text} cannot be read as {reference}: {missing}."
    return f"{text} is not built: the store does not have it, and {missing}."


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


def _by_reference(args: WithImageContents, text: str, unknown: str) -> ImageLocation:
    """Return the image of a reference from the engine, else from its registry. ``unknown`` is the matrix's answer."""
    location, missing = _from_engine(args, text)
    if location:
        return location
    answers = "; and ".join(filter(None, (missing, unknown)))
    if args.place == "engine":
        raise EngineError(
            f"{text} cannot be read: {answers}.", hint=f"Pull it, or leave --from out: docker pull {text}"
        )
    return _in_registry(args, parse_reference(text), text, answers)


def _from_engine(args: WithImageContents, text: str) -> tuple[ImageLocation | None, str]:
    """Return the image as the engine has it, or the reason for which it has none, in words."""
    if args.place == "registry":
        return None, ""
    try:
        engine = connect()
        return _in_engine(engine, text), f"the engine at {engine.address.text} does not have it"
    except EngineError as error:
        return None, error.message.rstrip(".")


def _in_engine(engine: Engine, text: str) -> ImageLocation | None:
    image_id = engine.find([text])
    if image_id is None:
        return None
    return ImageLocation(
        text=text,
        place="from the engine",
        read=lambda reader: reader.engine(text, engine, image_id),
        digest=lambda: image_id,
    )


def _in_registry(args: WithImageContents, reference: Reference, text: str, missing: str) -> ImageLocation:
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
    return ImageLocation(
        text=text, place=f"from the registry {reference.repository.host}{local}", read=read, digest=digest
    )


@contextlib.contextmanager
def _other_answer(missing: str) -> Iterator[None]:
    """Add the answer of the engine to an error of the registry."""
    try:
        yield
    except RegistryError as error:
        if not missing:
            raise
        raise RegistryError(f"{error.message.rstrip('.')}; and {missing}.", hint=error.hint) from None
