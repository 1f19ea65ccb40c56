"""Whether an image can use a GPU, and whether it gets one: the one place that decides, for all commands and checks."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from torchbake.checks.smoke_run import Session
from torchbake.engine.client import Engine
from torchbake.engine.containers import Box, Cluster, Node
from torchbake.engine.gpu import Gpu, look_for_gpu
from torchbake.matrix.spec import Spec
from torchbake.oci.labels import LABEL

_ASKS = "NVIDIA_VISIBLE_DEVICES"
_CUDA_BUILD = re.compile(r"^cuda\b[^=\n]*=\s*['\"]", flags=re.MULTILINE)
_FOR_NONE = ("", "void", "none")  # as NVIDIA's runtime reads it


def family_of(spec: Spec | None, config: Mapping[str, Any]) -> str:
    """``cuda`` for an image that can use a GPU, else ``cpu``.

    Its row says so; without one its labels do, if they are of torchbake, else whether its variables ask for a GPU.
    ``config`` is as the engine has it, with ``Labels`` and ``Env``.
    """
    if spec:
        return spec.family
    return "cuda" if f"{LABEL}.cuda" in (config.get("Labels") or {}) or _asks(config.get("Env") or ()) else "cpu"


def family_of_build(version: str) -> str:
    """Likewise of a torch that is installed, by the text of its ``version.py``."""
    return "cuda" if _CUDA_BUILD.search(version) else "cpu"


def find_gpu(engine: Engine, image: str, family: str, mode: str, session: Session, *, dry: bool = False) -> Gpu:
    """What GPUs an image's containers get, if they are to have any. ``dry``: start nothing, so trust the engine."""
    if family != "cuda" or mode == "off":
        return Gpu(how="none", reason="nobody asked for one")
    gpu = look_for_gpu(engine)
    return gpu if dry else probe(engine, image, gpu, session)


def probe(engine: Engine, image: str, gpu: Gpu, session: Session) -> Gpu:
    """Whether the engine keeps its word: a container that asks for the GPU and does nothing is started.

    What comes back has the engine's own reason where it refuses (a driver that is not loaded, a stale CDI file).
    """
    if gpu.request is None:
        return gpu
    box = Box(gpu=gpu.request, network=False)
    with Cluster(engine, image, box, run=session.id, stopping=session.stopping) as cluster:
        ended = cluster.run([Node(command=("true",))], timeout=60)[0]
    if not ended.problem:
        return gpu
    return Gpu(how="none", reason=f"{gpu.reason}, but it cannot start a container with it: {ended.problem}")


def _asks(environment: Iterable[str]) -> bool:
    variables = dict(pair.partition("=")[::2] for pair in environment)
    return variables.get(_ASKS, "") not in _FOR_NONE
