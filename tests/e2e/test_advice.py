"""The advice of `run` if a container lacks a prerequisite of torch: an executable /tmp, a compiler, the whole driver.

Each test runs a real container until torch's error, and checks the advice; some also check that the advice works.
"""

import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import CPU, ROOT, Completed, ref_of

pytestmark = pytest.mark.entrypoints

COMPILES = "import torch\nprint(torch.compile(lambda x: x.sin() + x.cos())(torch.zeros(8)).sum().item())\n"
# With a read-only root the home is below /tmp, and Inductor writes its compiled libraries there.
READ_ONLY = ("--read-only", "--tmpfs")
CACHES = ("--env", "TORCHINDUCTOR_CACHE_DIR=/caches/inductor", "--env", "TRITON_CACHE_DIR=/caches/triton")
PAGE = (ROOT / "docs/how-to/troubleshooting.md").read_text()
ENTRIES = re.findall(r"(?ms)^- \*\*(.*?)\*\*(.*?)(?=^- |^#|\Z)", PAGE)  # the symptom, and its reason and remedy


@pytest.fixture(scope="module")
def runtime() -> str:
    return ref_of(CPU)


def run(folder: Path, image: str, script: str, *options: str) -> Completed:
    (folder / "job.py").write_text(script)
    mount = f"{folder / 'job.py'}:/app/job.py:ro"
    command = ["docker", "run", "--rm", "--network", "none", "--volume", mount, *options, image, "run", "job.py"]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def advice(process: Completed) -> str:
    """Return the advice that `run` logs after the first failure."""
    return process.stderr.partition("run: the job failed.")[2].partition("run: its last words:")[0]


def told_in_troubleshooting(words: str) -> str:
    """Return the remedy from the entry of docs/how-to/troubleshooting.md that shows these words."""
    (todo,) = [todo for symptom, todo in ENTRIES if words in symptom]
    return str(todo)


@pytest.mark.long  # tests/unit/test_launch.py has the advice
def test_what_is_compiled_below_a_noexec_tmp_is_told_the_way_out(runtime: str, tmp_path: Path) -> None:
    process = run(tmp_path, runtime, COMPILES, *READ_ONLY, "/tmp:noexec")
    assert process.returncode == 1
    assert "/tmp/home-1001/" in process.stderr
    assert "failed to map segment from shared object" in process.stderr
    assert "a mount with noexec, perhaps /tmp: mount it with exec (docker run --tmpfs /tmp:exec)" in advice(process)
    assert "TORCHINDUCTOR_CACHE_DIR" in advice(process)
    todo = told_in_troubleshooting("failed to map segment from shared object")
    assert "--tmpfs /tmp:exec" in todo
    assert "TORCHINDUCTOR_CACHE_DIR" in todo


@pytest.mark.long  # the payload `compile` is built in a /tmp that runs programs, too
@pytest.mark.parametrize(
    "cure",
    [
        (*READ_ONLY, "/tmp:exec"),
        (*READ_ONLY, "/tmp:noexec", "--tmpfs", "/caches:exec,mode=1777", *CACHES),
    ],
    ids=["exec", "caches elsewhere"],
)
def test_each_way_out_is_one(cure: tuple[str, ...], runtime: str, tmp_path: Path) -> None:
    process = run(tmp_path, runtime, COMPILES, *cure)
    assert (process.returncode, process.stdout) == (0, "8.0\n"), process.stderr


@pytest.mark.long  # test_payloads.py has an image without a compiler
def test_without_a_compiler_the_key_of_the_matrix_is_named(runtime: str, tmp_path: Path) -> None:
    process = run(tmp_path, runtime, COMPILES, "--env", "CXX=/no/compiler")
    assert process.returncode == 1
    assert "No working C++ compiler found" in process.stderr
    assert "which this image lacks: use one whose matrix does not say `compiler: false`" in advice(process)
    assert "`compiler: false`" in told_in_troubleshooting("no C++ compiler")


def test_missing_driver_programs_are_named_before_the_start(runtime: str, tmp_path: Path) -> None:
    """Pass only the device file, as `--device /dev/nvidia0` does; a variable declares the CPU image as one for CUDA."""
    arguments = ("--device", "/dev/null:/dev/nvidia0", "--env", "NVIDIA_REQUIRE_CUDA=cuda>=12.0")
    process = run(tmp_path, runtime, "print('ran')\n", *arguments)
    assert (process.returncode, process.stdout) == (0, "ran\n")
    output = "of the driver libcuda.so.1 and libnvidia-ml.so.1 and nvidia-smi are missing"
    assert f"run: there is 1 GPU, but {output}" in process.stderr
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in told_in_troubleshooting("nvidia-smi")
    whole = run(tmp_path, runtime, "print('ran')\n", *arguments[:2])
    assert "of the driver" not in whole.stderr
