"""The options of commands that read any image, and the inventory of an image by its name on the command line."""

from dataclasses import dataclass
from typing import Literal

from torchbake.commands import _options as opt
from torchbake.contents.model import Inventory
from torchbake.contents.scan import ReadGpuCode

_GROUP = "where the image is"
IMAGE_HELP = (
    "an image of the matrix (cpu, an id), any reference (pytorch/pytorch:latest), a folder with an OCI image layout, "
    "or an archive of `docker save`"
)


@dataclass(frozen=True, kw_only=True)
class WithImageContents(opt.Common):
    """The options of a command that reads what images hold."""

    place: Literal["engine", "registry"] | None = opt.option(
        "read a reference from there (default: from the engine if it has the image, else from the registry)",
        "--from", group=_GROUP, metavar="engine|registry",
    )  # fmt: skip
    platform: str = opt.option(
        "of an image for several platforms (default: that of this machine)", group=_GROUP, metavar="OS/ARCHITECTURE"
    )
    plain_http: bool = opt.plain_http(group=_GROUP)


def inventory_of(args: WithImageContents, text: str, gpu_code: ReadGpuCode | None = None) -> Inventory:
    """Read all that an image holds. ``gpu_code`` reads the GPU code of an ELF file; without it no file has any.

    Raises TorchbakeError if no place has the image, or if the image cannot be read.
    """
    raise NotImplementedError
