"""Torch starts and ends sooner: Python's garbage collector leaves alone what `import torch` makes.

The import makes hundreds of thousands of objects that live as long as the process. The collector would look at all of
them several times while they are made, at each full collection of a training, and again when the process ends. So it
pauses during the import, and then takes what there is for permanent (`gc.freeze`). What a program makes afterwards is
collected as ever.

An image has a copy of this module in its site-packages, where `torchbake.pth` imports it at each start of Python: it
has to be quick. TORCHBAKE_FREEZE=0 leaves all to Python.
"""

import gc
import os
import sys

TYPE_CHECKING = False  # each start of Python would have to load `typing` for its constant
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

# A program that has more objects before the import has been at work. Python has 11,000, with pandas 50,000.
MANY = 200_000


class TorchFinder:
    """Finds torch as the finders behind it do, and lets its import run by `uncollected`."""

    @classmethod
    def find_spec(
        cls, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name != "torch":
            return None
        place = sys.meta_path.index(cls) if cls in sys.meta_path else -1
        for finder in sys.meta_path[place + 1 :]:
            find = getattr(finder, "find_spec", None)  # Python 3.11 has finders of the old kind
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                _wrap(spec)
                return spec
        return None


def _wrap(spec: "ModuleSpec") -> None:
    """To look for torch is not to import it: a loader is as it was once it loads."""
    loader = spec.loader
    load = getattr(loader, "exec_module", None)
    if load is None or not hasattr(loader, "__dict__"):  # of a package for old imports, or of somebody's own making
        return

    def exec_module(module: "ModuleType") -> None:
        vars(loader).pop("exec_module", None)
        if TorchFinder in sys.meta_path:
            sys.meta_path.remove(TorchFinder)
        uncollected(lambda: load(module))

    vars(loader)["exec_module"] = exec_module


def uncollected(work: "Callable[[], None]") -> None:
    """Do what makes objects that stay. Who has turned the collector off keeps it as it is.

    What was there before becomes permanent too. So it stays collected where it may be a program's own and not small:
    in a notebook or at a prompt, and where there is much.
    """
    if not gc.isenabled():
        return work()
    permanent = not _interactive() and len(gc.get_objects()) <= MANY
    if permanent:
        gc.collect()  # garbage would be permanent too
    gc.disable()
    try:
        work()
        if permanent:
            gc.freeze()
    finally:
        gc.enable()
    return None


def _interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or "IPython" in sys.modules


if os.environ.get("TORCHBAKE_FREEZE") != "0":
    sys.meta_path.insert(0, TorchFinder)
