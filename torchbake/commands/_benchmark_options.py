"""The options of `benchmark`, for the run of a plan and for a comparison."""

import argparse
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torchbake.benchmark.compare import ROUNDS
from torchbake.benchmark.field_types import DTYPES, PHASES
from torchbake.benchmark.variables import KEYS, NAME
from torchbake.commands import _options as opt
from torchbake.engine.gpu import MODES
from torchbake.errors import MatrixError, UsageError
from torchbake.matrix.yaml_source import parse_document

FOLDER = Path("reports/benchmark")  # in the folder of the matrix
_COMPARE = ("compare",)
_of_compare = partial(
    opt.option, group="compare: B against A; of B alone, against its release in --registry", of=_COMPARE
)


def share(text: str) -> float:
    """Parse a share: ``5%`` or ``0.05``."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(%?)", text)
    value = float(match[1]) / (100 if match[2] else 1) if match else 0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1; write 5% or 0.05")
    return value


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.Common):
    request: tuple[str, ...] = opt.argument("PLAN.yaml; compare A B; compare B; or schema", nargs="*", metavar="WORD")
    dry_run: bool = opt.option("print every command; run nothing")
    force: bool = opt.option("PLAN: measure again what was measured", of=("PLAN",))
    report: bool = opt.option(f"PLAN: also write a page, {FOLDER}/PLAN.html", of=("PLAN",))
    variable: tuple[str, ...] = opt.option(
        "PLAN, and compare --plan: the value of ${NAME}; a list in brackets; repeat for more", "-P",
        metavar="NAME=VALUE",
    )  # fmt: skip
    gpu: str = opt.option(
        "auto: what needs a GPU is not run where there is none; require: that is an error (default: auto)",
        choices=MODES, default="auto",
    )  # fmt: skip
    plan: Path | None = _of_compare("the experiments of this plan, in these two images", metavar="FILE")
    model: tuple[str, ...] = _of_compare("repeat for more (resnet50)", metavar="NAME")
    batch_size: int | None = _of_compare("(16)", "--batch-size", "--batch_size", type=opt.positive, metavar="N")
    dtype: str | None = _of_compare("(float32)", choices=DTYPES)
    phase: str | None = _of_compare("(training)", choices=PHASES)
    num_batches: int | None = _of_compare("(20)", "--num-batches", "--num_batches", type=opt.positive, metavar="N")
    num_gpus: int | None = _of_compare("0 is the CPU (0)", "--num-gpus", "--num_gpus", metavar="N")
    threshold: float | None = _of_compare(
        "the least difference that counts (default: 5%%)", type=share, metavar="SHARE"
    )
    rounds: int | None = _of_compare(
        "rounds of four runs, A B B A, after as many of A alone; three times as many while it cannot be told. "
        f"Of N below {ROUNDS} an interval is the range of all, which holds the median with 1 - 2^(1 - N), "
        f"not 95%% (default: {ROUNDS})",
        type=opt.positive, metavar="N",
    )  # fmt: skip
    seed: int | None = _of_compare("of the bootstrap (default: 0)", metavar="N")
    registry: str | None = opt.registry(
        "compare: where the release of B is: ghcr.io/acme", of=_COMPARE,
        configured=lambda args: args.request[:1] == _COMPARE and len(args.request) == 2,
    )  # fmt: skip
    plain_http: bool = opt.plain_http(of=_COMPARE)
    format: opt.Format = opt.result_format()

    @property
    def variables(self) -> dict[str, Any]:
        """The variables of -P by name. Raises UsageError."""
        return dict(map(variable, self.variable))


def variable(text: str) -> tuple[str, Any]:
    """Parse NAME=VALUE. A value in brackets or double quotes is YAML, any other is text. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not equals or not re.match(NAME, name) or name in KEYS:
        why = "names a key of an experiment" if name in KEYS else "is not NAME=VALUE"
        raise UsageError(f"-P {text} {why}.", hint="Write: -P data=/data/imagenet, or: -P sizes='[16, 32]'")
    if not value.startswith(("[", '"')):
        return name, value
    try:
        document = parse_document(value, Path("-P")).data
    except MatrixError as error:
        raise UsageError(f"-P {text}: {error.message}", hint="Write: -P sizes='[16, 32]'") from None
    if isinstance(document, list) and any(not isinstance(one, str) for one in document):
        raise UsageError(f"-P {text} holds more than values.", hint="Write: -P sizes='[16, 32]'")
    return name, document
