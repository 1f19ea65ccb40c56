"""`base`: find, fetch or bootstrap the bases of the selected images."""

from dataclasses import dataclass
from functools import cache

from torchbake.build.base_image import Source, find_base, make_base
from torchbake.commands import _options as opt
from torchbake.commands._selection import load_selection
from torchbake.debian.lockfile import debian_lock_path, find_debian_lock
from torchbake.errors import UsageError
from torchbake.hostconfig.apt_config import read_apt_config
from torchbake.matrix.spec import bases_of
from torchbake.ui import console

EXAMPLES = ("all", "debian12 --source bootstrap --refresh")


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors):
    source: Source = opt.option("default: auto, registry then bootstrap", default="auto")
    refresh: bool = opt.option("get it again, also when one is recorded")
    dry_run: bool = opt.option("only show what is recorded")


def run(args: Arguments) -> int:
    project, selection = load_selection(args.matrix, args.selectors)
    apt = cache(read_apt_config)  # read once, and only if a base is made
    for spec in bases_of(selection.specs):
        lock = find_debian_lock(project.root, spec)
        locked = ("bootstrap" if lock.base else "registry") if lock else args.source
        if args.source not in ("auto", locked):
            raise UsageError(
                f"{spec.id}: the source in its lock of Debian packages is {locked}, not {args.source}.",
                hint=f"Leave --source out, or remove {debian_lock_path(project.root, spec)}.",
            )
        base = find_base(spec, project.state, lock)
        fits = base is not None and args.source in ("auto", base.source)
        if base and fits and not args.refresh:
            console.say(f"{spec.id}: {base.source}, {base.digest}, since {base.created}")
        elif args.dry_run:
            console.say(f"{spec.id}: would be made ({args.source})")
        else:
            make_base(spec, project.state, apt(), source=args.source, say=console.say, lock=lock)
    return 0
