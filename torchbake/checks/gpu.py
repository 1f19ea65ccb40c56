"""Decisions for all commands and checks: if an image can use a GPU, and if its containers get one."""

import re
from collections.abc import Mapping
from typing import Any

from torchbake.checks.smoke_run import Session
from torchbake.engine.client import Engine
from torchbake.engine.containers import Cluster, ContainerNode, ContainerSettings
from torchbake.engine.gpu import GpuAccess, look_for_gpu
from torchbake.matrix.spec import Spec
from torchbake.oci.labels import LABEL

_CUDA_BUILD = re.compile(r"^cuda\b[^=\n]*=\s*['\"]", flags=re.MULTILINE)
_NO_DEVICES = ("", "void", "none")  # values of NVIDIA_VISIBLE_DEVICES by which NVIDIA's runtime gives no GPU


def family_of(spec: Spec | None, config: Mapping[str, Any]) -> str:
    """Return ``cuda`` for an image that can use a GPU, else ``cpu``.

    The image's row decides. An image without a row is ``cuda`` if it has torchbake's CUDA label, or if its variables
    request a GPU. ``config`` is the engine's, with ``Labels`` and ``Env``.
    """
    if spec:
        return spec.family
    variables = dict(pair.partition("=")[::2] for pair in config.get("Env") or ())
    wants_gpu = variables.get("NVIDIA_VISIBLE_DEVICES", "") not in _NO_DEVICES
    return "cuda" if wants_gpu or f"{LABEL}.cuda" in (config.get("Labels") or {}) else "cpu"


def family_of_build(version: str) -> str:
    """Return the family of an installed torch by the text of its ``version.py``."""
    return "cuda" if _CUDA_BUILD.search(version) else "cpu"


def find_gpu(engine: Engine, image: str, family: str, mode: str, session: Session, *, dry: bool = False) -> GpuAccess:
    """Find the GPUs for an image's containers. With ``dry`` no container is started to try the engine's answer."""
    if family != "cuda" or mode == "off":
        return GpuAccess(how="none", reason="no GPU was requested")
    gpu = look_for_gpu(engine)
    return gpu if dry else probe(engine, image, gpu, session)


def probe(engine: Engine, image: str, gpu: GpuAccess, session: Session) -> GpuAccess:
    """Try the GPU: start a container that requests it and does nothing.

    If that fails (a driver that is not loaded, a stale CDI file), the result has no GPU, and the engine's reason.
    """
    if gpu.request is None:
        return gpu
    box = ContainerSettings(gpu=gpu.request, network=False)
    with Cluster(engine, image, box, run=session.id, stopping=session.stopping) as cluster:
        end = cluster.run([ContainerNode(command=("true",))], timeout=60)[0]
    if not end.problem:
        return gpu
    return GpuAccess(how="none", reason=f"{gpu.reason}, but it cannot start a container with it: {end.problem}")
