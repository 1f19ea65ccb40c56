"""Hosts that cannot get what an image has are refused before one is reached."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.conftest import SMALL, cpu_pins, lock_for
from torchbake.errors import HostError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.hosts import prepare
from torchbake.hosts.host_images import choose
from torchbake.hosts.inventory import InventoryHost
from torchbake.matrix.project import load_project


def test_a_project_with_packages_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "matrix.yaml").write_text(SMALL)
    project = load_project(tmp_path / "matrix.yaml")
    images = choose(project, [InventoryHost(name="one", variables={"pytorch_install_type": "standard"})])
    (spec,) = images.images
    lock = replace(lock_for(spec, cpu_pins()), packages=(".", "packages/core"))
    monkeypatch.setattr(prepare, "read_lock", lambda *_: lock)
    with pytest.raises(HostError, match=rf"matrix\.yaml:{spec.line}: {spec.id} .*\(\., packages/core\)"):
        prepare.HostPreparation(project=project, pip=PipConfig()).variables(images)
