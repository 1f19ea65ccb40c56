"""Whose things in the engine are that the tests make, so that the next run can remove what a killed one left."""

from torchbake.engine.owner import owner_label

OWNER = "torchbake-test.owner"  # not the toolkit's own label: by that one some tests count what the toolkit left
# The labels of each container, network and volume that lives longer than one call.
OURS = {OWNER: owner_label()}
