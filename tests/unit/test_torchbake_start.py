"""Garbage collection in an image's Python while it imports torch: a torch of a few lines."""

import gc
import importlib.machinery
import importlib.util
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from layers.wheels import torchbake_start as start

# An image only imports the module. It must not find another test's torch.
sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not start.TorchFinder]

TORCH = """\
import gc
COLLECTED = gc.isenabled()
LOADER = __loader__
ring = []
ring.append(ring)
"""


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """A collector that is on. The objects of pytest and of other tests are permanent, so a collection is quick."""
    gc.freeze()
    yield
    gc.enable()
    sys.modules.pop("torch", None)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The objects of a program that begins, and none of a prompt: pytest has more."""
    monkeypatch.setattr(start, "MANY", 10_000_000)
    monkeypatch.delattr(sys, "ps1", raising=False)
    monkeypatch.delitem(sys.modules, "IPython", raising=False)


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a torch that the next import finds by `TorchFinder`."""
    file = tmp_path / "torch.py"
    file.write_text(TORCH)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "meta_path", [start.TorchFinder, *sys.meta_path])
    importlib.invalidate_caches()
    return file


def import_torch() -> ModuleType:
    return importlib.import_module("torch")


def is_permanent(value: object) -> bool:
    return not any(one is value for one in gc.get_objects())


@pytest.mark.usefixtures("torch", "few")
def test_the_collector_pauses_for_the_import_and_freezes_objects() -> None:
    earlier: list[object] = []
    assert not is_permanent(earlier)
    torch = import_torch()
    assert not torch.COLLECTED
    assert gc.isenabled()
    assert is_permanent(earlier)
    assert is_permanent(torch.ring)
    later: list[object] = []
    assert not is_permanent(later), "objects that a program makes afterwards are collected"


@pytest.mark.usefixtures("torch", "few")
def test_garbage_from_before_is_collected_and_not_kept() -> None:
    class Garbage:
        pass

    one = Garbage()
    one.itself = one  # type: ignore[attr-defined]
    reference = weakref.ref(one)
    del one
    import_torch()
    assert reference() is None


@pytest.mark.usefixtures("few")
def test_torch_has_its_own_loader_and_no_finder_stays(torch: Path) -> None:
    value = import_torch()
    assert value.__file__ == str(torch)
    assert type(value.LOADER) is importlib.machinery.SourceFileLoader
    assert "exec_module" not in vars(value.LOADER)
    assert start.TorchFinder not in sys.meta_path


@pytest.mark.usefixtures("torch", "few")
def test_to_look_for_torch_changes_nothing_of_a_later_import() -> None:
    assert importlib.util.find_spec("torch")
    assert "torch" not in sys.modules
    assert not import_torch().COLLECTED


@pytest.mark.usefixtures("torch", "few")
def test_old_finders_and_a_second_copy_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(start.TorchFinder):
        pass

    monkeypatch.setattr(sys, "meta_path", [Other, start.TorchFinder, object(), *sys.meta_path[1:]])
    assert not import_torch().COLLECTED


@pytest.mark.usefixtures("few")
def test_a_failing_torch_import_raises_and_keeps_the_collector(torch: Path) -> None:
    earlier: list[object] = []
    torch.write_text("raise OSError('libtorch.so: cannot open shared object file')")
    with pytest.raises(OSError, match="cannot open shared object file"):
        import_torch()
    assert gc.isenabled()
    assert not is_permanent(earlier)


@pytest.mark.usefixtures("few")
def test_where_no_torch_is_the_import_fails_as_ever(torch: Path) -> None:
    torch.unlink()
    sys.path[:] = [str(torch.parent)]
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError, match="No module named 'torch'"):
        import_torch()


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("what", ["a prompt", "a notebook", "a program at work"])
def test_nothing_is_frozen_if_a_program_has_its_own_objects(
    what: str, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier: list[object] = []
    if what == "a prompt":
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    elif what == "a notebook":
        monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    else:
        monkeypatch.setattr(start, "MANY", 1)
    assert not import_torch().COLLECTED, "the pause does no harm there either"
    assert gc.isenabled()
    assert not is_permanent(earlier)


@pytest.mark.usefixtures("torch", "few")
def test_a_disabled_collector_stays_disabled_without_freezing() -> None:
    earlier: list[object] = []
    gc.disable()
    import_torch()
    assert not gc.isenabled()
    assert not is_permanent(earlier)


def test_a_loader_that_keeps_nothing_is_left_alone() -> None:
    class Loader:
        __slots__ = ()

        def exec_module(self, module: ModuleType) -> None:
            """As a loader in C would."""

    spec = importlib.machinery.ModuleSpec("torch", Loader())  # type: ignore[arg-type]
    start._wrap(spec)
    assert isinstance(spec.loader, Loader)


@pytest.mark.parametrize(("value", "there"), [("0", False), ("1", True), (None, True)])
def test_a_variable_leaves_all_to_python(value: str | None, there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHBAKE_FREEZE", raising=False)
    if value is not None:
        monkeypatch.setenv("TORCHBAKE_FREEZE", value)
    monkeypatch.setattr(sys, "meta_path", [])
    space: dict[str, object] = {"__name__": "torchbake_start"}
    exec(compile(Path(start.__file__).read_text(), start.__file__, "exec"), space)
    assert bool(sys.meta_path) is there
