"""Training of three nodes on a real node of Kubernetes, by our manifests or by the control's."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.clusters.control.manifest import manifest as control
from tests.clusters.lowering import lowered
from tests.clusters.space import SLOW, Space
from tests.e2e.conftest import CPU, torchbake
from tests.e2e.waiting import until

OURS, PLAIN, CHARTS = "ours", "a plain StatefulSet", "a StatefulSet as in the charts"
WAYS = (OURS, PLAIN, CHARTS)
SCRIPT = Path(__file__).parents[1] / "jobs/lasting.py"
RANKS = range(3)

Step = tuple[float, int]  # when, and its number


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training job; ``folder`` is the volume of its checkpoints, as a path of the host."""

    space: Space
    folder: Path
    image: str

    def manifest(self, way: str, *args: int, restarts: int) -> str:
        """Our Jobs of Kubernetes 1.20 start nothing again; where that is asked for, those of newer ones are lowered."""
        if way != OURS:
            self.space.kubectl("create", "configmap", "scripts", f"--from-file={SCRIPT}")
            return control(self.image, " ".join([SCRIPT.name, *map(str, args)]), as_charts=way == CHARTS)
        job: dict[str, Any] = {
            "name": "train", "image": CPU, "nodes": len(RANKS), "script": SCRIPT.name, "args": [*args],
            "files": {"folder": str(SCRIPT.parent)}, "resources": {"memory": "2Gi"},
            "volumes": [{"claim": "data", "mountPath": "/data"}],
        }  # fmt: skip
        path = self.folder / "job.yaml"
        path.write_text(json.dumps(job | ({"restarts": restarts} if restarts else {})))
        process = torchbake("job", "show", "kubernetes" if restarts else "kubernetes-1.20", str(path), "--no-pin")
        assert process.returncode == 0, process.stderr
        return lowered(process.stdout) if restarts else process.stdout

    def steps(self) -> list[Step]:
        """List the completed steps in their order."""
        path = self.folder / "steps"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(float(when), int(step)) for when, step in map(str.split, lines)]

    def reaches(self, step: int) -> None:
        until(lambda: step in {number for _, number in self.steps()}, SLOW)

    def goes_on(self, since: float) -> Step:
        """The first step that was done a second time, or after a pause that began at that time; waits for it."""
        until(lambda: _resumed(self.steps(), since), SLOW)
        matches = _resumed(self.steps(), since)
        assert matches
        return matches

    def kill(self, rank: int) -> None:
        """By a signal that nothing can catch: the script's own process."""
        pid = (self.folder / f"pid-{rank}").read_text()
        self.space.kubectl("exec", self.pod(rank), "--", "bash", "-c", f"kill -KILL {pid}")

    def pod(self, rank: int) -> str:
        return str(self.space.pods()[rank]["metadata"]["name"])

    def containers(self) -> list[dict[str, Any]]:
        """Return Kubernetes' status of each rank's container, including the containers of replaced pods."""
        return [pod["status"].get("containerStatuses", [{}])[0] for pod in self.space.pods()]

    def remove(self) -> None:
        """All of it at once, so that the next one has the machine for itself."""
        self.space.kubectl("delete", "jobs,statefulsets", "--all", "--cascade=background")
        self.space.kubectl("delete", "pods", "--all", "--grace-period=1", "--wait=false")
        for container in self.space.containers():
            words = self.space.node.containerd("tasks", "kill", "--all", "--signal=KILL", container)
            subprocess.run(words, capture_output=True, check=False)
        until(lambda: not self.space.containers(), 120)


def lost(steps: Sequence[Step], resumed: Step) -> int:
    """How many steps were done before, and had to be done again."""
    return max(number for when, number in steps if when < resumed[0]) - resumed[1] + 1


def _resumed(steps: Sequence[Step], since: float) -> Step | None:
    """A start takes seconds, a step a tenth of one."""
    pauses = (after for before, after in pairwise(steps) if after[0] > since and after[0] - before[0] > 2)
    return next(pauses, None)
