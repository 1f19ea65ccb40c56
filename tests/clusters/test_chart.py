"""The chart on a real Kubernetes node, by Helm itself: installed, changed, and gone without a trace.

Helm asks Kubernetes to take each field that it sends, and 1.20 knows no Indexed Jobs and no reasons for failures. So
here the chart is a service, `kind: statefulset`; its Jobs are those of `job show kubernetes`, as unit tests hold.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.clusters.space import Space, is_ready
from tests.e2e.conftest import CPU, ROOT
from tests.e2e.waiting import until

CHART = ROOT / "charts/pytorch"
SCRIPTS = {"meet.py": ROOT / "tests/e2e/jobs/meet.py", "stay.py": ROOT / "tests/clusters/jobs/stay.py"}


def helm(space: Space, action: str, **told: Any) -> None:
    """Let Helm act on the release demo of this namespace."""
    whole = {"kubeconfig": str(space.node.kubeconfig), "namespace": space.name, "name": "demo", **told}
    command = space.node.reaching(sys.executable, "-m", "tests.clusters.helm", action)
    done = subprocess.run(
        command, cwd=ROOT, input=json.dumps(whole), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def values(image: str, nodes: int, color: str) -> dict[str, Any]:
    repository, _, tag = image.partition(":")
    return {
        "kind": "statefulset",
        "mode": "distributed" if nodes > 1 else "standalone",
        "worldSize": nodes,
        "image": {"repository": repository, "tag": tag},
        "files": {name: path.read_text() for name, path in SCRIPTS.items()},
        "entrypoint": {"file": "stay.py"},
        "extraEnvVars": [{"name": "COLOR", "value": color}],
        "persistence": {"enabled": False},
        "timeouts": {"rendezvous": 120, "stop": 5},
    }


@pytest.mark.parametrize("nodes", [1, 3], ids=["standalone", "distributed"])
def test_it_is_installed_and_changed_and_leaves_nothing(nodes: int, space: Space, built: dict[str, str]) -> None:
    def all_say(color: str) -> bool:
        pods = space.pods()
        if [is_ready(pod) for pod in pods] != [True] * nodes:
            return False
        return all(color in space.kubectl("logs", pod["metadata"]["name"]) for pod in pods)

    helm(space, "install", chart=str(CHART), values=values(built[CPU], nodes, "blue"))
    until(lambda: all_say("color blue"), 120)
    helm(space, "upgrade", chart=str(CHART), values=values(built[CPU], nodes, "green"))
    until(lambda: all_say("color green"), 240)
    helm(space, "uninstall")
    until(lambda: not space.left(), 60)
    until(lambda: not space.containers(), 60)
