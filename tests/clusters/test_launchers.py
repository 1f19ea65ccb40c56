"""The job of all launchers on Kubernetes: by kubectl, and as Helm renders the chart with the values of `job show helm`.

Jobs that 1.20 does not know are lowered for it.
"""

import time
from pathlib import Path

import helm_python
import pytest
import yaml

from tests.clusters.lowering import lowered
from tests.clusters.space import Space
from tests.clusters.test_kubernetes import TO_THE_LETTER, no_restarts, submit
from tests.e2e.conftest import CPU
from tests.e2e.launchers.ended import Ended
from tests.e2e.launchers.job import FAILS, NODES, TRAINS, check_failed, check_trained, manifest
from tests.unit.charts.helm import objects

each_target = pytest.mark.parametrize("target", ["kubernetes", TO_THE_LETTER, "helm"])


def applied(target: str, space: Space, folder: Path, image: str, command: tuple[str, ...]) -> Ended:
    """From `kubectl apply` to the end of the last pod. Every pod has the exit code of the job."""
    resources = {"cpu": "500m", "memory": "2Gi"}  # the node may have two cores in all
    text = manifest(target, folder, image, command, resources=resources, **no_restarts(target))
    if target == "helm":
        text = yaml.safe_dump_all(objects(helm_python.values_from_yaml(text), space.name).values())
    began = submit(space, text if target == TO_THE_LETTER else lowered(text))
    ends = space.ends()
    seconds = time.time() - began
    (code,) = {each.code for each in ends}
    assert len(ends) == NODES
    return Ended(code=code, seconds=seconds, output="".join(each.log for each in ends))


@each_target
def test_a_job_trains_to_its_end(target: str, space: Space, built: dict[str, str], tmp_path: Path) -> None:
    check_trained(target, applied(target, space, tmp_path, built[CPU], TRAINS))


@each_target
def test_a_rank_that_fails_gives_the_job_its_exit_code(
    target: str, space: Space, built: dict[str, str], tmp_path: Path
) -> None:
    check_failed(target, applied(target, space, tmp_path, built[CPU], FAILS))
