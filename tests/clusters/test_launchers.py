"""The job of all launchers on Kubernetes: by kubectl, and as Helm renders the chart with the values of `job show helm`.

Jobs that 1.20 does not know are lowered for it.
"""

import time
from pathlib import Path

import helm_python
import pytest

from tests.clusters.lowering import lowered
from tests.clusters.space import Space
from tests.e2e.conftest import CPU, ROOT
from tests.e2e.launchers.ended import Ended
from tests.e2e.launchers.job import FAILS, NAME, NODES, TRAINS, check_failed, check_trained, manifest

each_target = pytest.mark.parametrize("target", ["kubernetes", "kubernetes-1.20", "helm"])


def applied(target: str, space: Space, folder: Path, image: str, command: tuple[str, ...]) -> Ended:
    """From `kubectl apply` to the end of the last pod. Every pod has the exit code of the job."""
    more: dict[str, object] = {"resources": {"cpu": "500m", "memory": "2Gi"}}  # the node may have two cores in all
    more |= {} if target == "kubernetes-1.20" else {"restarts": 0}  # 1.20 would start again whatever failed
    text = manifest(target, folder, image, command, **more)
    text = text if target == "kubernetes-1.20" else lowered(chart_with(text, space.name) if target == "helm" else text)
    began = time.monotonic()
    space.kubectl("apply", "--filename=-", stdin=text)
    ended = space.ends()
    seconds = time.monotonic() - began
    (code,) = {each.code for each in ended}
    assert len(ended) == NODES
    return Ended(code=code, seconds=seconds, said="".join(each.log for each in ended))


def chart_with(values: str, namespace: str) -> str:
    """What Helm makes of the chart with these values."""
    chart = helm_python.Chart.load(ROOT / "charts/pytorch")
    texts = chart.render(helm_python.values_from_yaml(values), name=NAME, namespace=namespace)
    return "\n---\n".join(text for name, text in sorted(texts.items()) if name.endswith(".yaml") and text.strip())


@each_target
def test_a_job_trains_to_its_end(target: str, space: Space, built: dict[str, str], tmp_path: Path) -> None:
    check_trained(target, applied(target, space, tmp_path, built[CPU], TRAINS))


@each_target
def test_a_rank_that_fails_gives_the_job_its_exit_code(
    target: str, space: Space, built: dict[str, str], tmp_path: Path
) -> None:
    check_failed(target, applied(target, space, tmp_path, built[CPU], FAILS))
