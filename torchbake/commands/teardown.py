"""`teardown`: stop the engine that `setup` started, and no other."""

import os
from dataclasses import dataclass

from torchbake.commands import _options as opt
from torchbake.errors import SetupError
from torchbake.setup import dockerd, leftovers, probe
from torchbake.setup.paths import EnginePaths
from torchbake.setup.sudo import with_sudo
from torchbake.ui import console

EXAMPLES = ("", "--purge   # also remove its images and build cache")


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.Common):
    purge: bool = opt.option("also remove the engine's images and build cache")


def run(args: Arguments) -> int:
    paths = EnginePaths.from_env(os.environ)
    if not leftovers.any_left(paths) and not (args.purge and os.path.lexists(paths.data_root)):
        console.say("nothing to stop: setup has started no engine here")
        return 0
    root = probe.rights()
    if root == "no":
        raise SetupError("Stopping the engine needs root.", hint="Run this as root, or make sudo available.")
    if root == "sudo":
        return with_sudo("teardown", *(["--purge"] if args.purge else []))
    with dockerd.only_one(paths):
        _tear_down(paths, purge=args.purge)
    return 0


def _tear_down(paths: EnginePaths, *, purge: bool) -> None:
    by_systemd = paths.units.exists()
    if dockerd.stop(paths):
        console.say("the engine that setup started is stopped")
    if by_systemd:
        console.say("its images stay in /var/lib/docker, which is the package's; remove it by hand")
    elif not purge:
        console.say(f"its images stay in {paths.data_root}; --purge removes them")
    if purge and dockerd.purge(paths):
        console.say(f"removed {paths.data_root}")
