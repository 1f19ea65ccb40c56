"""The options of `benchmark`: of a plan's run, and of a comparison."""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchbake.benchmark.compare import ROUNDS
from torchbake.benchmark.field_types import DTYPES, PHASES
from torchbake.benchmark.variables import KEYS, NAME
from torchbake.commands._options import Format, add_format, add_registry, positive
from torchbake.engine.gpu import MODES
from torchbake.errors import MatrixError, UsageError
from torchbake.matrix.yaml_source import parse_document

FOLDER = Path("reports/benchmark")  # beside the matrix


@dataclass(frozen=True, kw_only=True)
class Arguments:
    matrix: Path
    request: tuple[str, ...]
    dry_run: bool
    force: bool
    report: bool
    variable: tuple[str, ...]
    gpu: str
    plan: Path | None
    model: tuple[str, ...]
    batch_size: int | None
    dtype: str | None
    phase: str | None
    num_batches: int | None
    num_gpus: int | None
    threshold: float | None
    rounds: int | None
    seed: int | None
    registry: str | None
    plain_http: bool
    format: Format

    @property
    def variables(self) -> dict[str, Any]:
        """The variables of -P by name. Raises UsageError."""
        return dict(map(variable, self.variable))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("request", nargs="*", metavar="WORD", help="PLAN.yaml; compare A B; compare B; or schema")
    parser.add_argument("--dry-run", action="store_true", help="print every command; run nothing")
    parser.add_argument("--force", action="store_true", help="PLAN: measure again what was measured")
    parser.add_argument("--report", action="store_true", help=f"PLAN: also write a page, {FOLDER}/PLAN.html")
    parser.add_argument(
        "-P", dest="variable", action="append", default=[], metavar="NAME=VALUE",
        help="PLAN, and compare --plan: what ${NAME} stands for; a list in brackets; repeat for more",
    )  # fmt: skip
    parser.add_argument(
        "--gpu", choices=MODES, default="auto",
        help="auto: what needs a GPU is not run where there is none; require: that is an error (default: auto)",
    )  # fmt: skip
    compare = parser.add_argument_group("compare", "B against A; of B alone, against its release in --registry")
    compare.add_argument("--plan", type=Path, metavar="FILE", help="the experiments of this plan, in these two images")
    compare.add_argument("--model", action="append", default=[], metavar="NAME", help="repeat for more (resnet50)")
    compare.add_argument("--batch_size", "--batch-size", type=positive("--batch_size"), metavar="N", help="(16)")
    compare.add_argument("--dtype", choices=DTYPES, help="(float32)")
    compare.add_argument("--phase", choices=PHASES, help="(training)")
    compare.add_argument("--num_batches", "--num-batches", type=positive("--num_batches"), metavar="N", help="(20)")
    compare.add_argument("--num_gpus", "--num-gpus", type=int, metavar="N", help="0 is the CPU (0)")
    compare.add_argument(
        "--threshold", type=share, metavar="SHARE", help="the least difference that counts (default: 5%%)"
    )
    compare.add_argument(
        "--rounds", type=positive("--rounds"), metavar="N",
        help="rounds of four runs, A B B A, after as many of A alone; three times as many while it cannot be told. "
        f"Of N below {ROUNDS} an interval is the range of all, which holds the median with 1 - 2^(1 - N), "
        f"not 95%% (default: {ROUNDS})",
    )  # fmt: skip
    compare.add_argument("--seed", type=int, metavar="N", help="of the bootstrap (default: 0)")
    add_registry(parser, required=False, text="compare: where the release of B is: ghcr.io/acme")
    add_format(parser)


def share(text: str) -> float:
    """An argparse type: ``5%`` or ``0.05``."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(%?)", text)
    value = float(match[1]) / (100 if match[2] else 1) if match else 0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1; write 5% or 0.05")
    return value


def variable(text: str) -> tuple[str, Any]:
    """A name with its value: text as it stands, or what YAML has in brackets or double quotes. Raises UsageError."""
    name, given, value = text.partition("=")
    if not given or not re.match(NAME, name) or name in KEYS:
        why = "names a key of an experiment" if name in KEYS else "is not NAME=VALUE"
        raise UsageError(f"-P {text} {why}.", hint="Write: -P data=/data/imagenet, or: -P sizes='[16, 32]'")
    if not value.startswith(("[", '"')):
        return name, value
    try:
        found = parse_document(value, Path("-P")).data
    except MatrixError as error:
        raise UsageError(f"-P {text}: {error.message}", hint="Write: -P sizes='[16, 32]'") from None
    if isinstance(found, list) and any(not isinstance(one, str) for one in found):
        raise UsageError(f"-P {text} holds more than values.", hint="Write: -P sizes='[16, 32]'")
    return name, found


def refuse_unused(args: Arguments, *, compare: bool) -> None:
    """An option that would do nothing is a mistake: whoever wrote it counts on it."""
    of_plan = {"--force": args.force or None, "--report": args.report or None}
    of_compare = {f"--{name}": value for name, value in (axes(args) | judging(args)).items()} | {
        "--plan": args.plan, "--registry": args.registry, "--plain-http": args.plain_http or None,
    }  # fmt: skip
    for option, value in (of_plan if compare else of_compare).items():
        if value not in (None, ()):
            raise UsageError(f"{option} does nothing here.", hint="See: nox -s benchmark -- --help")


def axes(args: Arguments) -> dict[str, object]:
    """What the command line says of experiments, by the names of options."""
    names = ("model", "batch_size", "dtype", "phase", "num_batches", "num_gpus")
    return {name: getattr(args, name) for name in names}


def judging(args: Arguments) -> dict[str, Any]:
    """What the command line says of how a comparison is judged, by the names of options."""
    given = {"threshold": args.threshold, "rounds": args.rounds, "seed": args.seed}
    return {name: value for name, value in given.items() if value is not None}
