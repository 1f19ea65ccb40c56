"""The GPUs of an engine or of this machine, and the options by which containers get them."""

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from docker.types import DeviceRequest

from torchbake.core.problem import Problem, unknown
from torchbake.engine.client import Engine

KIND = "nvidia.com/gpu"
ALL = f"{KIND}=all"
MODES = ("auto", "require", "off")
_HOOK = "nvidia-container-runtime-hook"  # an engine with this program in its PATH needs no runtime "nvidia"
_ENGINE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True)
class GpuAccess:
    """The method by which programs get GPUs: on the host, or by a runtime or CDI devices of the engine.

    ``reason`` is the evidence for it, or why there is no GPU.
    """

    how: Literal["host", "runtime", "cdi", "none"]
    reason: str

    @property
    def there(self) -> bool:
        return self.how != "none"

    def problem(self, mode: str) -> Problem | None:
        """Return why programs get no GPU in one of the `MODES`, a failure for "require"; None if they get one."""
        if mode == "off":
            return unknown("GPU checks are off (--gpu off)")
        if self.there:
            return None
        if mode == "require":
            return Problem(reason=f"a GPU is required (--gpu require), but {self.reason}")
        return unknown(f"no GPU: {self.reason}")

    @property
    def request(self) -> DeviceRequest | None:
        """The option for all GPUs of the engine; None if it has none."""
        if self.how == "cdi":
            return DeviceRequest(driver="cdi", device_ids=[ALL])
        if self.how == "runtime":
            return DeviceRequest(driver="nvidia", count=-1, capabilities=[["gpu"]])
        return None

    def number(self, numbers: Sequence[str]) -> DeviceRequest | None:
        """Return the option for these GPUs of the engine; None if it has none."""
        if self.how == "cdi":
            return DeviceRequest(driver="cdi", device_ids=[f"{KIND}={number}" for number in numbers])
        if self.how == "runtime":
            return DeviceRequest(driver="nvidia", device_ids=list(numbers), capabilities=[["gpu"]])
        return None


@dataclass(frozen=True, kw_only=True)
class CdiSpec:
    """A CDI specification file: the kind of its devices, and their names."""

    path: str
    kind: str
    devices: tuple[str, ...]


def gpu_of(info: Mapping[str, Any], specs: Iterable[CdiSpec], *, hook: bool = False) -> GpuAccess:
    """Return an engine's GPUs, by its `info` and the CDI specifications in its folders.

    ``hook`` is True if NVIDIA's runtime hook is in the engine's PATH. CDI takes precedence: newer engines use it for
    `--gpus` too, and it needs no runtime.
    """
    folders = info.get("CDISpecDirs") or []
    value = next((spec for spec in specs if spec.kind == KIND and "all" in spec.devices), None)
    discovered = {device.get("ID") for device in info.get("DiscoveredDevices") or ()}  # of engines since 28.3
    if folders and ALL in discovered:
        return GpuAccess(how="cdi", reason=f"the engine has found the CDI device {ALL}")
    if folders and value:
        return GpuAccess(how="cdi", reason=f"{value.path} describes {ALL}")
    if "nvidia" in (info.get("Runtimes") or {}):
        return GpuAccess(how="runtime", reason="the engine has a runtime of the name nvidia")
    if hook:
        return GpuAccess(how="runtime", reason=f"{_HOOK} is installed where the engine looks")
    if value:
        return GpuAccess(
            how="none", reason=f"{value.path} describes {ALL}, but CDI is off in the engine (features.cdi)"
        )
    where = f"no CDI device {ALL} in {', '.join(folders)}" if folders else "CDI is off"
    return GpuAccess(how="none", reason=f"the engine has no nvidia runtime, and {where}")


def look_for_gpu(engine: Engine) -> GpuAccess:
    """Return an engine's GPUs. Folders are read only for an engine on this machine. Raises EngineError."""
    info = engine.info
    if not engine.address.local:
        return gpu_of(info, ())
    folders = info.get("CDISpecDirs") or ["/etc/cdi", "/var/run/cdi"]
    path = f"{os.environ.get('PATH', '')}:{_ENGINE_PATH}"
    return gpu_of(info, read_specs(map(Path, folders)), hook=shutil.which(_HOOK, path=path) is not None)


def gpu_of_host(devices: Path = Path("/dev")) -> GpuAccess:
    """Return the GPUs of this machine, by the device files of their driver."""
    paths = [*sorted(devices.glob("nvidia[0-9]*")), *devices.glob("dxg")]  # dxg: a GPU of Windows, in WSL
    if paths:
        return GpuAccess(how="host", reason=f"this machine has {paths[0]}")
    return GpuAccess(how="none", reason=f"this machine has no {devices}/nvidia0")


def read_specs(folders: Iterable[Path]) -> tuple[CdiSpec, ...]:
    """Read the CDI specifications in folders; files that cannot be read are skipped, as by the engine."""
    files = (path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir()))
    return tuple(spec for path in files if (spec := _read(path)))


def _read(path: Path) -> CdiSpec | None:
    if path.suffix not in (".json", ".yaml", ".yml"):
        return None
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        devices = tuple(str(device["name"]) for device in content["devices"])
        return CdiSpec(path=str(path), kind=str(content["kind"]), devices=devices)
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
        return None
