"""What to do about a failed script, where its last words tell: of a missing group, or of a death at Python's end."""

import re
import signal
from collections.abc import Iterable, Sequence

# torch's own words, and those of scripts that read the variables themselves.
_NEEDS_A_GROUP = re.compile(
    r"environment variable \w+ expected, but not set"
    r"|KeyError: '(?:RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'"
    r"|Default process group has not been initialized"
)

# libstdc++'s words when a thread is ended by force. gloo's threads meet that when they ask for Python's lock while
# Python ends: a DistributedDataParallel keeps them beyond destroy_process_group (pytorch/pytorch, pull request 179291).
_ENDED_BY_FORCE = "terminate called without an active exception"


def advice_at_exit(code: int, words: Sequence[str]) -> str:
    """The next step after the death of a rank whose work was done; empty when its end tells of another."""
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
