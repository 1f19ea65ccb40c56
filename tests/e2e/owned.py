"""What a run of the tests made in the engine, if it was killed before it could remove it."""

import docker

from torchbake.engine.client import Engine
from torchbake.engine.owner import is_gone, owner_label
from torchbake.engine.runner import remove

_OWNER = "torchbake-test.owner"  # not the toolkit's own label: by that one some tests count what the toolkit left
# The labels of each container, network and volume that lives longer than one call.
OURS = {_OWNER: owner_label()}


def remove_what_was_left(client: docker.DockerClient) -> int:
    """Remove what belongs to runs that are no more, a network with a fixed subnet above all; how many things."""
    filters = {"label": _OWNER}
    entries = [*client.api.containers(all=True, filters=filters), *client.api.networks(filters=filters)]
    entries += client.api.volumes(filters=filters)["Volumes"] or []
    owners = {entry["Labels"][_OWNER] for entry in entries}
    return sum(remove(Engine(client), _OWNER, owner) for owner in owners if is_gone(owner, same_machine=True))
