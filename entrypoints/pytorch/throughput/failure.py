"""The failures of a measurement: a sentence each, with the reason and the next step."""

import re
import sys
from collections.abc import Sequence

_SHARED_MEMORY = re.compile(r"Bus error|shared memory|No space left on device")
_WORKER_ENDED = re.compile(r"DataLoader worker .*(?:exited unexpectedly|killed by signal)")
# Messages of torch's allocator, CUDA, cuBLAS, cuDNN and NCCL.
_GPU_MEMORY = re.compile(
    r"CUDA (?:error: )?out of memory|(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED|Cuda failure.*out of memory"
)
_MEMORY = re.compile(r"can't allocate memory|not enough memory|Cannot allocate memory|bad_alloc")
_UNKNOWN_DTYPE = re.compile(r"not (?:implemented|supported) for '?(Half|BFloat16)'?")
_OURS = ("Failure", "ModelError", "NotRun", "Wrong")  # their messages are sentences


class Failure(Exception):  # noqa: N818 - it is how a measurement ends
    """Ends the measurement; the message says why, and what to do."""


class OutOfMemory(Failure):
    """The batch does not fit into the memory of the device, or of the container."""


def lacks_memory(error: BaseException) -> bool:
    """Return True if the memory of the device or of the container is too small, so that a smaller batch may help."""
    kinds, text = [kind.__name__ for kind in type(error).__mro__], str(error)
    if _own_words(kinds, text):
        return isinstance(error, OutOfMemory)
    of_loader = _WORKER_ENDED.search(text) or _SHARED_MEMORY.search(text)
    known_names = {"OutOfMemoryError", "MemoryError"} & {*kinds}
    return bool(known_names or _GPU_MEMORY.search(text) or (_MEMORY.search(text) and not of_loader))


def reason_of(error: BaseException, *, batch_size: int, dtype: str, device: str) -> str:
    """Return the sentence for an error of torch, of a loader's worker or of `bench`; empty if it is unknown."""
    text = str(error)
    kinds = [kind.__name__ for kind in type(error).__mro__]
    no_torch = isinstance(error, ModuleNotFoundError) and error.name == "torch"
    hint = f"{sys.executable} has no torch: install it there, or start `bench` with a Python that has it."
    if known_value := _own_words(kinds, text) or (hint if no_torch else ""):
        return known_value
    if "OutOfMemoryError" in kinds or _GPU_MEMORY.search(text):
        return (
            f"The memory of the GPU is too small for a batch of {batch_size} in {dtype} ({_first(text)}): lower "
            "--batch_size, or choose --dtype bfloat16."
        )
    if _WORKER_ENDED.search(text) or _SHARED_MEMORY.search(text):
        return _worker(text)
    if "MemoryError" in kinds or _MEMORY.search(text):
        return (
            f"The memory is too small for a batch of {batch_size} in {dtype} ({_first(text)}): lower --batch_size, or "
            "raise the container's limit (docker run --memory)."
        )
    if _UNKNOWN_DTYPE.search(text):
        return (
            f"The {'GPU' if device == 'gpu' else 'CPU'} cannot compute this model in {dtype} ({_first(text)}): choose "
            "--dtype float32 or another device."
        )
    return ""


def kill_message(reason: str, *, out_of_memory: bool) -> str:
    """Return the sentence for a process that ended without a result."""
    if not was_killed(reason):
        return f"The measurement broke off: {reason}. What was printed before says more."
    why = "for lack of memory" if out_of_memory else "most likely for lack of memory"
    return (
        f"The kernel killed the measurement, {why}: lower --batch_size, or raise the limit of memory "
        "(docker run --memory)."
    )


def was_killed(reason: str) -> bool:
    """Return True if the process ended by SIGKILL, as if the kernel had killed it for lack of memory."""
    return "SIGKILL" in reason


def _own_words(kinds: Sequence[str], text: str) -> str:
    """Return the sentence of an exception of `bench`; a worker's exception has it in the last line of a traceback."""
    own = next((kind for kind in kinds if kind in _OURS), "")
    if not own:
        return ""
    *_, last = text.strip().splitlines() or [""]
    sentence = last.partition(f"{own}: ")[2] if text.startswith("Caught ") else text
    return sentence[:1].upper() + sentence[1:]


def _worker(text: str) -> str:
    if "nccl" in text.lower() and not _WORKER_ENDED.search(text):
        return (
            "NCCL has too little shared memory in /dev/shm: start the container with more (docker run --shm-size 1g)."
        )
    if _SHARED_MEMORY.search(text):
        return (
            "The loader's processes have too little shared memory in /dev/shm for their batches: start the container "
            "with more (docker run --shm-size 1g), or lower --num_loader_threads or --batch_size."
        )
    return (
        f"A process of the loader was killed, most likely for lack of memory ({_first(text)}): lower "
        "--num_loader_threads, or raise the container's limit (docker run --memory)."
    )


def _first(text: str) -> str:
    """Return the first sentence of an error in one line."""
    words = " ".join(text.split())
    return words.split(". ")[0].rstrip(".")[:200]
