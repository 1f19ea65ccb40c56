"""`base`: choose, fetch or bootstrap the bases of the selected images."""

import argparse
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from torchbake.build.base_image import SOURCES, Source, find_base, make_base
from torchbake.commands._options import add_selectors
from torchbake.commands._selection import load_selection
from torchbake.hostconfig.apt_config import read_apt_config
from torchbake.matrix.spec import bases_of
from torchbake.ui import console

EXAMPLES = ("all", "debian12 --source bootstrap --refresh")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    matrix: Path
    selectors: tuple[str, ...]
    source: Source
    refresh: bool
    dry_run: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_selectors(parser)
    parser.add_argument("--source", choices=SOURCES, default="auto", help="default: auto, registry then bootstrap")
    parser.add_argument("--refresh", action="store_true", help="get it again, also when one is recorded")
    parser.add_argument("--dry-run", action="store_true", help="only show what is recorded")


def run(args: Arguments) -> int:
    project, selection = load_selection(args.matrix, args.selectors)
    apt = cache(read_apt_config)  # apt is asked once, and only where something is made
    for spec in bases_of(selection.specs):
        known = find_base(spec, project.state)
        fits = known is not None and args.source in ("auto", known.source)
        if known and fits and not args.refresh:
            console.say(f"{spec.name}: {known.source}, {known.digest}, since {known.created}")
        elif args.dry_run:
            console.say(f"{spec.name}: would be made ({args.source})")
        else:
            make_base(spec, project.state, apt(), source=args.source, say=console.say)
    return 0
