"""Advice on a failed script, from its last lines of stderr, and on a GPU driver with missing parts."""

import ctypes
import re
import shutil
import signal
from collections.abc import Iterable, Mapping, Sequence

from .launch_error import Code
from .limits import THREAD_LIMIT

# The messages of torch, and the KeyError of scripts that read the variables themselves.
_NEEDS_A_GROUP = re.compile(
    r"environment variable \w+ expected, but not set"
    r"|KeyError: '(?:RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'"
    r"|Default process group has not been initialized"
)

# libstdc++'s message when a thread is ended by force. Python does so at its exit with threads of gloo that ask for its
# lock. A DistributedDataParallel keeps them beyond destroy_process_group (pytorch/pytorch, pull request 179291).
_ENDED_BY_FORCE = "terminate called without an active exception"

# The messages of Python, OpenBLAS and libgomp.
_NO_THREAD = re.compile(r"can't start new thread|pthread_create failed|Thread creation failed")

# The loader's message for a library on a noexec mount; those of Inductor and Triton without a compiler, and of
# torch.utils.cpp_extension and Triton before 3.3 without setuptools.
_NOEXEC = "failed to map segment from shared object"
_NO_COMPILER = re.compile(r"No working C\+\+ compiler found|Failed to find C compiler")
_NO_SETUPTOOLS = "No module named 'setuptools'"


def advice_at_exit(code: int, words: Sequence[str]) -> str:
    """Return the next step after a rank's failure; empty if its exit code and last lines show none."""
    if any(_NOEXEC in line for line in words):
        return (
            "compiled code is on a mount with noexec, perhaps /tmp: mount it with exec (docker run --tmpfs /tmp:exec), "
            "or set TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR to folders on another mount."
        )
    if code == Code.NO_PROCESS or any(_NO_THREAD.search(line) for line in words):
        return f"a thread or a process could not be started: {THREAD_LIMIT}."
    if any(_NO_COMPILER.search(line) for line in words):
        return (
            "torch.compile and Triton need gcc and g++, which this image lacks: use one whose matrix does not say "
            "`compiler: false` for it."
        )
    if any(_NO_SETUPTOOLS in line for line in words):
        return "torch.compile and extensions need setuptools, which this image lacks: add it to its matrix or project."
    if code != 128 + signal.SIGABRT or not words or _ENDED_BY_FORCE not in words[-1]:
        return ""
    return (
        "a thread of PyTorch's was still running when Python ended, perhaps after the script's last line: "
        "let the script flush its output and end with os._exit(0)."
    )


def advice_of(words: Iterable[str], *, mode: str) -> str:
    """Return the next step if these last lines of a standalone script ask for a process group; else empty.

    ``mode`` is the value of the variable MODE.
    """
    if not any(_NEEDS_A_GROUP.search(line) for line in words):
        return ""
    unset = "unset MODE and " if mode else ""
    return (
        f"the script needs a process group, and nothing asked for one: {unset}set NNODES=1 for a group of one, "
        "or NPROC_PER_NODE to the processes of this node (auto: one for each GPU)."
    )


def missing_driver_parts(env: Mapping[str, str]) -> list[str]:
    """List the parts of the GPU driver that this container lacks; none for an image that uses no GPU."""
    if "NVIDIA_REQUIRE_CUDA" not in env:
        return []
    libraries = [name for name in ("libcuda.so.1", "libnvidia-ml.so.1") if not _loads(name)]
    return libraries + ([] if shutil.which("nvidia-smi", path=env.get("PATH")) else ["nvidia-smi"])


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def advice_on_driver(gpus: int, missing: Sequence[str]) -> str:
    """Return the next step if the container has GPUs and lacks parts of their driver; else empty."""
    if not gpus or not missing:
        return ""
    return (
        f"there {'is 1 GPU' if gpus == 1 else f'are {gpus} GPUs'}, but of the driver {' and '.join(missing)} "
        f"{'is' if len(missing) == 1 else 'are'} missing: start the container by NVIDIA's Container Toolkit "
        "(docker run --gpus all), with NVIDIA_DRIVER_CAPABILITIES=compute,utility."
    )
