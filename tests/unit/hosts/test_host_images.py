"""A host's image is the command line's, its own, or what its install type means; another is refused with its name."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import SMALL, edited
from torchbake.core.paths import TOOLKIT
from torchbake.errors import HostError
from torchbake.hosts.host_images import choose, default_images
from torchbake.hosts.inventory import InventoryHost
from torchbake.matrix.project import Project, load_project

CPU, CUDA = "2.13.0-cpu-runtime-debian12", "2.15.0-cuda13.2-cudnn9-runtime-debian12"


@pytest.fixture(scope="module")
def project() -> Project:
    return load_project(TOOLKIT / "matrix.yaml")


def host(**variables: Any) -> InventoryHost:
    return InventoryHost(name="a", variables=variables)


def test_an_install_type_is_the_newest_torch_by_shortest_tag(project: Project) -> None:
    defaults = default_images(project)
    assert {"cpu"} <= {*project.tags[defaults["standard"].id]}
    assert {"latest"} <= {*project.tags[defaults["cuda"].id]}


def test_an_image_for_arm64_alone_is_no_default_of_others(tmp_path: Path) -> None:
    path, row = (
        tmp_path / "matrix.yaml",
        "  - {torch: 2.14.0, accelerator: cpu, base: debian12, platforms: linux/arm64}\n",
    )
    path.write_text(edited("rows:\n", f"rows:\n{row}"))
    assert default_images(load_project(path))["standard"].id == CPU
    path.write_text(SMALL.replace("defaults:\n", "defaults:\n  platforms: linux/arm64\n", 1))
    assert default_images(load_project(path))["standard"].id == f"{CPU}-arm64"


def test_a_host_wins_over_its_type(project: Project) -> None:
    other = "2.7.1-cuda12.6-cudnn9-runtime-debian12"
    inventories = [
        host(),
        host(pytorch_install_type="cuda"),
        host(pytorch_image=other, pytorch_install_type="standard"),
    ]
    matches = [choose(project, [each]).of_host["a"].id for each in inventories]
    assert matches == [default_images(project)["standard"].id, default_images(project)["cuda"].id, other]


def test_an_inventorys_own_table_says_what_an_install_type_means(project: Project) -> None:
    other = "2.7.1-cuda12.6-cudnn9-runtime-debian12"
    own = {"pytorch_default_images": {"cuda": other}}
    assert choose(project, [host(**own, pytorch_install_type="cuda")]).of_host["a"].id == other
    with pytest.raises(HostError, match="pytorch_install_type is 'standard'"):
        choose(project, [host(**own)])


def test_images_are_those_of_hosts_each_once(project: Project) -> None:
    hosts = [InventoryHost(name=str(number), variables={}) for number in range(3)]
    assert len(choose(project, hosts).images) == 1


@pytest.mark.parametrize(
    ("variables", "near"),
    [({"pytorch_image": "2.13.0-cpu-runtime-debian1"}, "debian12"), ({"pytorch_install_type": "gpu"}, "cuda")],
)
def test_what_the_matrix_does_not_have_is_told_with_the_host(project: Project, variables: Any, near: str) -> None:
    with pytest.raises(HostError, match="a: pytorch_") as report:
        choose(project, [host(**variables)])
    assert near in (report.value.hint or "")
