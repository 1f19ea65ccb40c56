"""Assign an image's wheels to the stages of its Dockerfile."""

from torchbake.lock.agreement import BUILT_PER_ACCELERATOR, names_of
from torchbake.lock.lockfile import Lock, Pin, needed_by
from torchbake.matrix.spec import ImageSpec

NEEDS = "needs"
BUILD = "build"


def wheels_by_stage(spec: ImageSpec, lock: Lock) -> dict[str, tuple[Pin, ...]]:
    """Return an image's wheels by the list from which a stage installs them.

    There is a list for each layer, NEEDS for a part of "site", and BUILD for the wheels that build a project.

    NEEDS has the dependencies of torch, of its companions and of the packages that the matrix adds to all images: most
    versions of torch share them. The companions, CUDA's bindings and the row's own packages stay in "site".
    """
    pins, of_all = lock.pins, names_of(spec.pip_of_all)
    needs = needed_by((BUILT_PER_ACCELERATOR | of_all) & pins.keys(), pins.values())
    needs -= BUILT_PER_ACCELERATOR | (names_of(spec.pip) - of_all)
    site_pins = tuple(pin for pin in lock.layers["site"] if pin.name in needs and not pin.name.startswith("cuda-"))
    stages: dict[str, tuple[Pin, ...]] = {str(layer): pins for layer, pins in lock.layers.items()}
    stages["site"] = tuple(pin for pin in stages["site"] if pin not in site_pins)
    return stages | ({NEEDS: site_pins} if site_pins else {}) | ({BUILD: lock.build} if lock.build else {})
