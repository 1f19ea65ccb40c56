"""Variables of playbooks: plain values for one image, a choice by host for several, and no password on the screen."""

from pathlib import Path

import pytest

from tests.unit.conftest import SMALL
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.hosts.host_images import HostImages, choose
from torchbake.hosts.inventory import InventoryHost
from torchbake.hosts.variables import HostFiles, options_of, printable, variables
from torchbake.hosts.wheels import Wheels
from torchbake.matrix.project import Project, load_project

PIP = PipConfig(index_url="https://me:secret@mirror/simple", find_links=("/srv/wheels",), trusted_hosts=("mirror",))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "matrix.yaml").write_text(SMALL + "indexes: {cpu: https://wheels/cpu}\n")
    return load_project(tmp_path / "matrix.yaml")


def chosen(project: Project, *types: str) -> HostImages:
    hosts = [InventoryHost(name=kind, variables={"pytorch_install_type": kind}) for kind in types]
    return choose(project, hosts)


def carried(images: HostImages, missing: tuple[str, ...] = ("numpy",)) -> HostFiles:
    wheels = {spec.id: Wheels(folder=Path(f"/w/{spec.id}"), missing=missing) for spec in images.images}
    return HostFiles(locks=Path("/p/images"), uv=Path("/bin/uv"), wheels=wheels)


def test_a_host_queries_our_indexes_then_the_accelerators(project: Project) -> None:
    group = chosen(project, "standard")
    lines = variables(group, carried(group), PIP, {"HTTPS_PROXY": "http://p:1", "HOME": "/root"})
    assert lines["pytorch_uv_config"]["index-url"] == "https://wheels/cpu"
    assert lines["pytorch_uv_config"]["extra-index-url"] == ["https://me:secret@mirror/simple"]
    assert "find-links" not in lines["pytorch_uv_config"]
    assert lines["pytorch_environment"] == {"HTTPS_PROXY": "http://p:1"}
    assert lines["pytorch_offline"] is False
    assert lines["pytorch_wheelhouse"] == f"/w/{group.images[0].id}"
    assert lines["pytorch_default_images"] == group.defaults
    assert "pytorch_image" not in lines


def test_no_index_is_queried_if_all_wheels_are_sent(project: Project) -> None:
    group = chosen(project, "standard")
    lines = variables(group, carried(group, missing=()), PIP, {})
    assert lines["pytorch_offline"] is False  # it would forbid uv the download of Python too
    assert lines["pytorch_uv_config"] == {"no-index": True}
    assert "pytorch_environment" not in lines
    assert variables(group, carried(group), PipConfig(no_index=True), {})["pytorch_offline"] is True


def test_what_differs_between_images_is_chosen_by_the_hosts_own(project: Project) -> None:
    group = chosen(project, "standard", "cuda")
    lines = variables(group, carried(group), PIP, {})
    for spec in group.images:
        assert f'"{spec.id}": "/w/{spec.id}"' in lines["pytorch_wheelhouse"]
    assert lines["pytorch_wheelhouse"].endswith("[pytorch_image] }}")
    assert lines["pytorch_offline"] is False


def test_only_what_an_option_asks_for_wins_over_an_inventory(project: Project) -> None:
    group = chosen(project, "standard")
    lines = variables(group, carried(group), PIP, {})
    wheels = {"pytorch_wheelhouse": f"/w/{group.images[0].id}"}
    assert options_of(lines, offline=False, wheelhouse=False) == {}
    assert options_of(lines, offline=False, wheelhouse=True) == wheels
    offline = {"pytorch_offline": True, "pytorch_python_downloads": False}
    assert options_of(lines, offline=True, wheelhouse=False) == {**wheels, **offline}


def test_what_is_shown_has_no_login(project: Project) -> None:
    group = chosen(project, "standard")
    text = str(printable(variables(group, carried(group), PIP, {"HTTP_PROXY": "http://u:pw@p"})))
    assert "https://mirror/simple" in text
    assert "secret" not in text
    assert "pw" not in text
