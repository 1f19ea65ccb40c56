"""A project whose images have layers that this machine packs, and what packs them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.build.packing import host_of, project_in
from torchbake.build.host_layers import HostLayers
from torchbake.matrix.project import Project


@pytest.fixture
def packing(tmp_path: Path) -> Project:
    return project_in(tmp_path / "project")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[HostLayers]:
    host = host_of(tmp_path)
    yield host
    host.stop()
