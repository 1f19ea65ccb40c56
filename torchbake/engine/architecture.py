"""Images for another architecture than that of the engine's machine, whose kernel needs an emulator for them."""

from docker.errors import ImageNotFound

from torchbake.core.machine import architecture_of
from torchbake.engine.client import Engine, answering
from torchbake.errors import EngineError

NO_FORMAT = "exec format error"  # what the kernel says about a program of another architecture

# The processor that qemu plays in containers. It exists, and its vectors have 128 bits as those of GH200, GB200 and DGX
# Spark. With qemu's own choice, vectors of 256 bits or more, torch.compile writes code that crashes Debian 12's g++.
PLAYED_PROCESSOR = {"linux/arm64": "neoverse-n2"}


def foreign_platform(engine: Engine, image: str) -> str:
    """Return the platform of an image that the engine's machine cannot run by itself, such as ``linux/arm64``.

    Return "" for an image of the machine's own architecture. Raises EngineError if there is no such image.
    """
    try:
        with answering():
            attrs = engine.client.images.get(image).attrs
    except ImageNotFound:
        raise EngineError(f"{image} is not in the engine, or was removed.", hint="See: docker images") from None
    architecture = str(attrs.get("Architecture") or "")
    own = architecture_of(str(engine.info.get("Architecture") or ""))
    if not architecture or not own or architecture == own:
        return ""
    return f"{attrs.get('Os') or 'linux'}/{architecture}"


def no_emulator(platform: str = "another architecture") -> str:
    """Return the reason why containers of a platform do not run."""
    return f"the engine's machine does not run programs for {platform}: its kernel has no emulator for them (binfmt)"
