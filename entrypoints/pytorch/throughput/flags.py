"""The flags of `bench`, with the names and defaults that other benchmark suites use for their workers."""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..payloads.command_line import Parser

_DTYPES = {"float": "float32", "float32": "float32", "float16": "float16", "bfloat16": "bfloat16"}
_SYNTHETIC = ("synthetic", "synthetic/device", "synthetic/gpu", "synthetic/pinned", "synthetic/pageable")
_IN_HOST_MEMORY = ("synthetic/pinned", "synthetic/pageable")
LEAST_INTERVAL = 0.2  # seconds between two calls of the monitor
_BOOLEANS = {"true": True, "on": True, "t": True, "1": True, "false": False, "off": False, "f": False, "0": False}

_EPILOG = """\
On stdout come lines such as `__results.time__= 12.3`, and last one JSON object with all that was measured; messages
are on stderr. Exit code: 0 measured; 1 failed, with the reason in that object; 64 wrong command line.

examples:
  bench --model resnet50 --batch_size 16 --device gpu
  bench --model=resnet50 --batch_size=16 --forward_only=true --device=gpu --dtype=float16 --num_batches=200
  bench --model vgg16 --batch_size 32 --device gpu --data_dir /data/train --data_backend image_folder
  bench --model resnet50 --batch_size 16 --device gpu --num_gpus 4
  NPROC_PER_NODE=4 run /opt/torchbake/bench --model resnet50 --batch_size 16 --device gpu
  bench --model mine.py:Net --batch_size 8
"""


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """The settings of a measurement. ``explicit`` are the flags on the command line; the others have their defaults."""

    model: str
    batch_size: int
    forward_only: bool = False
    num_batches: int = 100
    num_warmup_batches: int = 1
    num_gpus: int = 1
    device: str = "cpu"
    dtype: str = "float32"
    dist_backend: str = ""
    local_rank: int | None = None
    data: str = "synthetic"
    data_dir: str = ""
    data_backend: str = "caffe_lmdb"
    data_shuffle: bool = False
    data_loader_only: bool = False
    num_loader_threads: int = 4
    cudnn_benchmark: bool = True
    cudnn_fastest: bool = False
    monitor_seconds: float = 0
    explicit: frozenset[str] = frozenset()

    @property
    def phase(self) -> str:
        if self.data_loader_only:
            return "data_ingestion"
        return "inference" if self.forward_only else "training"

    @property
    def backend(self) -> str:
        """The source of samples: a value of `--data_backend`, or synthetic; in host memory a value of `--data`."""
        if self.data_dir:
            return self.data_backend
        return self.data if self.in_host_memory else "synthetic"

    @property
    def in_host_memory(self) -> bool:
        """Return True if each batch is a copy of the synthetic batch in host memory."""
        return not self.data_dir and self.data in _IN_HOST_MEMORY


def parse(words: Sequence[str]) -> BenchSettings | None:
    """Parse the command line; return None for `--list`. A flag may have hyphens: `--batch-size` is `--batch_size`.

    Raises SystemExit: 64 with a sentence on stderr if the command line is wrong, 0 after --help.
    """
    parser = make_parser()
    arguments = vars(parser.parse_args([_with_underscores(word) for word in words]))
    if arguments.pop("list", False):
        return None
    for name in ("model", "batch_size"):
        if not arguments.get(name):
            parser.error(f"--{name} is missing")
    names = frozenset(arguments)
    if "dtype" in names:
        arguments["dtype"] = _DTYPES[arguments["dtype"]]
    settings = BenchSettings(**arguments, explicit=names)
    if settings.device == "gpu" and settings.num_gpus == 0:
        parser.error("--num_gpus is 0, and --device gpu needs at least 1: choose --device cpu")
    if settings.data_loader_only and not settings.data_dir:
        parser.error("--data_loader_only measures the loader, and synthetic samples need none: name --data_dir")
    return settings


def _with_underscores(word: str) -> str:
    name, equals, value = word.partition("=")
    return f"--{name[2:].replace('-', '_')}{equals}{value}" if name.startswith("--") else word


