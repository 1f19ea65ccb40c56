"""What a run left in the engine whose process was killed before it could clean up."""

from torchbake.engine.client import Engine, is_local
from torchbake.engine.owner import is_gone
from torchbake.engine.runner import OWNER, owners, remove


def remove_leftovers(engine: Engine, label: str = OWNER) -> int:
    """Remove what runs left that were killed before they could clean up; how many containers, networks and volumes.

    ``label`` is the one by which they say whose they are, as `owner_label` names it.
    """
    local = is_local(engine)
    return sum(remove(engine, label, owner) for owner in owners(engine, label) if is_gone(owner, same_machine=local))
