"""Jobs for tests of every target, as the text of files, and the contract that `run` must read of each."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import yaml

from torchbake.code.files import select_files
from torchbake.core.paths import TOOLKIT
from torchbake.jobs.load import read_job
from torchbake.jobs.model import Job
from torchbake.jobs.targets import yaml_text
from torchbake.jobs.task import Task

IMAGE, INIT_IMAGE = "registry.example.com/team/pytorch:2.13.0-cpu", "registry.example.com/team/volume-permissions:1.0.0"
LEAST = f"name: mnist\nimage: {IMAGE}\nscript: train.py\nresources: {{cpu: 4, memory: 8Gi}}\n"

# By name: the keys of the file besides those of LEAST.
CASES = {
    "standalone": "args: [--epochs, '3']\nfiles: {folder: .}\n",
    "ddp": "nodes: 4\nprocesses: 2\nfiles: {git: {repository: 'https://example.com/job.git', revision: v1}}\n",
    "gpus": "nodes: 2\nresources: {cpu: 8, memory: 64Gi, gpu: 4, shm: 8Gi}\n",
    "auto": "nodes: 2\nprocesses: auto\n",
    "one-node": "processes: 4\n",
    "elastic": "elastic: 2:3\nprocesses: 2\n",
    "everything": """\
nodes: 3
processes: 2
args: [--data, /data, "it's $HOME"]
files: {folder: job}
volumes:
  - {claim: team-data, mountPath: /data, readOnly: true}
  - {size: 8Gi, storageClass: fast, mountPath: /checkpoints, permissions: fix}
  - {hostPath: /srv/cache, mountPath: /cache}
env: {HF_HOME: /data/hub, EMPTY: "", ODD: "a b$c"}
secrets: {HF_TOKEN: {secret: hub, key: token}, JOB_TOKEN: {secret: job, key: token}}
resources: {cpu: 1.5, memory: 8Gi, gpu: 1, rdma: rdma/hca_shared_devices_a}
port: 29500
timeouts: {rendezvous: 300, group: 120, stop: 60, job: 86400}
restarts: 2
priority: research
nodeSelector: {zone: a}
tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {team: vision}}}
labels: {team: vision}
annotations: {example.com/owner: ann}
serviceAccount: trainer
pullSecrets: [registry-login]
""",
}
# Jobs that not every launcher can express, and commands, which need no image of ours.
MORE_CASES = {
    "command": "command: cd examples/mnist && python main.py\nworkdir: /srv/code\n",
    "torchrun": "command: [torchrun, train.py, --lr, '$HOME']\nfiles: {folder: .}\nnodes: 4\nprocesses: 2\n",
    "torchrun-elastic": "command: [torchrun, train.py]\nelastic: 2:3\nprocesses: 2\n",
    "layer": "nodes: 2\nfiles: {layer: ., exclude: ['*.csv']}\n",
    "operators": """\
nodes: 2
account: cluster
ttlSecondsAfterFinished: 3600
suspend: true
managedBy: kueue.x-k8s.io/multikueue
queue: team-a
gang: {scheduleTimeoutSeconds: 300}
""",
    "runtime": """\
nodes: 2
files: {folder: .}
volumes: [{claim: team-data, mountPath: /data}]
nodeSelector: {zone: a}
timeouts: {job: 86400}
trainjob: {runtimeRef: {name: torch-distributed}}
""",
}
ALL_CASES = CASES | MORE_CASES
FILES = {"train.py": b"print('trained')\n", "data/labels.bin": b"\x00\xff", "odd name.txt": "ä\n".encode()}


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The contract of a case, the same under every launcher."""

    distributed: bool
    nodes: int = 1
    processes: int = 1
    elastic: tuple[int, int] | None = None
    port: int = 49875


EXPECTED = {
    "standalone": Expected(distributed=False),
    "ddp": Expected(distributed=True, nodes=4, processes=2),
    "gpus": Expected(distributed=True, nodes=2, processes=4),
    "auto": Expected(distributed=True, nodes=2, processes=8),  # on machines that have eight
    "one-node": Expected(distributed=True, processes=4),
    "elastic": Expected(distributed=True, nodes=3, processes=2, elastic=(2, 3)),
    "everything": Expected(distributed=True, nodes=3, processes=2, port=29500),
    "command": Expected(distributed=False),
    "torchrun": Expected(distributed=True, nodes=4, processes=2),
    "torchrun-elastic": Expected(distributed=True, nodes=3, processes=2, elastic=(2, 3)),
    "layer": Expected(distributed=True, nodes=2),
    "operators": Expected(distributed=True, nodes=2),
    "runtime": Expected(distributed=True, nodes=2),
}


def text_of(case: str) -> str:
    more = ALL_CASES[case]
    keys = {line.partition(":")[0] for line in more.splitlines()} | ({"script"} if "command:" in more else set())
    return "".join(line for line in LEAST.splitlines(keepends=True) if line.partition(":")[0] not in keys) + more


def printed_job(name: str) -> str:
    """Return the job of this name in docs/how-to/jobs.md."""
    page = (TOOLKIT / "docs/how-to/jobs.md").read_text(encoding="utf-8")
    (value,) = [text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if f"name: {name}\n" in text]
    return str(value)


def job_of(text: str) -> Job:
    return read_job(text, Path("job.yaml"))[0]


def task_of(text: str) -> Task:
    """Return a prepared task, with resolved images and files, and without a look-up of the image."""
    job = job_of(text)
    folder = Path("/home/ann/mnist") / job.files.folder if job.files.folder else None
    names = select_files(FILES, job.files.include, job.files.exclude) if folder else ()
    contents = {name: FILES[name] for name in names}
    return Task(job=job, image=job.image, init_image=INIT_IMAGE, ours=not job.command, folder=folder, contents=contents)


@contextmanager
def written_by_libyaml() -> Iterator[None]:
    """Write manifests without their layout, in a quarter of the time, for tests of their content."""
    with mock.patch.object(yaml_text, "_Dumper", yaml.CSafeDumper):
        yield
