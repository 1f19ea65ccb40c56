"""Remove containers, networks, volumes and images of runs that were killed before their cleanup."""

import contextlib
import re

from torchbake.engine.client import Engine
from torchbake.engine.owner import has_ended, owner_label
from torchbake.engine.runner import OWNER, owners, remove
from torchbake.errors import EngineError

LOOPBACK = "torchbake"  # the first part of the path of images that an engine pulls from a run
_LISTED = f"127.0.0.1:*/{LOOPBACK}/*/*"
_NAME = re.compile(rf"127\.0\.0\.1:\d+/{LOOPBACK}/(?P<owner>(?:[0-9a-f]{{2}})+)/[0-9a-f]+[@:].+")


def remove_leftovers(engine: Engine, label: str = OWNER) -> int:
    """Remove the leftovers of killed runs, and return the number of containers, networks and volumes.

    ``label`` is the label with their owner, a value of `owner_label`. Image names of killed builds are removed too.
    """
    local = engine.address.local
    count = sum(remove(engine, label, owner) for owner in owners(engine, label) if has_ended(owner, same_machine=local))
    if label == OWNER:  # last, because an engine removes no image of a running container
        remove_loopback_names(engine)
    return count


def loopback_path(secret: str) -> str:
    """Return the path of a repository that an engine pulls from this process. It contains the process's owner label."""
    return f"{LOOPBACK}/{owner_label().encode().hex() or '00'}/{secret}"


def building_name(secret: str) -> str:
    """Return a name for an image that this process builds and removes. Nothing is ever pulled under it."""
    return f"127.0.0.1:1/{loopback_path(secret)}:building"


def remove_loopback_names(engine: Engine) -> None:
    """Remove the names of images that killed processes built or served to the engine.

    An image of a running container keeps its name until a later run.
    """
    local = engine.address.local
    entries = engine.list_images(filters={"reference": _LISTED})
    names = {name for entry in entries for key in ("RepoTags", "RepoDigests") for name in entry.get(key) or ()}
    for name in names:
        match = _NAME.fullmatch(name)
        if match and has_ended(bytes.fromhex(match["owner"]).decode(errors="replace"), same_machine=local):
            with contextlib.suppress(EngineError):
                engine.remove([name])
