"""`sbom`: write an SBOM of each built image, and list licenses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchbake.build.plan import ref_of, refs_of
from torchbake.checks.reports import file_name
from torchbake.commands import _options as opt
from torchbake.commands._selection import load_selection
from torchbake.core.files import write_text
from torchbake.core.signals import interruptible
from torchbake.engine.client import connect
from torchbake.engine.export import ImageSource, source_of
from torchbake.engine.image import EngineImage
from torchbake.errors import EngineError, TorchbakeError
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.oci.labels import VERSION_LABEL
from torchbake.sbom.image_scan import look_into, sbom_of_contents
from torchbake.sbom.licenses import Licenses, licenses_of
from torchbake.sbom.packages import ImagePackages, Package
from torchbake.store.layout import Layout
from torchbake.ui import console
from torchbake.ui.command import Command
from torchbake.ui.steps import step

EXAMPLES = (
    "cpu",
    "cuda12 --licenses",
    "all --output sboms",
    "cpu --licenses --format json | jq -r '.images[].licenses[].license'",
)
FILE = "sbom.cdx.json"
_CREATED = "org.opencontainers.image.created"
_NAMES = 6  # packages in a row of a table; JSON has all of them


@dataclass(frozen=True, kw_only=True)
class ImageListing:
    """An image with its contents, or the problem why they could not be read."""

    id: str
    ref: str
    digest: str = ""
    contents: ImagePackages | None = None
    path: Path | None = None
    problem: str = ""

    @property
    def licenses(self) -> Licenses:
        return licenses_of(self.contents.packages if self.contents else ())


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors):
    licenses: bool = opt.option("show each image's licenses, with their packages")
    format: opt.Format = opt.result_format()
    output: Path | None = opt.option(
        f"write FOLDER/<id>/{FILE}, with the image's first repository (default: reports, beside the matrix)",
        metavar="FOLDER",
    )


def run(args: Arguments) -> int:
    project, selection = load_selection(args.matrix, args.selectors)
    engine = connect()
    images = engine.tagged_images(refs_of(selection.specs, project.tags).values())
    folder = args.output or project.root / "reports"
    with interruptible():
        source = source_of(engine, Layout(folder=project.layout))
        listings = [_list(project, spec, images, source, folder) for spec in selection.specs]
    if args.format == "json":
        console.show_json({"images": [_entry(image, licenses=args.licenses) for image in listings]})
    elif args.licenses:
        _show_licenses(listings)
    else:
        columns = ("image", "Python packages", "Debian packages", "licenses", "without a license", "SBOM")
        console.show_table(columns, map(_row, listings))
    if bad := [image.id for image in listings if image.problem]:
        raise EngineError(
            f"{len(bad)} of {len(listings)} images have no SBOM: {', '.join(bad)}.",
            hint=f"Run: {Command('build sbom', ' '.join(bad))}",
        )
    return 0


def _list(
    project: Project, spec: Spec, images: Mapping[str, EngineImage], source: ImageSource, folder: Path
) -> ImageListing:
    """Read an image and write its SBOM; a failure is part of the result. Raises OSError for a full disk."""
    ref = ref_of(spec, project.tags[spec.id])
    image = images.get(ref)
    if image is None:
        return _failure(ImageListing(id=spec.id, ref=ref, problem="it is not in the engine"))
    console.say(f"{spec.id}: reading what it holds", style="dim")
    try:
        with step(f"{spec.id}: reading its layers"):
            content, contents = look_into(source, image.digest, project.cache)
    except TorchbakeError as error:
        return _failure(ImageListing(id=spec.id, ref=ref, digest=image.digest, problem=error.message))
    text = sbom_of_contents(
        content.manifest,
        contents,
        name=spec.repository,
        version=image.labels.get(VERSION_LABEL, ""),
        created=image.labels.get(_CREATED),
    )
    path = folder / file_name(spec.id) / FILE
    write_text(path, text)
    return ImageListing(id=spec.id, ref=ref, digest=content.manifest.digest, contents=contents, path=path)


def _failure(image: ImageListing) -> ImageListing:
    console.say(f"{image.id}: {image.problem}", style="bold red")
    return image


def _entry(image: ImageListing, *, licenses: bool) -> dict[str, Any]:
    """Return an image as JSON, with null for unknown values."""
    contents, licenses_ = image.contents, image.licenses
    entry = {
        "id": image.id,
        "ref": image.ref,
        "digest": image.digest or None,
        "problem": image.problem,
        "path": str(image.path) if image.path else None,
        "python": len(contents.of("python")) if contents else None,
        "bundled": len(contents.bundled) if contents else None,
        "debian": len(contents.of("debian")) if contents else None,
        "unsaid": len(licenses_.unlicensed) if contents else None,
    }
    if not licenses:
        return entry
    rows = [{"license": name, "packages": _names(own)} for name, own in licenses_.by_license]
    return entry | {"licenses": rows, "packages_without": _names(licenses_.unlicensed)}


def _names(packages: Sequence[Package]) -> list[dict[str, str]]:
    return [{"kind": package.kind, "name": package.name, "version": package.version} for package in packages]


def _row(image: ImageListing) -> tuple[str, ...]:
    contents, licenses = image.contents, image.licenses
    if contents is None:
        return image.id, "", "", "", "", f"none: {image.problem}"
    bundled = len(contents.bundled)
    python = f"{len(contents.of('python')) - bundled}" + (f" + {bundled} bundled" if bundled else "")
    counts = [len(contents.of("debian")), len(licenses.by_license), len(licenses.unlicensed)]
    return image.id, python, *map(str, counts), str(image.path)


def _show_licenses(listings: Sequence[ImageListing]) -> None:
    for image in listings:
        licenses = image.licenses
        rows = [(name, str(len(own)), _some(own)) for name, own in licenses.by_license]
        if licenses.unlicensed:
            rows.append(("(not known)", str(len(licenses.unlicensed)), _some(licenses.unlicensed)))
        console.show_table(("license", "packages", "which"), rows, title=image.id)
        console.out().print()


def _some(packages: Sequence[Package]) -> str:
    names = list(dict.fromkeys(package.name for package in packages))
    return ", ".join(names[:_NAMES]) + (f" +{len(names) - _NAMES}" if len(names) > _NAMES else "")
