"""What to set when a script fails alone because it was written for a group."""

import re
from collections.abc import Iterable

# torch's own words, and those of scripts that read the variables themselves.
_NEEDS_A_GROUP = re.compile(
    r"environment variable \w+ expected, but not set"
    r"|KeyError: '(?:RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'"
    r"|Default process group has not been initialized"
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
