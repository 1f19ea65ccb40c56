"""Read the inventory of any image, with its progress."""

import time

from torchbake.commands._image_location import ImageLocation, ReadsImages
from torchbake.contents.gpu_code import gpu_code_of
from torchbake.contents.layer_cache import LayerCache
from torchbake.contents.model import Inventory
from torchbake.contents.progress import ReadProgress
from torchbake.contents.read import ImageReader
from torchbake.contents.scan import LayerScanner
from torchbake.core.machine import host_platform
from torchbake.core.paths import CONTENTS, cache_folder
from torchbake.core.signals import interruptible
from torchbake.core.sizes import human
from torchbake.errors import TorchbakeError
from torchbake.ui.progress_board import board


def inventory_of(args: ReadsImages, location: ImageLocation) -> Inventory:
    """Read the contents of an image. Raises TorchbakeError if it cannot be read, or is for another platform."""
    text, start = location.text, time.monotonic()
    layers = LayerCache(folder=cache_folder() / CONTENTS, scanner=LayerScanner(gpu_code=gpu_code_of))
    with interruptible(), board(1, doing="reading") as progress:
        progress.start(text, location.place)
        count = ReadProgress(lambda state: progress.look(text, state))
        reader = ImageReader(
            platform=args.platform or host_platform(), only_platform=bool(args.platform), cache=layers, progress=count
        )
        try:
            inventory = location.read(reader)
        except TorchbakeError:
            progress.end(text, "failed", good=False)  # the command ends with the error itself
            raise
        size = f"{len(inventory.layers)} layers, {len(inventory.files)} files, {human(inventory.size)}"
        progress.end(text, f"{size}, {location.place}, in {time.monotonic() - start:.1f} s", good=True)
    return inventory
