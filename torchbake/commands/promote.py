"""`promote`: move rolling tags to a release."""

from dataclasses import dataclass

from torchbake.commands import _options as opt
from torchbake.commands._rolling import Promoting, run_pending, run_shift
from torchbake.errors import UsageError

EXAMPLES = (
    "cpu --registry ghcr.io/acme",
    "2.7.1 --registry ghcr.io/acme --to r3 --dry-run",
    "all --registry ghcr.io/acme --pending",
    "cpu --registry ghcr.io/acme --to r3 --key cosign.pub",
)


@dataclass(frozen=True, kw_only=True)
class Arguments(Promoting):
    pending: bool = opt.option(
        "only the tags that `publish --immutable-only` or an interrupted run left; a rollback stays as it is"
    )


def run(args: Arguments) -> int:
    if args.pending:
        return run_pending(args)
    if args.keyless:
        raise UsageError(
            "--keyless is for --pending.",
            hint="To trust keyless signatures, give --identity and --issuer without --keyless.",
        )
    return run_shift(args, back=False)
