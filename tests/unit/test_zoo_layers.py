"""Layers of the benchmark's models that have no parameters, which no count would tell; without torch."""

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

PACKAGE = "entrypoints.pytorch.throughput.zoo"


class Layer:
    """A layer of any kind that knows how it was made."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.made = (type(self).__name__, arguments, options)
        self.inside = [argument for argument in arguments if isinstance(argument, Layer)]

    def modules(self) -> Iterator["Layer"]:
        return iter(())  # none has weights to draw


class Kinds(ModuleType):
    """In the place of torch.nn: it has a layer of every name."""

    def __getattr__(self, name: str) -> type[Layer]:
        kind = type(name, (Layer,), {})
        setattr(self, name, kind)
        return kind


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Loads a family of the zoo; afterwards none is loaded."""
    torch: Any = ModuleType("torch")
    torch.nn, torch.Tensor = Kinds("torch.nn"), object
    for name, module in (("torch", torch), ("torch.nn", torch.nn)):
        monkeypatch.setitem(sys.modules, name, module)

    def family(name: str) -> Any:
        for each in (f"{PACKAGE}.layers", f"{PACKAGE}.{name}"):
            monkeypatch.setitem(sys.modules, each, ModuleType(each))  # so that it is forgotten afterwards
            del sys.modules[each]
        return importlib.import_module(f"{PACKAGE}.{name}")

    return family


@pytest.mark.parametrize(("normalised", "last", "dropout"), [(False, 3, 0.4), (True, 2, 0.2)])
def test_googlenet_pools_and_drops_as_in_paper_or_torchvision(
    load: Callable[[str], Any], normalised: bool, last: int, dropout: float
) -> None:
    items = [layer.made for layer in load("googlenet").GoogLeNet(normalised=normalised).inside]
    pools = [(arguments, options) for kind, arguments, options in items if kind == "MaxPool2d"]
    assert pools == [((size,), {"stride": 2, "ceil_mode": True}) for size in (3, 3, 3, last)]
    assert ("Dropout", (dropout,), {}) in items
