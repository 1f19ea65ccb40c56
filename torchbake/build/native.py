"""The bases of a build: of an image's own platform, and of this machine's, whose programs need no emulation."""

from dataclasses import replace

from torchbake.core.machine import host_platform
from torchbake.matrix.spec import AMD64, BaseSpec, ImageSpec, Spec


def bases_for(spec: Spec) -> tuple[BaseSpec, ...]:
    """Return the bases that a build of an image needs: its own, then that of this machine if its stages use it."""
    if spec.platform == AMD64 or not isinstance(spec, ImageSpec):
        return (spec.base,)
    base, here = spec.base, host_platform()
    if base.platform != here:
        base = replace(base, platform=here, image=base.native_image or base.image, native_image="")
    return (spec.base, base)
