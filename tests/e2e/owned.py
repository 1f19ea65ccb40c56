"""Owner labels for the engine objects of tests, so that the next run can remove the leftovers of a killed run."""

from torchbake.engine.owner import owner_label

OWNER = "torchbake-test.owner"  # not the toolkit's label, because tests count its leftovers

# The labels of each container, network and volume that lives longer than one call.
OURS = {OWNER: owner_label()}
