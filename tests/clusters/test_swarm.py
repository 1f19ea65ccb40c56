"""The job of all launchers on a swarm of engines, each in a machine made of Debian's packages."""

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import ROOT
from tests.e2e.launchers.job import FAILS, NAME, TRAINS, check_failed, check_trained, manifest
from tests.e2e.launchers.swarm import Swarm, swarm
from tests.e2e.launchers.tree import NoLauncherError, tree
from tests.e2e.nodes import SLOW

TOOLS = ROOT / ".torchbake/tools"
MACHINES = 2


@pytest.fixture(scope="module")
def machines(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """Each has the image already, as it would pull one."""
    try:
        with swarm(tree(TOOLS), tmp_path_factory.mktemp("swarm"), machines=MACHINES) as value:
            value.load(image)
            yield value
    except NoLauncherError as error:
        pytest.skip(f"a swarm is not here, and cannot be had: {error}")


def test_a_job_trains_to_its_end(machines: Swarm, image: str) -> None:
    check_trained("swarm", machines.run(manifest("swarm", machines.shared, image, TRAINS), NAME, SLOW))
    assert machines.left() == ""


def test_a_rank_that_fails_gives_the_job_its_exit_code(machines: Swarm, image: str) -> None:
    check_failed("swarm", machines.run(manifest("swarm", machines.shared, image, FAILS), NAME, SLOW))
    assert machines.left() == ""
