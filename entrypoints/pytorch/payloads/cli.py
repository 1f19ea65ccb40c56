"""`smoke`: runs payloads on a device, each in a child process."""

import os
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module

from ..launch.limits import why_no_thread
from .apart import Signalled, run_apart
from .command_line import Parser
from .expected import parse_expected
from .verdict import Checks, NotRun, PayloadOutcome, PayloadVerdict, Tell, one_line, outcome_of_all


@dataclass(frozen=True)
class Payload:
    """An entry of `smoke --list`. ``together``: only rank 0 prints its verdict; ``trains``: it makes an optimizer."""

    module: str
    what: str
    together: bool = False
    trains: bool = False


PAYLOADS: Mapping[str, Payload] = {
    "tensor": Payload("tensor", "matmul, conv, linalg, reductions of each dtype against independent references"),
    "autograd": Payload("autograd", "gradients, double backward, a fit whose loss falls, mixed precision", trains=True),
    "compile": Payload("compile_", "torch.compile equals eager, forward and backward; needs a compiler"),
    "export": Payload("export", "TorchScript, torch.export, ONNX where it is installed, checkpoints", trains=True),
    "loader": Payload("loader", "DataLoader workers, shared memory, pinned memory"),
    "versions": Payload("versions", "torch, CUDA, cuDNN, NCCL and Python against --expect"),
    "examples": Payload(
        "examples", "a digits classifier and a regression, one or many ranks", together=True, trains=True
    ),
    "ddp": Payload("ddp", "collectives and data-parallel training, on one or many ranks", together=True, trains=True),
    "nccl": Payload("nccl", "the same over NCCL, and its bandwidth", together=True, trains=True),
}

_EPILOG = """\
payloads:
{payloads}

One JSON line a payload on stdout. Exit code: 0 passed, 1 failed, 77 not-run, 64 wrong command line;
of several payloads: 1 when any failed, else 77 when none passed, else 0.

examples:
  smoke tensor autograd export loader
  smoke tensor nccl --device cuda
  smoke versions --expect '{{"torch": "2.7.1", "cuda": "12.6", "cudnn": "9.5.1.17", "nccl": null, "python": "3.11"}}'
  run /opt/torchbake/smoke ddp
"""


@dataclass(frozen=True)
class PayloadOptions:
    """The options of a payload. ``turn`` is the number of payloads before it."""

    device: str = "cpu"
    expected: Mapping[str, str | None] = field(default_factory=dict)
    turn: int = 0


@dataclass(frozen=True)
class Arguments:
    """The command line."""

    names: tuple[str, ...]
    options: PayloadOptions
    timeout: float
    list: bool = False


def parse(words: list[str]) -> Arguments:
    """Parse the command line. Raises SystemExit: 64 with a sentence on stderr if it is wrong, 0 after --help."""
    parser = _parser()
    argument = parser.parse_args(words)
    for name in argument.names:
        if name not in PAYLOADS:
            parser.error(f"unknown payload {name!r}, choose from {', '.join(PAYLOADS)}")
    if not argument.names and not argument.list:
        parser.error(f"no payload was given, choose from {', '.join(PAYLOADS)}")
    if argument.timeout <= 0:
        parser.error(f"--timeout is {argument.timeout:g}, it must be above 0")
    try:
        expected = parse_expected(argument.expect)
    except ValueError as error:
        parser.error(f"--expect: {error}")
    return Arguments(tuple(argument.names), PayloadOptions(argument.device, expected), argument.timeout, argument.list)


def _parser() -> Parser:
    listed = "\n".join(f"  {name:9} {payload.what}" for name, payload in PAYLOADS.items())
    parser = Parser("smoke", "Judges what this Python and its torch can do here.", _EPILOG.format(payloads=listed))
    parser.add_argument("names", nargs="*", metavar="NAME", help="a payload")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (cpu)")
    parser.add_argument("--expect", default="{}", metavar="JSON", help="for versions: what must be there")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="for each payload (300)")
    parser.add_argument("--list", action="store_true", help="name the payloads, one a line")
    return parser


