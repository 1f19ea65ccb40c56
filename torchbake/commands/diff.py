"""`diff`: compare any two images by layers, packages, files and configuration."""

from dataclasses import dataclass
from pathlib import Path

from torchbake.commands import _options as opt
from torchbake.commands._diff_tables import show_comparison
from torchbake.commands._image_contents import inventory_of
from torchbake.commands._image_location import (
    IMAGE_HELP,
    PLACE_DEFAULT,
    PLACE_GROUP,
    ImageLocation,
    Place,
    ReadsImages,
    find_image,
)
from torchbake.contents.change_text import as_json, equal_as_json
from torchbake.contents.compare import Part, compare_images
from torchbake.core.files import write_text
from torchbake.errors import UsageError
from torchbake.oci.platforms import fits
from torchbake.report.diff_page import render_diff
from torchbake.ui import console

EXAMPLES = (
    "ghcr.io/acme/pytorch:1.0 ghcr.io/acme/pytorch:1.1",
    "cpu ghcr.io/acme/pytorch:cpu",
    "before.tar after.tar --files",
    "pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime pytorch/pytorch:latest --page diff.html",
    "cpu ghcr.io/acme/pytorch:cpu --only config --exit-code",
    "cpu cpu --from engine --from registry",
)
DIFFERENT = 1  # as `git diff --exit-code`


@dataclass(frozen=True, kw_only=True)
class Arguments(ReadsImages):
    first: str = opt.argument(f"the image before. {IMAGE_HELP[0].upper()}{IMAGE_HELP[1:]}", metavar="A")
    second: str = opt.argument("the image after, named in the same ways", metavar="B")
    places: tuple[Place, ...] = opt.option(
        f"read images from there. Give it twice for a place of each image ({PLACE_DEFAULT})",
        "--from",
        group=PLACE_GROUP,
    )
    only: Part | None = opt.option("show only this part")
    files: bool = opt.option("list every file, also of packages, in place of folders")
    page: Path | None = opt.option("also write an HTML page", metavar="FILE")
    exit_code: bool = opt.option("end with 1 if the images differ; with --only, if this part does")
    format: opt.Format = opt.result_format()


def run(args: Arguments) -> int:
    locations = [
        find_image(args.at(place), name) for place, name in zip(_places(args), (args.first, args.second), strict=True)
    ]
    if not (args.page or args.platform) and (digest := _common_digest(*locations)):
        _show_equal(args, digest)
        return 0
    before, after = (inventory_of(args, location) for location in locations)
    if not fits(before.platform, after.platform):
        raise UsageError(
            f"{before.name} is for {before.platform}, and {after.name} is for {after.platform}.",
            hint="Compare images for one platform; --platform chooses one of several.",
        )
    comparison = compare_images(before, after)
    if args.page:
        write_text(args.page, render_diff(comparison))
        console.say(f"the page: {args.page}")
    if args.format == "json":
        console.show_json(as_json(comparison, files=args.files))
    else:
        show_comparison(comparison, args.only, files=args.files)
    differs = comparison.parts[args.only] if args.only else any(comparison.parts.values())
    return DIFFERENT if args.exit_code and differs else 0


def _places(args: Arguments) -> tuple[Place | None, ...]:
    """Return the place of each image. Raises UsageError."""
    if len(args.places) > 2:
        raise UsageError(
            f"--from is given {len(args.places)} times, and there are two images.",
            hint="Give it once for both images, or once for each: --from engine --from registry",
        )
    return args.places if len(args.places) == 2 else (args.places or (None,)) * 2


def _common_digest(first: ImageLocation, second: ImageLocation) -> str:
    """Return the digest of both images; empty if they have not one digest, or if a place names none."""
    digest = first.digest()
    return digest if digest and digest == second.digest() else ""


def _show_equal(args: Arguments, digest: str) -> None:
    sentence = f"{args.first} and {args.second} are one image: {digest}."
    if args.format == "json":
        console.show_json(equal_as_json(args.first, args.second, digest, sentence))
    else:
        console.show_lines(sentence)
