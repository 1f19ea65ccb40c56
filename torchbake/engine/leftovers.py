"""What a run left in the engine whose process was killed before it could clean up."""

from torchbake.engine.client import Engine, answering, is_local
from torchbake.engine.containers import OWNER, remove
from torchbake.engine.owner import is_gone


def remove_leftovers(engine: Engine) -> int:
    """Remove what runs left whose process was killed before it could clean up; how many containers and networks."""
    local = is_local(engine)
    with answering():
        filters = {"label": OWNER}
        entries = engine.client.api.containers(all=True, filters=filters) + engine.client.api.networks(filters=filters)
    owners = {(entry.get("Labels") or {}).get(OWNER, "") for entry in entries}
    return sum(remove(engine, OWNER, owner) for owner in owners if is_gone(owner, same_machine=local))