def make_parser() -> argparse.ArgumentParser:
    """Return the parser. Flags that are not given are not in its namespace: `BenchSettings` has the defaults."""
    parser = Parser("bench", "Measures how fast a model trains or infers here.", _EPILOG, argparse.SUPPRESS)
    parser.add_argument("--model", metavar="NAME", help="a model of `bench --list`, or mine.py:Net, a class of yours")
    _boolean(parser, "forward_only", "inference, in place of training")
    _number(parser, "batch_size", 1, "samples in a batch of each device")
    _number(parser, "num_batches", 1, "batches that are measured")
    _number(parser, "num_warmup_batches", 0, "batches before those, which are kept apart")
    _add_device(parser)
    _choice(
        parser, "data", _SYNTHETIC,
        "where the synthetic batch is: in the device's memory (synthetic, synthetic/device, synthetic/gpu), or in "
        "host memory and copied for each batch; --data_dir takes its place",
    )  # fmt: skip
    parser.add_argument("--data_dir", metavar="DIR", help="images to read; empty: synthetic samples (default: empty)")
    _choice(parser, "data_backend", ("caffe_lmdb", "image_folder"), "what --data_dir holds")
    _boolean(parser, "data_shuffle", "read the images in random order")
    _boolean(parser, "data_loader_only", "measure the loader of --data_dir alone, without the model")
    _number(parser, "num_loader_threads", 0, "processes that read and augment images, for each device")
    parser.add_argument(
        "--monitor_seconds", type=_interval, metavar="SECONDS",
        help=f"look at CPU, memory and GPU so often, at least {LEAST_INTERVAL:g}; 0: never (default: 0)",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="name the models, one a line")
    return parser


def _add_device(parser: argparse.ArgumentParser) -> None:
    _choice(parser, "device", ("cpu", "gpu"), "where to compute; without a GPU gpu fails")
    processes = "GPUs of each node, a process each; more than 1 start by `run`. On the CPU it counts processes"
    _number(parser, "num_gpus", 0, processes)
    _choice(parser, "dtype", tuple(_DTYPES), "of the model and its inputs; float is float32")
    _boolean(parser, "cudnn_benchmark", "cuDNN tries its algorithms at the first batch, and takes the fastest")
    parser.add_argument(
        "--dist_backend", choices=("nccl", "gloo"),
        help="how ranks speak to each other; the CPU takes gloo in any case (default: nccl on GPUs, gloo on the CPU)",
    )  # fmt: skip
    parser.add_argument(
        "--local_rank", "--local-rank", type=_whole(0), metavar="N",
        help="the GPU of this process, as torch.distributed.launch gives it (default: LOCAL_RANK, else 0)",
    )  # fmt: skip
    no_effect = "torch has no such mode: true has no effect, which a note says; see --cudnn_benchmark"
    _boolean(parser, "cudnn_fastest", no_effect)


def _choice(parser: argparse.ArgumentParser, name: str, choices: Sequence[str], text: str) -> None:
    parser.add_argument(f"--{name}", choices=choices, help=f"{text} (default: {getattr(BenchSettings, name)})")


def _number(parser: argparse.ArgumentParser, name: str, least: int, text: str) -> None:
    default = getattr(BenchSettings, name, None)
    hint = "required" if default is None else f"default: {default}"
    parser.add_argument(f"--{name}", type=_whole(least), metavar="N", help=f"{text} ({hint})")


def _boolean(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Add ``--name true|false``, where ``--name`` alone means true."""
    default = str(getattr(BenchSettings, name)).lower()
    parser.add_argument(
        f"--{name}", type=_truth, nargs="?", const=True, metavar="true|false", help=f"{text} (default: {default})"
    )


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} up")
        return int(text)

    return read


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if seconds and not LEAST_INTERVAL <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is neither 0 nor seconds from {LEAST_INTERVAL:g} up")
    return seconds


def _truth(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _BOOLEANS[text.lower()]
