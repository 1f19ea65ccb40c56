"""`waste`: say what an image holds for nothing, and how to mend it."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from torchbake.commands import _options as opt
from torchbake.commands._image_contents import inventory_of
from torchbake.commands._image_location import IMAGE_HELP, WithImageContents, find_image
from torchbake.commands._waste_view import show_report
from torchbake.contents.gpus import parse_gpus
from torchbake.contents.waste import find_waste
from torchbake.contents.waste_json import waste_json
from torchbake.contents.waste_kinds import KINDS
from torchbake.contents.waste_limit import WasteLimit, headline, parse_limit
from torchbake.core.files import write_text
from torchbake.core.suggest import nearest
from torchbake.errors import UsageError, WasteError
from torchbake.report.waste_page import render_waste_page
from torchbake.ui import console
from torchbake.ui.command import Command

EXAMPLES = (
    "pytorch/pytorch:latest",
    "cpu --top 10",
    "registry.example.com/team/train:7 --gpus A100,H100 --page waste.html",
    "registry.example.com/team/train:7 --fail-over 5% --ignore hugging-face",
)


def _limit(text: str) -> WasteLimit:
    try:
        return parse_limit(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class Arguments(WithImageContents):
    image: str = opt.argument(IMAGE_HELP, metavar="IMAGE")
    gpus: str = opt.option(
        "the GPUs that the image is for, as capabilities or names: 8.0,9.0 or A100,H100; GPU code for others is waste",
        metavar="GPU[,GPU]",
    )
    ignore: tuple[str, ...] = opt.option(
        "do not report this kind, by its name in the first column of the result; may be repeated", metavar="KIND"
    )
    fail_over: WasteLimit | None = opt.option(
        "end with exit code 28 if more could go: 100MB, 5%%", type=_limit, metavar="SIZE|PERCENT"
    )
    top: int | None = opt.option("show the N largest paths of each kind", type=opt.positive, metavar="N")
    page: Path | None = opt.option("also write an HTML page", metavar="FILE")
    format: opt.Format = opt.result_format()


def run(args: Arguments) -> int:
    gpus = parse_gpus(args.gpus) if args.gpus else ()
    for name in args.ignore:
        if name not in KINDS:
            close = nearest(name, KINDS)
            hint = f"Did you mean {' or '.join(close)}?" if close else f"The kinds: {', '.join(KINDS)}."
            raise UsageError(f"--ignore: there is no kind of waste with the name {name!r}.", hint=hint)
    report = find_waste(inventory_of(args, find_image(args, args.image)), gpus=gpus, ignore=args.ignore)
    if args.page:
        write_text(args.page, render_waste_page(report))
        console.say(f"the page: {args.page}")
    if args.format == "json":
        console.show_json(waste_json(report))
    else:
        show_report(report, args.top or 0)
    if args.fail_over and args.fail_over.exceeded_by(report):
        raise WasteError(
            f"{report.name}: {headline(report)}. --fail-over allows {args.fail_over.text}.",
            hint=f"Run {Command('waste', f'{args.image} --top 10')} for the files, or leave a kind out: --ignore KIND",
        )
    return 0
