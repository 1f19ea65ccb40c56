"""Which wheels of an image's environment are there for torch, and the same for many versions of it."""

from torchbake.lock.agreement import BUILT_PER_ACCELERATOR, names_of
from torchbake.lock.lockfile import Lock, Pin, needed_by
from torchbake.matrix.spec import ImageSpec

NEEDS = "needs"


def wheels_by_stage(spec: ImageSpec, lock: Lock) -> dict[str, tuple[Pin, ...]]:
    """An image's wheels by the stage of its Dockerfile that installs them: its layers, and NEEDS, a part of the site.

    That part is what torch, its own libraries and the matrix for all its images ask for, directly or through others.
    What changes with a version of torch, a row or a flavor stays in the site: those libraries, CUDA's bindings, and
    what else the row asks for.
    """
    pins, of_all = lock.pins, names_of(spec.pip_of_all)
    needed = needed_by((BUILT_PER_ACCELERATOR | of_all) & pins.keys(), pins.values())
    needed -= BUILT_PER_ACCELERATOR | (names_of(spec.pip) - of_all)
    found = tuple(pin for pin in lock.layers["site"] if pin.name in needed and not pin.name.startswith("cuda-"))
    stages: dict[str, tuple[Pin, ...]] = {str(layer): pins for layer, pins in lock.layers.items()}
    stages["site"] = tuple(pin for pin in stages["site"] if pin not in found)
    return stages | ({NEEDS: found} if found else {})
