"""A namespace of a node's Kubernetes, and what of a job is in it."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.clusters.node import Node
from tests.e2e.waiting import until

SLOW = 240  # seconds; on a machine with much else to do, loading torch alone may take one minute
# The objects that Kubernetes makes in a namespace by itself.
_ITS_OWN = {"configmap/kube-root-ca.crt", "serviceaccount/default"}
_KINDS = "jobs,pods,services,endpoints,configmaps,persistentvolumeclaims,serviceaccounts"


@dataclass(frozen=True, kw_only=True)
class EndState:
    """A pod of a job that has ended."""

    rank: int
    code: int
    log: str


@dataclass(frozen=True, kw_only=True)
class Space:
    """``name`` is the namespace."""

    node: Node
    name: str

    def command(self, *words: str) -> list[str]:
        """How kubectl is run here, from the host."""
        return self.node.kubectl_command("--namespace", self.name, *words)

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        process = self.node.kubectl("--namespace", self.name, *words, stdin=stdin)
        assert process.returncode == 0, process.stderr
        return process.stdout

    def read_output(self, pod: dict[str, Any]) -> str:
        """Return the log of a pod's container; empty while it has no container, as between two starts."""
        return self.node.kubectl("--namespace", self.name, "logs", pod["metadata"]["name"]).stdout

    def find(self, kinds: str, *words: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", kinds, *words, "--output=json"))["items"]
        return items

    def pods(self) -> list[dict[str, Any]]:
        """By rank."""
        return sorted(self.find("pods"), key=rank_of)

    def ready(self) -> list[bool]:
        """Return for each pod, by rank, whether it is ready."""
        return [is_ready(pod) for pod in self.pods()]

    def ends(self) -> list[EndState]:
        """Wait until every Job has completed or failed, and return all pods by rank, a rank's last pod last.

        Pods that were ended before their container had started have no exit code, and are left out.
        """
        until(lambda: all(map(_is_over, self.find("jobs"))), SLOW)
        until(lambda: not any(map(_runs, self.pods())), 60)
        pods = sorted(self.pods(), key=lambda pod: (rank_of(pod), pod["metadata"]["creationTimestamp"]))
        return [self._ended(pod) for pod in pods if "terminated" in _state(pod)]

    def _ended(self, pod: dict[str, Any]) -> EndState:
        log = self.kubectl("logs", pod["metadata"]["name"])
        return EndState(rank=rank_of(pod), code=_state(pod)["terminated"]["exitCode"], log=log)

    def left(self) -> set[str]:
        """Return the objects in the namespace, without the objects that Kubernetes makes by itself."""
        names = {f"{each['kind'].lower()}/{each['metadata']['name']}" for each in self.find(_KINDS)}
        return names - _ITS_OWN

    def containers(self) -> Sequence[str]:
        """The containers of all pods of this namespace that the node still has."""
        label = f'labels."io.kubernetes.pod.namespace"=={self.name}'
        command = self.node.containerd("containers", "list", "--quiet", label)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def rank_of(pod: dict[str, Any]) -> int:
    """The number in its host's name; a pod that is alone has none."""
    number = pod["spec"].get("hostname", "").rpartition("-")[2]
    return int(number) if number.isdigit() else 0


def is_ready(pod: dict[str, Any]) -> bool:
    value = pod["status"].get("conditions", ())
    return any((each["type"], each["status"]) == ("Ready", "True") for each in value)


def _state(pod: dict[str, Any]) -> dict[str, Any]:
    """Of its one container; empty where Kubernetes has none to tell."""
    value = pod["status"].get("containerStatuses") or [{"state": {}}]
    state: dict[str, Any] = value[0]["state"]
    return state


def _is_over(job: dict[str, Any]) -> bool:
    return any(each["type"] in {"Complete", "Failed"} for each in job["status"].get("conditions", ()))


def _runs(pod: dict[str, Any]) -> bool:
    return pod["status"]["phase"] not in {"Succeeded", "Failed"}
