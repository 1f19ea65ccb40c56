"""The GPUs in an engine's `info` and its CDI specifications."""

import json
from pathlib import Path
from typing import Any

import pytest

from torchbake.engine.gpu import ALL, CdiSpec, GpuAccess, gpu_of, gpu_of_host, read_specs

PLAIN: dict[str, Any] = {"Runtimes": {"runc": {}, "io.containerd.runc.v2": {}}, "CDISpecDirs": []}
CDI = {**PLAIN, "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}
RUNTIME = {**PLAIN, "Runtimes": {"runc": {}, "nvidia": {"path": "nvidia-container-runtime"}}}
NVIDIA = CdiSpec(path="/etc/cdi/nvidia.yaml", kind="nvidia.com/gpu", devices=("0", "all"))
OTHER = CdiSpec(path="/etc/cdi/intel.yaml", kind="intel.com/gpu", devices=("gpu0", "all"))
ONE = CdiSpec(path="/etc/cdi/one.yaml", kind="nvidia.com/gpu", devices=("0",))


def test_how_an_engine_gives_gpus() -> None:
    for info, specs, hook, how, word in (
        (PLAIN, (), False, "none", "CDI is off"),
        (CDI, (), False, "none", "no CDI device nvidia.com/gpu=all in /etc/cdi, /var/run/cdi"),
        (CDI, (OTHER,), False, "none", "no CDI device"),
        (CDI, (ONE,), False, "none", "no CDI device"),
        (CDI, (OTHER, NVIDIA), False, "cdi", "/etc/cdi/nvidia.yaml"),
        (PLAIN, (NVIDIA,), False, "none", "CDI is off in the engine (features.cdi)"),
        (RUNTIME, (), False, "runtime", "a runtime of the name nvidia"),
        (RUNTIME, (NVIDIA,), False, "runtime", "a runtime of the name nvidia"),
        ({**RUNTIME, "CDISpecDirs": ["/etc/cdi"]}, (NVIDIA,), False, "cdi", "/etc/cdi/nvidia.yaml"),
        (PLAIN, (), True, "runtime", "nvidia-container-runtime-hook"),
        ({**CDI, "DiscoveredDevices": [{"Source": "cdi", "ID": ALL}]}, (), False, "cdi", "has found"),
        ({**CDI, "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}, (), False, "none", "no CDI"),
        ({**CDI, "DiscoveredDevices": None, "Runtimes": None}, (), False, "none", "no CDI device"),
        ({}, (), False, "none", "CDI is off"),
    ):
        gpu = gpu_of(info, specs, hook=hook)
        assert gpu.how == how, info
        assert word in gpu.reason, info
        assert gpu.there is (how != "none"), info


@pytest.mark.parametrize(
    ("how", "mode", "output"),
    [
        ("cdi", "auto", ""),
        ("host", "require", ""),
        ("cdi", "off", "GPU checks are off (--gpu off)"),
        ("none", "off", "GPU checks are off (--gpu off)"),
        ("none", "auto", "no GPU: CDI is off"),
        ("none", "require", "a GPU is required (--gpu require), but CDI is off"),
    ],
)
def test_why_nothing_runs_on_a_gpu(how: Any, mode: str, output: str) -> None:
    problem = GpuAccess(how=how, reason="CDI is off").problem(mode)
    assert (problem.reason if problem else "") == output
    assert problem is None or problem.unknown is (mode != "require")  # to require one is to be wrong without it


def test_how_the_engine_is_asked() -> None:
    cdi, runtime, none, host = (GpuAccess(how=how, reason="") for how in ("cdi", "runtime", "none", "host"))
    assert cdi.request == {
        "Driver": "cdi", "Count": 0, "DeviceIDs": ["nvidia.com/gpu=all"], "Capabilities": [], "Options": {},
    }  # fmt: skip
    assert runtime.request == {
        "Driver": "nvidia", "Count": -1, "DeviceIDs": [], "Capabilities": [["gpu"]], "Options": {},
    }  # fmt: skip
    assert none.request is None
    assert host.request is None


SPEC = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0"}, {"name": "all"}]}


def test_specifications_are_read_as_the_engine_reads_them(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(SPEC))
    (tmp_path / "b.yaml").write_text('cdiVersion: "0.5.0"\nkind: nvidia.com/gpu\ndevices: [{name: "all"}]\n')
    (tmp_path / "c.txt").write_text(json.dumps(SPEC))
    specs = read_specs([tmp_path, tmp_path / "missing"])
    assert [(Path(spec.path).name, spec.kind, spec.devices) for spec in specs] == [
        ("a.json", "nvidia.com/gpu", ("0", "all")),
        ("b.yaml", "nvidia.com/gpu", ("all",)),
    ]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", '{"kind": "x"}', '{"kind": "x", "devices": 3}', '{"kind": "x", "devices": [1]}'],
)
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_broken_specification_is_none(tmp_path: Path, text: str, suffix: str) -> None:
    (tmp_path / f"broken.{suffix}").write_text(text)
    (tmp_path / "good.json").write_text(json.dumps(SPEC))
    assert [Path(spec.path).name for spec in read_specs([tmp_path])] == ["good.json"]


def test_a_host_has_a_gpu_when_its_driver_made_a_device(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    assert gpu_of_host(tmp_path).how == "none"
    (tmp_path / "nvidia0").touch()
    assert gpu_of_host(tmp_path) == GpuAccess(how="host", reason=f"this machine has {tmp_path}/nvidia0")


def test_a_host_within_windows_has_another_device(tmp_path: Path) -> None:
    (tmp_path / "dxg").touch()
    assert gpu_of_host(tmp_path).there