def main(words: list[str]) -> int:
    """Run the payloads of the command line, and return the exit code."""
    arguments = parse(words)
    if arguments.list:
        print("\n".join(f"{name}\t{payload.what}" for name, payload in PAYLOADS.items()))
        return 0
    missing = why_no_thread() or _import_torch(trains=any(PAYLOADS[name].trains for name in arguments.names))
    outcomes = []
    for turn, name in enumerate(arguments.names):
        verdict = _fail(name, arguments, missing) if missing else _judge(name, arguments, turn)
        _say(verdict)
        outcomes.append(verdict.outcome)
        job_ends = verdict.outcome is PayloadOutcome.FAILED and PAYLOADS[name].together and "RANK" in os.environ
        if job_ends or verdict.figures.get("told"):
            break  # the other ranks do not start the next payload
    return outcome_of_all(outcomes).exit_code


def _import_torch(*, trains: bool) -> str:
    """Import torch once for all forked payloads, and return the reason if that fails.

    A process's first optimizer costs another second, as torch then imports its compiler.
    """
    # Else threads spin while they wait for each other, which doubles the time of small sums on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    start = time.perf_counter()
    try:
        torch = import_module("torch")
        if trains:
            torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1)
    except Exception as error:  # a broken library raises OSError, a broken package any exception
        return f"torch cannot be imported by {sys.executable}: {one_line(error)}"
    print(f"smoke: torch imported in {time.perf_counter() - start:.1f} s", file=sys.stderr)
    return ""


def _judge(name: str, arguments: Arguments, turn: int) -> PayloadVerdict:
    start = time.perf_counter()
    device, options = "cuda" if name == "nccl" else arguments.options.device, replace(arguments.options, turn=turn)
    try:
        end = run_apart(lambda tell: _work(name, device, options, tell), arguments.timeout)
    except Signalled as signal:
        return _fail(name, arguments, f"told to end by {signal}", {"told": str(signal)})
    if end.verdict:
        return end.verdict
    return PayloadVerdict(name, device, PayloadOutcome.FAILED, end.reason, time.perf_counter() - start, end.seconds)


def _work(name: str, device: str, options: PayloadOptions, tell: Tell) -> PayloadVerdict:
    """Run one payload; this is the child process."""
    payload = PAYLOADS[name]
    checks = Checks(tell, together=payload.together)
    start = time.perf_counter()
    try:
        import_module(f".{payload.module}", __package__).check(checks, options)
    except NotRun as reason:
        seconds = time.perf_counter() - start
        if not checks.failures:
            return PayloadVerdict(
                name, device, PayloadOutcome.NOT_RUN, str(reason), seconds, checks.seconds, checks.figures
            )
    except Exception as error:
        if not checks.failures:  # else a failed check has recorded the error
            traceback.print_exc(file=sys.stderr)
            checks.failures.append(one_line(error))
    return checks.verdict(name, device, time.perf_counter() - start)


def _fail(name: str, arguments: Arguments, reason: str, figures: Mapping[str, object] | None = None) -> PayloadVerdict:
    return PayloadVerdict(name, arguments.options.device, PayloadOutcome.FAILED, reason, figures=figures or {})


def _say(verdict: PayloadVerdict) -> None:
    """Print the verdict's line; of ranks that work together only rank 0 does, which knows the others' failures."""
    rank = int(os.environ.get("RANK", "0"))
    if PAYLOADS[verdict.payload].together and rank > 0:
        if verdict.reason:
            who = f"smoke {verdict.payload}: rank {rank} on {socket.gethostname()}"
            print(f"{who}: {verdict.outcome.value}: {verdict.reason}", file=sys.stderr)
        return
    print(verdict.line(), flush=True)
