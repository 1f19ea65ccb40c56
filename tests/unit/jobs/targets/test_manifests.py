"""A reviewed manifest of each target, and a test that no target drops a key of a job in silence."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.conftest import NIGHTLY, check_golden
from tests.unit.jobs.cases import LEAST, task_of, text_of, written_by_libyaml
from torchbake.errors import JobError
from torchbake.jobs.expressible import Target, keys_of, known_keys, unsupported_keys
from torchbake.jobs.model import SECTIONS, Job
from torchbake.jobs.targets import TARGETS, target_of

GOLDEN = Path(__file__).parents[2] / "golden/jobs"
SUFFIXES = {"docker": "sh", "openpai-v1": "json", "slurm": "sh", "torchrun": "sh"}


def golden(target: str) -> Path:
    return GOLDEN / f"{target}.{SUFFIXES.get(target, 'yaml')}"


@pytest.mark.parametrize("target", TARGETS)
def test_a_manifest_is_as_it_was_reviewed(target: str) -> None:
    """TORCHBAKE_UPDATE_GOLDEN=1 writes it again. The job has every key that most targets can express."""
    check_golden(golden(target), TARGETS[target].render(task_of(text_of("everything"))))


def test_every_reviewed_manifest_is_of_a_target() -> None:
    assert {*GOLDEN.iterdir()} == {golden(target) for target in TARGETS}


VOLUME = "volumes: [{%s, mountPath: /data}]"
TOLERATION = "tolerations: [{%s}]"
# By key: a line of a file, and a line with another value of the key.
OTHER_VALUES = {
    "name": ("", "name: other"),
    "image": ("", "image: other/image:1"),
    "script": ("", "script: other.py"),
    "module": ("", "module: other"),
    "command": ("", "command: python main.py"),
    "workdir": ("", "workdir: /data"),
    "args": ("", "args: [--x]"),
    "mode": ("mode: distributed", "mode: standalone"),
    "nodes": ("nodes: 2", "nodes: 3"),
    "processes": ("processes: 2", "processes: 3"),
    "elastic": ("elastic: 1:2", "elastic: 2:2"),
    "files": ("", "files: {folder: .}"),
    "files.folder": ("", "files: {folder: .}"),
    "files.layer": ("", "files: {layer: .}"),
    "files.configMap": ("files: {configMap: a}", "files: {configMap: b}"),
    "files.include": ("files: {folder: .}", "files: {folder: ., include: [train.py]}"),
    "files.exclude": ("files: {folder: .}", "files: {folder: ., exclude: [data]}"),
    "files.git": ("", "files: {git: {repository: a}}"),
    "files.git.repository": ("files: {git: {repository: a}}", "files: {git: {repository: b}}"),
    "files.git.revision": ("files: {git: {repository: a}}", "files: {git: {repository: a, revision: b}}"),
    "volumes": ("", VOLUME % "hostPath: /a"),
    "volumes[].claim": (VOLUME % "claim: a", VOLUME % "claim: b"),
    "volumes[].size": (VOLUME % "size: 1Gi", VOLUME % "size: 2Gi"),
    "volumes[].storageClass": (VOLUME % "size: 1Gi", VOLUME % "size: 1Gi, storageClass: a"),
    "volumes[].accessMode": (VOLUME % "size: 1Gi", VOLUME % "size: 1Gi, accessMode: ReadWriteOnce"),
    "volumes[].hostPath": (VOLUME % "hostPath: /a", VOLUME % "hostPath: /b"),
    "volumes[].mountPath": (VOLUME % "hostPath: /a", "volumes: [{hostPath: /a, mountPath: /other}]"),
    "volumes[].readOnly": (VOLUME % "hostPath: /a", VOLUME % "hostPath: /a, readOnly: true"),
    "volumes[].permissions": (VOLUME % "claim: a", VOLUME % "claim: a, permissions: fix"),
    "env": ("env: {A: b}", "env: {A: c}"),
    "secrets": ("", "secrets: {A: {secret: a, key: b}}"),
    "secrets.*.secret": ("secrets: {A: {secret: a, key: b}}", "secrets: {A: {secret: c, key: b}}"),
    "secrets.*.key": ("secrets: {A: {secret: a, key: b}}", "secrets: {A: {secret: a, key: c}}"),
    "resources": ("", "resources: {cpu: 4, memory: 8Gi, gpu: 1}"),
    "resources.cpu": ("", "resources: {cpu: 5, memory: 8Gi}"),
    "resources.memory": ("", "resources: {cpu: 4, memory: 9Gi}"),
    "resources.gpu": ("", "resources: {cpu: 4, memory: 8Gi, gpu: 1}"),
    "resources.shm": ("", "resources: {cpu: 4, memory: 8Gi, shm: 1Gi}"),
    "resources.rdma": ("", "resources: {cpu: 4, memory: 8Gi, rdma: rdma/a}"),
    "port": ("", "port: 5000"),
    "timeouts": ("", "timeouts: {stop: 5}"),
    "timeouts.rendezvous": ("", "timeouts: {rendezvous: 5}"),
    "timeouts.group": ("", "timeouts: {group: 5}"),
    "timeouts.stop": ("", "timeouts: {stop: 5}"),
    "timeouts.job": ("", "timeouts: {job: 5}"),
    "restarts": ("", "restarts: 5"),
    "priority": ("", "priority: a"),
    "nodeSelector": ("", "nodeSelector: {a: b}"),
    "tolerations": ("", TOLERATION % "key: a"),
    "tolerations[].key": (TOLERATION % "key: a", TOLERATION % "key: b"),
    "tolerations[].operator": (TOLERATION % "key: a", TOLERATION % "key: a, operator: Exists"),
    "tolerations[].value": (TOLERATION % "key: a", TOLERATION % "key: a, value: b"),
    "tolerations[].effect": (TOLERATION % "key: a", TOLERATION % "key: a, effect: NoExecute"),
    "tolerations[].tolerationSeconds": (TOLERATION % "key: a", TOLERATION % "key: a, tolerationSeconds: 5"),
    "affinity": ("", "affinity: {nodeAffinity: {a: []}}"),
    "affinity.nodeAffinity": ("", "affinity: {nodeAffinity: {a: []}}"),
    "affinity.podAffinity": ("", "affinity: {podAffinity: {a: []}}"),
    "affinity.podAntiAffinity": ("", "affinity: {podAntiAffinity: {a: []}}"),
    "labels": ("", "labels: {a: b}"),
    "annotations": ("", "annotations: {a: b}"),
    "serviceAccount": ("", "serviceAccount: a"),
    "pullSecrets": ("", "pullSecrets: [a]"),
    "account": ("", "account: cluster"),
    "ttlSecondsAfterFinished": ("", "ttlSecondsAfterFinished: 5"),
    "suspend": ("", "suspend: true"),
    "managedBy": ("", "managedBy: a.com/b"),
    "queue": ("", "queue: a"),
    "gang": ("", "gang: {}"),
    "gang.scheduleTimeoutSeconds": ("gang: {}", "gang: {scheduleTimeoutSeconds: 5}"),
    "gang.queue": ("gang: {}", "gang: {queue: a}"),
    "gang.scheduler": ("gang: {}", "gang: {scheduler: volcano}"),
    "slurm": ("", "slurm: {partition: a}"),
    "slurm.runtime": ("", "slurm: {runtime: pyxis}"),
    "slurm.image": ("", "slurm: {image: /a.sif}"),
    "slurm.partition": ("", "slurm: {partition: a}"),
    "slurm.account": ("", "slurm: {account: a}"),
    "slurm.qos": ("", "slurm: {qos: a}"),
    "slurm.constraint": ("", "slurm: {constraint: a}"),
    "slurm.exclusive": ("", "slurm: {exclusive: true}"),
    "kubernetes": ("", "kubernetes: {api: '1.20'}"),
    "kubernetes.api": ("", "kubernetes: {api: '1.20'}"),
    "trainjob": ("", "trainjob: {runtimeRef: {name: a}}"),
    "trainjob.runtimeRef": ("", "trainjob: {runtimeRef: {name: a}}"),
    "trainjob.runtimeRef.name": ("trainjob: {runtimeRef: {name: b}}", "trainjob: {runtimeRef: {name: a}}"),
    "trainjob.runtimeRef.kind": (
        "trainjob: {runtimeRef: {name: a}}",
        "trainjob: {runtimeRef: {name: a, kind: TrainingRuntime}}",
    ),
}
ALIKE = {
    "elastic": "nodes",
    "module": "script",
    "command": "script",
    "mode": "nodes",
}  # keys that replace another


def with_line(key: str, line: str) -> str:
    """Return a job of two nodes with this line in place of keys with the same purpose."""
    text = LEAST + "nodes: 2\n"
    drop = {line.partition(":")[0], ALIKE.get(key, "")} if line else set()
    lines = [each for each in text.splitlines() if each.partition(":")[0] not in drop]
    return "\n".join([*lines, line, ""])


def test_every_key_of_the_model_is_tried() -> None:
    assert set(OTHER_VALUES) == set(known_keys())


@written_by_libyaml()
def test_a_target_writes_or_refuses_each_key() -> None:
    """A section of one target is neither written nor refused by the others."""
    wrong, written = [], dict[tuple[str, str], str]()
    for key, (less, more) in OTHER_VALUES.items():
        texts = (with_line(key, less), with_line(key, more))
        before, after = map(task_of, texts)
        assert key in {path for _, path in keys_of(after.job)}, key
        for name, target in TARGETS.items():
            refused = is_refused(key, after.job, target_of(target, after.job))
            for text, task in zip(texts, (before, after), strict=True):
                if (name, text) not in written:  # many keys are compared with the same job
                    written[name, text] = target_of(target, task.job).render(task)
            changes = written[name, texts[0]] != written[name, texts[1]]
            if (changes or refused) is (key.partition(".")[0] in {*SECTIONS} - {name}):
                wrong.append((name, key))
    assert wrong == [], "dropped in silence, or said to another"


def is_refused(key: str, job: Job, target: Target) -> bool:
    """Return True if the target refuses this key, or a mapping that contains it."""
    places = {location for location, path in keys_of(job) if key == path or key.startswith((f"{path}.", f"{path}["))}
    return any(location in places for location, _ in unsupported_keys(job, target))


def test_a_target_declares_keys_of_the_model() -> None:
    for name, target in TARGETS.items():
        refused, needs = [no.key for no in target.CANNOT], [need.key for need in target.NEEDS]
        assert {*refused, *needs} <= set(known_keys()), name
        assert len(set(refused)) == len(refused), name
        assert {no.key for no in target.CANNOT if not no.only}.isdisjoint(needs), name


WORDS = ("", "0", "-1", "1e9", "9" * 30, "a b", "$(A)", "<% x", "a\nb", "ä", "\0", "auto", "[", "../..")
JUNK: tuple[Any, ...] = (None, *WORDS, [], ["a"], {})


def places(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of every value of a file."""
    if at:
        yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*at, key))


WHOLE = yaml.safe_load(text_of("everything"))


@written_by_libyaml()
def test_any_value_is_written_or_reported_and_no_traceback() -> None:
    """At each place of a file one value or two, and each value at many places."""
    halves = (0, 9) if NIGHTLY else (0,)
    cases = [
        (place, JUNK[(number + half) % len(JUNK)]) for half in halves for number, place in enumerate(places(WHOLE))
    ]
    count = 0
    for place, junk in cases:
        data = copy.deepcopy(WHOLE)
        node = data
        for step in place[:-1]:
            node = node[step]
        node[place[-1]] = junk
        try:
            task = task_of(yaml.dump(data, Dumper=yaml.CSafeDumper, allow_unicode=True))
        except JobError:
            continue
        count += 1
        for target in TARGETS.values():
            assert target.render(task), (place, junk)
            unsupported_keys(task.job, target)
    assert count > 15
