"""Excludes the objects of `import torch` from garbage collection, so that torch starts and ends sooner.

The import makes hundreds of thousands of objects that live as long as the process. The collector would traverse them
several times during the import, at each full collection, and again at the end of the process. So it pauses during the
import, and then the present objects become permanent (`gc.freeze`). Later objects are collected as usual.

An image has a copy of this module in its site-packages, where `torchbake.pth` imports it at each start of Python, so it
has to be fast. TORCHBAKE_FREEZE=0 disables it.
"""

import gc
import os
import sys

TYPE_CHECKING = False  # each start of Python would have to load `typing` for its constant
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

# With more objects before the import, the program has done other work. Python has 11,000, with pandas 50,000.
MANY = 200_000


class TorchFinder:
    """Finds torch by the finders after it, and runs its import by `uncollected`."""

    @classmethod
    def find_spec(
        cls, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name != "torch":
            return None
        place = sys.meta_path.index(cls) if cls in sys.meta_path else -1
        for finder in sys.meta_path[place + 1 :]:
            find = getattr(finder, "find_spec", None)  # Python 3.11 still has finders without it
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                _wrap(spec)
                return spec
        return None


def _wrap(spec: "ModuleSpec") -> None:
    """Replace the loader's `exec_module` until torch is imported, as a program may only search for torch."""
    loader = spec.loader
    load = getattr(loader, "exec_module", None)
    if load is None or not hasattr(loader, "__dict__"):  # an old or unusual loader
        return

    def exec_module(module: "ModuleType") -> None:
        vars(loader).pop("exec_module", None)
        if TorchFinder in sys.meta_path:
            sys.meta_path.remove(TorchFinder)
        uncollected(lambda: load(module))

    vars(loader)["exec_module"] = exec_module


def uncollected(work: "Callable[[], None]") -> None:
    """Do the work without garbage collection, and make all present objects permanent.

    Earlier objects become permanent too. So nothing is frozen in a notebook, at a prompt, or if there are already many
    objects. A collector that the program has disabled stays so.
    """
    if not gc.isenabled():
        return work()
    permanent = not _interactive() and len(gc.get_objects()) <= MANY
    if permanent:
        gc.collect()  # else garbage would become permanent
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
