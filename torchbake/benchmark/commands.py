"""Command lines of an experiment: `bench` in a container, on this machine, or over ssh. Pure."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchbake.benchmark.expand import Experiment, is_own
from torchbake.benchmark.field_types import Docker, PlanHost
from torchbake.benchmark.nodes import node_variables
from torchbake.core.paths import OWN_BENCH
from torchbake.engine.gpu import KIND, GpuAccess
from torchbake.engine.runner import run_words
from torchbake.matrix.spec import TOOLBOX

_HOME = "~/"
_NODE = "node"  # containers are node0, node1, … on the network of their experiment
FOLDER, DATA = "/plan", "/data"  # mounts in a container: the plan's folder, and its data


def bench_words(experiment: Experiment, *, model: str, data: str | None) -> list[str]:
    """Return the flags of `bench`. Paths in ``model`` and ``data`` are those of the place where it runs."""
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
    words = []
    for name, value in flags.items():
        if value is not None:
            words += [f"--{name}", str(value).lower() if isinstance(value, bool) else str(value)]
    return [*words, *settings.args]


@dataclass(frozen=True, kw_only=True)
class Container:
    """Options for the containers of an image. ``folder`` is the plan's, ``toolbox`` is mounted over the image's own."""

    image: str
    family: str
    gpu: GpuAccess
    folder: Path
    toolbox: Path | None = None
    without: frozenset[str] = frozenset()  # limits that the engine may not set

    def words(
        self, experiment: Experiment, labels: Mapping[str, str] | None = None, *, node: int = 0, network: str = ""
    ) -> list[str]:
        """Return the whole `docker run` command; it is the same for each image, so that none has an advantage.

        If the experiment has several nodes, each node is a container on the ``network`` and has its own GPUs.
        """
        settings, own = experiment.settings, is_own(experiment.model)
        mounts = [(self.toolbox, TOOLBOX)] if self.toolbox else []
        mounts += [(self.folder, FOLDER)] if own else []
        mounts += [(self.folder / settings.data_dir, DATA)] if settings.data_dir else []
        words = run_words(labels or {}) + limits(settings.docker, self.without, network=network)
        if experiment.on_gpu:
            gpus = [str(number) for number in range(node * experiment.gpus, (node + 1) * experiment.gpus)]
            by_cdi = [f"--device={KIND}={number}" for number in gpus]
            # Docker parses the value as CSV, so the quotes are part of it.
            words += by_cdi if self.gpu.how == "cdi" else ["--gpus", f'"device={",".join(gpus)}"']
        elif self.family == "cuda":
            # If NVIDIA's runtime is the engine's default, the image's own variable requests all GPUs.
            words += ["--env=NVIDIA_VISIBLE_DEVICES=void"]
        words += [f"--network-alias={_NODE}{node}"] if network else []
        variables = settings.env | node_variables(experiment, node, f"{_NODE}0")
        words += [f"--env={name}={value}" for name, value in variables.items()]
        words += [_mount(source, target) for source, target in mounts]
        model = f"{FOLDER}/{experiment.model}" if own else experiment.model
        bench = bench_words(experiment, model=model, data=DATA if settings.data_dir else None)
        program = f"{TOOLBOX}/bench" if self.toolbox else "bench"  # foreign images do not have the toolbox in PATH
        return [*words, *settings.docker.options, self.image, program, *bench]


def _mount(source: Path, target: str) -> str:
    """Return a read-only mount as CSV, as docker takes it. Unlike a volume, it fails if the source is missing."""
    text = f"source={source}"
    quoted = '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text
    return f"--mount=type=bind,{quoted},target={target},readonly"


def limits(docker: Docker, without: frozenset[str] = frozenset(), *, network: str = "") -> list[str]:
    """Return the options that every container gets: network, shared memory and ulimits."""
    ulimits = {"memlock": docker.memlock, "stack": docker.stack}
    words = [f"--network={network or docker.network}", f"--shm-size={docker.shm_size}"]
    return words + [f"--ulimit={name}={value}" for name, value in ulimits.items() if name not in without]


def host_words(host: PlanHost, experiment: Experiment, *, limit: int, folder: Path, node: int = 0) -> list[str]:
    """Return the command that runs `bench` with a Python of this machine, or over ssh.

    Paths of the plan are relative to its ``folder`` on this machine; over ssh they are paths of the remote machine.
    There, `timeout` ends a `bench` whose connection was lost.
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
    """Quote a command as one word for the remote shell, which expands a leading ``~/``."""
    return " ".join(_HOME + shlex.quote(word[2:]) if word.startswith(_HOME) else shlex.quote(word) for word in words)
