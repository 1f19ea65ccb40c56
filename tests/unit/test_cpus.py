"""The CPUs of a container, read from trees like those of cgroups of both versions."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from entrypoints.pytorch.launch.contract import Contract
from entrypoints.pytorch.launch.cpus import Cpus, quota_of
from entrypoints.pytorch.launch.main import environment

V2 = "31 23 0:28 {root} {at} rw,relatime - cgroup2 cgroup2 rw\n"
V1 = "32 31 0:29 {root} {at} rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
NOISE = "22 1 0:20 / /tmp rw - tmpfs tmpfs rw\n33 31 0:31 / /nowhere rw - cgroup cgroup rw,cpuset\n"


def machine(folder: Path, *, mount: str, root: str, cgroup: str, files: Mapping[str, str]) -> float | None:
    """The quota found in a /proc and a cgroup mount that hold these files."""
    at = folder / "cgroup"
    (folder / "self").mkdir()
    (folder / "self/mountinfo").write_text(NOISE + mount.format(root=root, at=at))
    (folder / "self/cgroup").write_text(f"3:cpuset:/\n{cgroup}\n")
    for name, text in files.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(f"{text}\n")
    return quota_of(folder)


@pytest.mark.parametrize(
    ("root", "cgroup", "files", "quota"),
    [
        ("/", "0::/", {"cpu.max": "200000 100000"}, 2),
        ("/", "0::/", {"cpu.max": "150000 100000"}, 1.5),
        ("/", "0::/", {"cpu.max": "max 100000"}, None),
        ("/", "0::/", {}, None),
        # A pod's limit above its container's, and a container's own limit below it: the smallest counts.
        ("/", "0::/pod/c", {"pod/cpu.max": "200000 100000", "pod/c/cpu.max": "400000 100000"}, 2),
        ("/", "0::/pod/c", {"cpu.max": "max 100000", "pod/c/cpu.max": "50000 100000"}, 0.5),
        ("/", "0::/pod/c", {"other/cpu.max": "10000 100000"}, None),
        # Only the container's own folder is mounted, under the host's name of it.
        ("/pod/c", "0::/pod/c", {"cpu.max": "300000 100000"}, 3),
        ("/pod/c", "0::/pod/c/d", {"cpu.max": "300000 100000", "d/cpu.max": "100000 100000"}, 1),
        # A namespace from which the path cannot be followed: what is mounted counts, and nothing above it.
        ("/../..", "0::/", {"cpu.max": "300000 100000"}, 3),
        ("/", "0::/../other", {"cpu.max": "300000 100000"}, 3),
        ("/", "0::/", {"cpu.max": "rubbish"}, None),
        ("/", "0::/", {"cpu.max": "100000 0"}, None),
    ],
)
def test_the_quota_of_version_2(
    root: str, cgroup: str, files: dict[str, str], quota: float | None, tmp_path: Path
) -> None:
    assert machine(tmp_path, mount=V2, root=root, cgroup=cgroup, files=files) == quota


@pytest.mark.parametrize(
    ("root", "cgroup", "quotas", "quota"),
    [
        ("/docker/x", "4:cpu,cpuacct:/docker/x", {"": "250000"}, 2.5),
        ("/", "4:cpu,cpuacct:/docker/x", {"docker/x/": "100000", "docker/": "-1"}, 1),
        ("/", "4:cpu,cpuacct:/docker/x", {"docker/x/": "400000", "docker/": "200000"}, 2),
        ("/", "4:cpu,cpuacct:/", {"": "-1"}, None),
    ],
)
def test_the_quota_of_version_1(
    root: str, cgroup: str, quotas: dict[str, str], quota: float | None, tmp_path: Path
) -> None:
    files = {f"{at}cpu.cfs_quota_us": value for at, value in quotas.items()}
    files |= {f"{at}cpu.cfs_period_us": "100000" for at in quotas}
    assert machine(tmp_path, mount=V1, root=root, cgroup=cgroup, files=files) == quota


def test_without_proc_there_is_no_limit(tmp_path: Path) -> None:
    assert quota_of(tmp_path) is None


def test_threads_follow_the_smaller_of_affinity_and_quota() -> None:
    for cpus, processes, threads in (
        (Cpus(bound=64), 1, None),
        (Cpus(bound=64), 8, 8),
        (Cpus(bound=64, quota=2), 1, 2),
        (Cpus(bound=64, quota=2.9), 1, 2),
        (Cpus(bound=64, quota=0.5), 1, 1),
        (Cpus(bound=64, quota=8), 4, 2),
        (Cpus(bound=64, quota=2), 4, 1),
        (Cpus(bound=4, quota=16), 1, None),
        (Cpus(bound=4, quota=16), 2, 2),
    ):
        assert cpus.threads(processes) == threads, cpus


def test_a_limit_is_said_and_no_limit_is_not() -> None:
    assert Cpus(bound=64, quota=2.5).sentence == "CPUs 2 of 64 (the container's limit is 2.5)"
    assert Cpus(bound=2, quota=2).sentence == Cpus(bound=2).sentence == ""


def test_the_threads_reach_a_standalone_script_too() -> None:
    assert environment(Contract(mode="standalone"), {}, 2) == {"MODE": "standalone", "OMP_NUM_THREADS": "2"}
    assert environment(Contract(mode="standalone"), {"OMP_NUM_THREADS": "7"}) == {
        "MODE": "standalone",
        "OMP_NUM_THREADS": "7",
    }
