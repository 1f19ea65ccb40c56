"""The command line of an experiment: `bench` in a container, on this machine, or over ssh. Pure."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchbake.benchmark.expand import Experiment
from torchbake.benchmark.field_types import Docker, Host
from torchbake.benchmark.nodes import node_variables
from torchbake.core.paths import OWN_BENCH
from torchbake.engine.gpu import KIND, Gpu
from torchbake.engine.runner import run_words
from torchbake.matrix.spec import TOOLBOX

_HOME = "~/"
_NODE = "node"  # what a container is called on the network of its experiment: node0, node1
FOLDER, DATA = "/plan", "/data"  # where a container sees the plan's folder, and its data


def bench_words(experiment: Experiment, *, model: str, data: str | None) -> list[str]:
    """The flags of `bench`; ``model`` and ``data`` are paths there, where they are paths."""
    settings = experiment.settings
    flags: dict[str, object] = {
        "model": model,
        "forward_only": experiment.phase == "inference",
        "data_loader_only": True if experiment.phase == "data_ingestion" else None,
        "batch_size": experiment.batch_size,
        "num_batches": settings.num_batches,
        "num_warmup_batches": settings.num_warmup_batches,
        "device": "gpu" if experiment.on_gpu else "cpu",
        "num_gpus": experiment.gpus or None,
        "dtype": experiment.dtype,
        "cudnn_benchmark": settings.cudnn_benchmark if experiment.on_gpu else None,
        "monitor_seconds": settings.monitor_seconds or None,
    }
    if data:
        flags |= {"data_dir": data, "data_backend": settings.data_backend, "data_shuffle": settings.data_shuffle}
        flags["num_loader_threads"] = settings.num_loader_threads
    given = {name: value for name, value in flags.items() if value is not None}
    return [word for name, value in given.items() for word in (f"--{name}", _shown(value))] + list(settings.args)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class Container:
    """How an image is started. ``folder`` is the plan's; ``toolbox`` is mounted in the place of an image's own."""

    image: str
    family: str
    gpu: Gpu
    folder: Path
    toolbox: Path | None = None
    without: frozenset[str] = frozenset()  # limits that the engine may not set

    def words(
        self, experiment: Experiment, labels: Mapping[str, str] | None = None, *, node: int = 0, network: str = ""
    ) -> list[str]:
        """`docker run` with all of its words. Each image gets the same, so that none has an advantage.

        If the experiment has several nodes, each node is a container on the ``network`` and has its own GPUs.
        """
        settings, own = experiment.settings, is_own(experiment.model)
        mounts = [(self.toolbox, TOOLBOX)] if self.toolbox else []
        mounts += [(self.folder, FOLDER)] if own else []
        mounts += [(self.folder / settings.data_dir, DATA)] if settings.data_dir else []
        words = (
            run_words(labels or {})
            + limits(settings.docker, self.without, network=network)
            + self._devices(experiment.gpus if experiment.on_gpu else 0, node)
        )
        words += [f"--network-alias={_NODE}{node}"] if network else []
        variables = settings.env | node_variables(experiment, node, f"{_NODE}0")
        words += [f"--env={name}={value}" for name, value in variables.items()]
        words += [_mount(source, target) for source, target in mounts]
        model = f"{FOLDER}/{experiment.model}" if own else experiment.model
        bench = bench_words(experiment, model=model, data=DATA if settings.data_dir else None)
        program = f"{TOOLBOX}/bench" if self.toolbox else "bench"  # an image of somebody else's has it not in its PATH
        return [*words, *settings.docker.options, self.image, program, *bench]

    def _devices(self, gpus: int, node: int) -> list[str]:
        if not gpus:
            # Where NVIDIA's runtime is the engine's default, the image's own variable would ask for all GPUs.
            return ["--env=NVIDIA_VISIBLE_DEVICES=void"] if self.family == "cuda" else []
        numbers = [str(number) for number in range(node * gpus, (node + 1) * gpus)]
        if self.gpu.how == "cdi":
            return [f"--device={KIND}={number}" for number in numbers]
        return ["--gpus", f'"device={",".join(numbers)}"']  # docker reads it as CSV: the quotes are its own


def _mount(source: Path, target: str) -> str:
    """Read-only. Unlike a volume, it is refused where the source is missing. Docker reads it as CSV."""
    text = f"source={source}"
    quoted = '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text
    return f"--mount=type=bind,{quoted},target={target},readonly"


def limits(docker: Docker, without: frozenset[str] = frozenset(), *, network: str = "") -> list[str]:
    """What each container gets, whatever runs in it."""
    ulimits = {"memlock": docker.memlock, "stack": docker.stack}
    words = [f"--network={network or docker.network}", f"--shm-size={docker.shm_size}"]
    return words + [f"--ulimit={name}={value}" for name, value in ulimits.items() if name not in without]


def host_words(host: Host, experiment: Experiment, *, limit: int, folder: Path, node: int = 0) -> list[str]:
    """`bench` by a Python of this machine, or over ssh, where `timeout` ends what its connection has left behind.

    Paths of the plan are relative to its ``folder`` on this machine; over ssh they are those of the other one.
    """
    settings = experiment.settings
    model, data = experiment.model, settings.data_dir
    if not host.ssh:
        model = str(folder / model) if is_own(model) else model
        data = str(folder / data) if data else None
    words = bench_words(experiment, model=model, data=data)
    if not host.ssh:
        return [host.python, host.bench or str(OWN_BENCH), *words]
    started = [host.python, host.bench] if host.bench else ["bench"]
    env = settings.env | node_variables(experiment, node, host.master)
    variables = ["env", *(f"{name}={value}" for name, value in env.items())] if env else []
    there = remote([*variables, "timeout", str(limit), *started, *words])
    return ["ssh", "-o", "BatchMode=yes", host.ssh[node], there]


def remote(words: Sequence[str]) -> str:
    """One word for the shell at the other end; a leading ``~/`` is its to expand."""
    return " ".join(_HOME + shlex.quote(word[2:]) if word.startswith(_HOME) else shlex.quote(word) for word in words)


def is_own(model: str) -> bool:
    """Whether a model is a class in a file, ``mine.py:Net``."""
    return ".py:" in model
