"""LeaderWorkerSet of Kubernetes SIGs, v1: one group of a leader and its workers, for programs that serve without end.

The leader is node 0. The controller sets LWS_LEADER_ADDRESS before the container's own variables, which can refer to
it, and writes each pod's number as a label (LWS_WORKER_INDEX exists from 0.6 on). The pods belong to StatefulSets,
which restart a container after any exit code: a job never completes.

Source: kubernetes-sigs/lws: api/leaderworkerset/v1/leaderworkerset_types.go, pkg/utils/pod/pod_utils.go.
"""

from typing import Any

from torchbake.jobs import model
from torchbake.jobs.expressible import Cannot, Needs
from torchbake.jobs.targets import _pod
from torchbake.jobs.targets.yaml_text import documents
from torchbake.jobs.task import Task, counts, in_container, master, rank_variables

NAME = "leaderworkerset"
ABOUT = "a LeaderWorkerSet for programs that serve without end, with its ConfigMap and claims"
MOST_NODES = model.MOST_NODES
CARRIES_FILES = True
_HASH = "x" * 10  # of a StatefulSet's revision, in a label of its pods
CANNOT: tuple[Cannot, ...] = (
    _pod.host_names(f"NAME-0-{_HASH}", lambda job: f"{job.name}-0-{_HASH}"),
    Cannot(key="elastic", why="a group has a fixed size; write `nodes`"),
    Cannot(key="restarts", why="a group restarts whenever a container ends, and never completes; use jobset"),
    Cannot(key="timeouts.job", why="a group runs without end; use jobset"),
    *_pod.without(
        *("ttlSecondsAfterFinished", "suspend", "managedBy", "gang"),
        why="a LeaderWorkerSet has no place for it; use jobset, or name a queue of Kueue by `queue`",
    ),
)
NEEDS: tuple[Needs, ...] = ()
_END = "It never completes: what ends is started again, also with exit code 0, until you delete it."
_INDEX = "metadata.labels['leaderworkerset.sigs.k8s.io/worker-index']"


def render(task: Task) -> str:
    return documents(objects(task), head=f"{_pod.security(task)}\n{_END}")


def objects(task: Task) -> list[dict[str, Any]]:
    job = task.job
    env = in_container(job) | counts(job)
    fields = dict.fromkeys(rank_variables(job, ""), _INDEX)
    leader = master(job, "$(LWS_LEADER_ADDRESS)")
    template = _pod.template(task, env, fields=fields, filled=leader, restartPolicy="Always")
    group = {
        "replicas": 1,
        "startupPolicy": "LeaderCreated",  # the leader becomes ready only after its workers have started
        "leaderWorkerTemplate": {
            "size": job.most_nodes,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "workerTemplate": template,  # for the leader too
        },
    }
    metadata = _pod.queue_labels(job, job.name)
    api = "leaderworkerset.x-k8s.io/v1"
    return [
        *_pod.surroundings(task),
        {"apiVersion": api, "kind": "LeaderWorkerSet", "metadata": metadata, "spec": group},
    ]
