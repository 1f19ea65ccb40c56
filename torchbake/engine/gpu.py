"""What GPUs an engine can give to a container, and how it wants to be asked for them."""

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
_HOOK = "nvidia-container-runtime-hook"  # an engine that finds it in its PATH needs no runtime of that name
_ENGINE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """How programs get GPUs here: on the host itself, or by what the engine can be asked for.

    ``reason`` says by what that is known, or why there are none.
    """

    how: Literal["host", "runtime", "cdi", "none"]
    reason: str

    @property
    def there(self) -> bool:
        return self.how != "none"

    def problem(self, mode: str) -> Problem | None:
        """Why nothing runs on a GPU in one of the `MODES`; None when it does. To require one and have none is wrong."""
        if mode == "off":
            return unknown("GPU checks are off (--gpu off)")
        if self.there:
            return None
        if mode == "require":
            return Problem(reason=f"a GPU is required (--gpu require), but {self.reason}")
        return unknown(f"no GPU: {self.reason}")

    @property
    def request(self) -> DeviceRequest | None:
        """What asks the engine for all its GPUs; None where there are none."""
        if self.how == "cdi":
            return DeviceRequest(driver="cdi", device_ids=[ALL])
        if self.how == "runtime":
            return DeviceRequest(driver="nvidia", count=-1, capabilities=[["gpu"]])
        return None

    def numbered(self, numbers: Sequence[str]) -> DeviceRequest | None:
        """What asks the engine for these of its GPUs; None where there are none."""
        if self.how == "cdi":
            return DeviceRequest(driver="cdi", device_ids=[f"{KIND}={number}" for number in numbers])
        if self.how == "runtime":
            return DeviceRequest(driver="nvidia", device_ids=list(numbers), capabilities=[["gpu"]])
        return None


@dataclass(frozen=True, kw_only=True)
class CdiSpec:
    """A CDI specification file: what kind of device it describes, and the names of those."""

    path: str
    kind: str
    devices: tuple[str, ...]


def gpu_of(info: Mapping[str, Any], specs: Iterable[CdiSpec], *, hook: bool = False) -> Gpu:
    """What an engine can give, from its `info` and the CDI specifications in its folders.

    ``hook``: NVIDIA's runtime hook is where the engine looks for programs. CDI comes first: newer engines hand
    `--gpus` on to it, and it needs no runtime of its own.
    """
    folders = info.get("CDISpecDirs") or []
    found = next((spec for spec in specs if spec.kind == KIND and "all" in spec.devices), None)
    if folders and ALL in _discovered(info):
        return Gpu(how="cdi", reason=f"the engine has found the CDI device {ALL}")
    if folders and found:
        return Gpu(how="cdi", reason=f"{found.path} describes {ALL}")
    if "nvidia" in (info.get("Runtimes") or {}):
        return Gpu(how="runtime", reason="the engine has a runtime of the name nvidia")
    if hook:
        return Gpu(how="runtime", reason=f"{_HOOK} is installed where the engine looks")
    if found:
        return Gpu(how="none", reason=f"{found.path} describes {ALL}, but CDI is off in the engine (features.cdi)")
    where = f"no CDI device {ALL} in {', '.join(folders)}" if folders else "CDI is off"
    return Gpu(how="none", reason=f"the engine has no nvidia runtime, and {where}")


def look_for_gpu(engine: Engine) -> Gpu:
    """What this engine can give. Its folders are only read where it runs on this machine. Raises EngineError."""
    info = engine.info
    if not engine.address.local:
        return gpu_of(info, ())
    folders = info.get("CDISpecDirs") or ["/etc/cdi", "/var/run/cdi"]
    path = f"{os.environ.get('PATH', '')}:{_ENGINE_PATH}"
    return gpu_of(info, read_specs(map(Path, folders)), hook=shutil.which(_HOOK, path=path) is not None)


def gpu_of_host(devices: Path = Path("/dev")) -> Gpu:
    """Whether this machine itself has a GPU with a driver, from its device files."""
    found = [*sorted(devices.glob("nvidia[0-9]*")), *devices.glob("dxg")]  # dxg: the one of Windows, within WSL
    if found:
        return Gpu(how="host", reason=f"this machine has {found[0]}")
    return Gpu(how="none", reason=f"this machine has no {devices}/nvidia0")


def read_specs(folders: Iterable[Path]) -> tuple[CdiSpec, ...]:
    """The CDI specifications in these folders; a file that cannot be read is none: the engine skips it too."""
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


def _discovered(info: Mapping[str, Any]) -> set[str]:
    """What engines since 28.3 say themselves, wherever they run."""
    return {str(device.get("ID")) for device in info.get("DiscoveredDevices") or ()}
