"""Both kinds of images have the attributes that callers read of any image."""

import pytest

from torchbake.core.paths import TOOLKIT
from torchbake.matrix.project import load_project
from torchbake.matrix.spec import Spec, pytorch_of

SPECS = {spec.id: spec for spec in load_project(TOOLKIT / "matrix.yaml").expansion.specs}
CPU = SPECS["2.13.0-cpu-runtime-debian12"]
CUDA = SPECS["2.10.0-cuda12.8-cudnn9-devel-debian12"]
INIT = SPECS["volume-permissions"]


@pytest.mark.parametrize(
    ("spec", "family", "template", "flavor", "title", "has_torch"),
    [
        (CPU, "cpu", "pytorch", "runtime", "PyTorch 2.13.0 on the CPU", True),
        (CUDA, "cuda", "pytorch", "devel", "PyTorch 2.10.0 on CUDA 12.8", True),
        (INIT, "cpu", "volume-permissions", None, "Init containers", False),
    ],
    ids=["cpu", "cuda", "init"],
)
def test_what_any_image_answers(
    spec: Spec, family: str, template: str, flavor: str | None, title: str, *, has_torch: bool
) -> None:
    assert (spec.family, spec.template, spec.flavor, spec.title) == (family, template, flavor, title)
    assert (spec.has_torch, spec.from_scratch) == (has_torch, not has_torch)


def test_versions_are_those_of_the_row() -> None:
    assert CPU.versions == {"torch": "2.13.0", "cuda": None, "cudnn": None, "python": "3.11"}
    assert CUDA.versions == {"torch": "2.10.0", "cuda": "12.8", "cudnn": "9", "python": "3.11"}
    assert INIT.versions == {}


def test_the_own_tag_is_the_id_or_an_init_images_release() -> None:
    assert CPU.own_tag == CPU.id
    assert (INIT.own_tag, INIT.own_tag == INIT.id) == (vars(INIT)["release"], False)


def test_the_pytorch_images_are_all_but_the_init_images() -> None:
    assert {*SPECS} - {spec.id for spec in pytorch_of(SPECS.values())} == {INIT.id}
