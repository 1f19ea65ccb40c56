"""Memory is taken only where all of the machine's is there to be taken."""

from pathlib import Path

import pytest

from torchbake.core.memory import spare_memory

MEMINFO = "MemTotal:       16384 kB\nMemFree:          100 kB\nMemAvailable:    8192 kB\n"
SPARE, TOTAL = 8192 * 1024, 16384 * 1024
UNLIMITED = str(2**63 - 4096)  # as version 1 says it


def spare(folder: Path, own: str, limits: dict[str, str]) -> int:
    for name, text in {"proc/meminfo": MEMINFO, "proc/self/cgroup": own, **limits}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return spare_memory(folder / "proc", folder / "groups")


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        ("0::/user/job\n", {"groups/user/job/memory.max": "max\n"}, SPARE),
        ("0::/user/job\n", {"groups/user/job/memory.max": f"{TOTAL}\n"}, SPARE),
        ("0::/user/job\n", {"groups/user/job/memory.max": f"{TOTAL - 4096}\n"}, 0),
        ("0::/user/job\n", {"groups/user/job/memory.max": "max\n", "groups/user/memory.max": "4096\n"}, 0),
        ("0::/\n", {"groups/memory.max": "4096\n"}, 0),  # in a container
        ("0::/\n", {}, 0),
        ("4:cpu,memory:/job\n0::/\n", {"groups/memory/job/memory.limit_in_bytes": f"{UNLIMITED}\n"}, SPARE),
        ("4:memory:/job\n0::/\n", {"groups/memory/job/memory.limit_in_bytes": "4096\n"}, 0),
        ("4:memory:/not/seen\n", {"groups/memory/memory.limit_in_bytes": "4096\n"}, 0),
        ("4:memory:/not/seen\n", {"groups/memory/memory.limit_in_bytes": f"{UNLIMITED}\n"}, SPARE),
        ("3:cpu:/job\n", {}, 0),
        ("nonsense\n", {}, 0),
    ],
)
def test_a_limit_below_the_machines_memory_leaves_none(
    tmp_path: Path, own: str, limits: dict[str, str], expected: int
) -> None:
    assert spare(tmp_path, own, limits) == expected


def test_a_machine_that_tells_nothing_has_none(tmp_path: Path) -> None:
    assert spare_memory(tmp_path, tmp_path) == 0
