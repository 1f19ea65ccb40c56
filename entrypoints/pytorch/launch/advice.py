"""What to do about a failed script, where its last words tell: of a missing group or compiler, of a /tmp that runs
nothing, or of a death at Python's end; and about a driver of which a part is missing."""

import re
import signal
from collections.abc import Iterable, Sequence

from .launch_error import Code
from .limits import THREAD_LIMIT

# torch's own words, and those of scripts that read the variables themselves.
_NEEDS_A_GROUP = re.compile(
    r"environment variable \w+ expected, but not set"
    r"|KeyError: '(?:RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'"
    r"|Default process group has not been initialized"
)

# libstdc++'s words when a thread is ended by force. gloo's threads meet that when they ask for Python's lock while
# Python ends: a DistributedDataParallel keeps them beyond destroy_process_group (pytorch/pytorch, pull request 179291).
_ENDED_BY_FORCE = "terminate called without an active exception"

# Python's words, OpenBLAS's, and libgomp's.
_NO_THREAD = re.compile(r"can't start new thread|pthread_create failed|Thread creation failed")

# Of what is compiled while a script runs: the loader's words for a library on such a mount; Inductor's and Triton's.
_NOEXEC = "failed to map segment from shared object"
_NO_COMPILER = re.compile(r"No working C\+\+ compiler found|Failed to find C compiler")


def advice_at_exit(code: int, words: Sequence[str]) -> str:
    """The next step after the death of a rank, where its last words tell of one; else empty."""
    if any(_NOEXEC in line for line in words):
        return (
            "what was compiled lies on a mount with noexec, perhaps /tmp: mount it with exec (docker run --tmpfs "
            "/tmp:exec), or set TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR to folders on another."
        )
    if code == Code.NO_PROCESS or any(_NO_THREAD.search(line) for line in words):
        return f"a thread or a process could not be started: {THREAD_LIMIT}."
    if any(_NO_COMPILER.search(line) for line in words):
        return "torch.compile and Triton need a compiler, which this image lacks: use its devel flavor."
    if code != 128 + signal.SIGABRT or not words or _ENDED_BY_FORCE not in words[-1]:
        return ""
    return (
        "a thread of PyTorch's was still running when Python ended, perhaps after the script's last line: "
        "let the script flush its output and end with os._exit(0)."
    )


def advice_of(words: Iterable[str], *, mode: str) -> str:
    """The next step after these last words of a standalone script; empty when they tell of something else.

    ``mode`` is the variable MODE as it was set.
    """
    if not any(_NEEDS_A_GROUP.search(line) for line in words):
        return ""
    unset = "unset MODE and " if mode else ""
    return (
        f"the script needs a process group, and nothing asked for one: {unset}set NNODES=1 for a group of one, "
        "or NPROC_PER_NODE to the processes of this node (auto: one for each GPU)."
    )


def advice_on_driver(gpus: int, missing: Sequence[str]) -> str:
    """The next step where GPUs are there and parts of their driver are not; else empty."""
    if not gpus or not missing:
        return ""
    return (
        f"there {'is 1 GPU' if gpus == 1 else f'are {gpus} GPUs'}, but of the driver {' and '.join(missing)} "
        f"{'is' if len(missing) == 1 else 'are'} missing: start the container by NVIDIA's Container Toolkit "
        "(docker run --gpus all), with NVIDIA_DRIVER_CAPABILITIES=compute,utility."
    )
