"""`tags`: which image holds which tag."""

import argparse

from torchbake import console
from torchbake.verbs.common import add_selectors, load_selection

SUMMARY = "show the tags of the selected images, most specific first"
EXAMPLES = ("nox -s tags -- all", "nox -s tags -- cuda12 --format json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_selectors(parser)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")


def run(args: argparse.Namespace) -> int:
    project, selection = load_selection(args)
    pairs = [(tag, spec) for spec in selection.specs for tag in project.tags[spec.id]]
    if args.format == "json":
        console.show_json({f"{spec.repository}:{tag}": spec.id for tag, spec in pairs})
    else:
        console.show_table(("tag", "image"), [(f"{spec.repository}:{tag}", spec.id) for tag, spec in pairs])
    return 0
