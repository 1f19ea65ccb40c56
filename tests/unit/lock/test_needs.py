"""The stages of an image's wheels: torch's dependencies, and other packages."""

from tests.unit.conftest import image, lock_for, pin
from torchbake.lock.lockfile import LAYERS
from torchbake.lock.needs import NEEDS, wheels_by_stage


def test_wheels_by_stage_follow_the_needs_of_torch() -> None:
    spec = image(
        pip=("torchvision", "Setuptools>=70", "wheel", "pandas", "rich"), pip_of_all=("Setuptools>=70", "rich")
    )
    pins = [
        pin("torch"), pin("triton", via=["torch"]), pin("sympy", via=["torch"]), pin("mpmath", via=["sympy"]),
        pin("torchvision"), pin("numpy", via=["pandas", "torchvision"]),
        pin("cuda-bindings", via=["torch"]), pin("cuda-pathfinder", via=["cuda-bindings"]),
        pin("setuptools"), pin("rich"), pin("pygments", via=["rich"]),  # all images have them
        pin("wheel"), pin("packaging", via=["wheel"]), pin("pandas"), pin("pytz", via=["pandas"]),
    ]  # fmt: skip
    lock = lock_for(spec, pins)
    stages = wheels_by_stage(spec, lock)
    assert [actual.name for actual in stages[NEEDS]] == ["mpmath", "numpy", "pygments", "rich", "setuptools", "sympy"]
    assert {*stages[NEEDS], *stages["site"]} == {*lock.layers["site"]}
    assert len(stages["site"]) == len(lock.layers["site"]) - len(stages[NEEDS])
    assert {layer: stages[layer] for layer in LAYERS if layer != "site"} == {
        layer: lock.layers[layer] for layer in LAYERS if layer != "site"
    }


def test_a_row_of_torch_alone_needs_nothing_more() -> None:
    lock = lock_for(image(), [pin("torch")])
    assert wheels_by_stage(image(), lock) == lock.layers
