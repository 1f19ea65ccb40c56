"""`promote`: move rolling tags to a release."""

from dataclasses import dataclass

from torchbake.commands import _options as opt
from torchbake.commands._rolling import Finishing, run_finish, run_shift
from torchbake.errors import UsageError

EXAMPLES = (
    "cpu --registry ghcr.io/acme",
    "2.7.1 --registry ghcr.io/acme --to r3 --dry-run",
    "all --registry ghcr.io/acme --finish",
    "cpu --registry ghcr.io/acme --to r3 --key cosign.pub",
)


@dataclass(frozen=True, kw_only=True)
class Arguments(Finishing):
    finish: bool = opt.option(
        "only what `publish --keep-rolling` began; what was rolled back, or has no release, is left alone"
    )


def run(args: Arguments) -> int:
    if args.finish:
        return run_finish(args)
    if args.keyless:
        raise UsageError(
            "--keyless is for --finish.",
            hint="To trust keyless signatures, give --identity and --issuer without --keyless.",
        )
    return run_shift(args, back=False)
