"""The bases of a build: of an image's own platform, and of this machine's, whose programs need no emulation."""

from dataclasses import replace

from torchbake.core.machine import host_platform
from torchbake.matrix.spec import AMD64, NATIVE, BaseSpec, ImageSpec, Spec


def bases_for(spec: Spec) -> tuple[BaseSpec, ...]:
    """Return the bases that a build of an image needs: its own, then that of this machine if its stages use it."""
    if spec.platform == AMD64 or not isinstance(spec, ImageSpec):
        return (spec.base,)
    base, here = spec.base, host_platform()
    if base.platform != here:
        base = replace(base, platform=here, image=base.native_image or base.image, native_image="")
    return (spec.base, base)


def native_contexts(spec: Spec, end: str = "") -> dict[str, BaseSpec]:
    """Return the base of each context for the stages on the platform of the machine that builds, by its name.

    If the image is for another platform, there is a context for each: BuildKit takes the one of the machine that runs
    the build, as a builder may have several. Else there is one, whose name every builder reads. ``end`` is the end of
    the name.
    """
    bases = {base.platform: base for base in bases_for(spec)}
    if len(bases_for(spec)) == 1:
        return {}
    if len(bases) == 1:
        return {f"{NATIVE}{end}": spec.base}
    return {f"{NATIVE}{end}::{platform}": base for platform, base in bases.items()}
