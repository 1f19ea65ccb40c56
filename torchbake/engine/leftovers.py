"""What a run left in the engine whose process was killed before it could clean up."""

import contextlib
import re

from torchbake.engine.client import Engine, answering
from torchbake.engine.owner import is_gone, owner_label
from torchbake.engine.runner import OWNER, owners, remove

LOOPBACK = "torchbake"  # the first part of the path of images that an engine pulls from a run
_LISTED = f"127.0.0.1:*/{LOOPBACK}/*/*"
_NAME = re.compile(rf"127\.0\.0\.1:\d+/{LOOPBACK}/(?P<owner>(?:[0-9a-f]{{2}})+)/[0-9a-f]+[@:].+")


def remove_leftovers(engine: Engine, label: str = OWNER) -> int:
    """Remove what runs left that were killed before they could clean up; how many containers, networks and volumes.

    ``label`` is the one by which they say whose they are, as `owner_label` names it. Names of images that a killed
    build pulled or built go too.
    """
    local = engine.address.local
    if label == OWNER:
        remove_loopback_names(engine)
    return sum(remove(engine, label, owner) for owner in owners(engine, label) if is_gone(owner, same_machine=local))


def loopback_path(secret: str) -> str:
    """Return the path of a repository that an engine pulls from this process; it tells the process."""
    return f"{LOOPBACK}/{owner_label().encode().hex() or '00'}/{secret}"


def building_name(secret: str) -> str:
    """Return a name for an image that this process builds and removes. Nothing is ever pulled under it."""
    return f"127.0.0.1:1/{loopback_path(secret)}:building"


def remove_loopback_names(engine: Engine) -> None:
    """Remove the names, and images without others, that killed processes pulled from themselves or built."""
    local = engine.address.local
    with answering():
        entries = engine.client.api.images(filters={"reference": _LISTED})
    names = {name for entry in entries for key in ("RepoTags", "RepoDigests") for name in entry.get(key) or ()}
    for name in names:
        match = _NAME.fullmatch(name)
        if match and is_gone(_owner(match["owner"]), same_machine=local):
            engine.remove([name])


def _owner(text: str) -> str:
    with contextlib.suppress(UnicodeDecodeError):
        return bytes.fromhex(text).decode()
    return ""
