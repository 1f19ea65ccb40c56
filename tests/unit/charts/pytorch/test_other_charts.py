"""Values of other PyTorch charts: files of nine ages, keys with the same meaning, and refused keys."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.charts.helm import CHART, env, merged, objects, one, pod, problem, render
from tests.unit.charts.pytorch.test_parameters import OTHERS, at, holds, values_of
from tests.unit.jobs.schemas import check_manifest

FOLDER = Path(__file__).parents[1] / "values"
FILES = {file.stem: yaml.safe_load(file.read_text()) for file in sorted(FOLDER.glob("*.yaml"))}
TABLE = yaml.safe_load((CHART / "other-charts.yaml").read_text())
SMOKE = ["run", "/opt/torchbake/smoke", "ddp"]


def with_our_images(values: Mapping[str, Any]) -> dict[str, Any]:
    """The file as somebody changes it who has read the error."""
    others = {key: value for key, value in values.items() if key != "image"}
    fixed = {key: value for key, value in others.get("volumePermissions", {}).items() if key != "image"}
    return {**others, "volumePermissions": fixed}


AGES = {age: with_our_images(values) for age, values in FILES.items()}
# By age: what is in the output, each anywhere.
ACTUAL: dict[str, list[Any]] = {
    "2019-first": [
        {"completions": 4}, ["run", "mnist.py", "--epochs", "2"], {"accessModes": ["ReadWriteOnce"]},
        {"storageClassName": ""}, {"mountPath": "/bitnami/pytorch"}, "docker.io/bitnami/git:latest",
        {"args": ["--owner", "1001:1001", "/bitnami/pytorch"]},
    ],
    "2020-helm3": [
        {"type": "NodePort", "ports": [
            {"name": "master", "port": 49875, "targetPort": 49875, "nodePort": 30875, "protocol": "TCP"}
        ]},
        {"annotations": {"prometheus.io/scrape": "false"}}, {"configMap": {"name": "my-scripts"}},
        {"accessModes": ["ReadWriteMany"]}, {"storage": "20Gi"},
    ],
    "2020-presets": [
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}]}]},
        {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {
            "labelSelector": {"matchLabels": {
                "app.kubernetes.io/name": "pytorch", "app.kubernetes.io/instance": "demo",
            }},
            "topologyKey": "kubernetes.io/hostname",
        }}]}},
        {"team": "vision"},
    ],
    "2021-containers": [
        {"hostAliases": [{"ip": "10.0.0.7", "hostnames": ["store"]}]},
        {"initContainers": [{"name": "fetch", "image": "team/fetch:1"}]},
        {"labels": {"kind": "training"}}, {"annotations": {"sidecar.istio.io/inject": "false"}},
        {"readinessProbe": {"exec": {"command": ["true"]}}}, {"name": "scratch", "mountPath": "/scratch"},
    ],
    "2022-contexts": [
        {"runAsUser": 2001, "fsGroup": 2001}, ["bench", "--model", "resnet18"], {"configMapRef": {"name": "settings"}},
        {"secretRef": {"name": "logins"}}, {"startupProbe": {"failureThreshold": 5}},
        {"lifecycle": {"preStop": {"exec": {"command": ["sync"]}}}},
        {"type": "LoadBalancer", "ports": [{"name": "master", "port": 80, "targetPort": 49875, "protocol": "TCP"}]},
    ],
    "2022-architecture": [
        {"completions": 4}, {"schedulerName": "volcano"}, {"subPath": "run-1"},
        {"serviceAccountName": "demo-pytorch", "automountServiceAccountToken": False},
        {"selector": {"matchLabels": {"volume": "team"}}},
        {"dataSource": {"name": "before", "kind": "VolumeSnapshot", "apiGroup": "snapshot.storage.k8s.io"}},
    ],
    "2023-restricted": [
        {"minAvailable": 1}, {"fsGroupChangePolicy": "Always", "fsGroup": 1001},
        {"readOnlyRootFilesystem": False, "privileged": False, "allowPrivilegeEscalation": False},
    ],
    "2024-policies": [
        {"policyTypes": ["Ingress"]}, {"ports": [{"port": 49875, "protocol": "TCP"}]},
        {"requests": {"cpu": 2, "memory": "512Mi"}}, {"runAsGroup": 1001}, {"automountServiceAccountToken": False},
    ],
    "2024-openshift": [
        {"storageClassName": "fast"}, {"policyTypes": ["Ingress", "Egress"]},
        {"podSelector": {"matchLabels": {"demo-pytorch-client": "true"}}}, {"ports": [{"port": 9100}]},
        {"ports": [{"port": 443}]}, {"port": 53, "protocol": "UDP"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("age", FILES)
def test_a_file_of_each_age_is_refused_for_its_images_alone(age: str) -> None:
    message = problem(FILES[age])
    assert "image.repository: bitnami/pytorch is not an image of torchbake" in message
    assert {line.partition(": ")[0].rpartition(" ")[2] for line in message.splitlines()[1:]} <= {
        "volumePermissions.image.repository"
    }


@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("version", ["", "1.28"])
def test_kubernetes_takes_a_file_of_each_age(age: str, version: str) -> None:
    check_manifest(yaml.dump_all(objects(AGES[age]).values(), Dumper=yaml.CSafeDumper), version)


@pytest.mark.parametrize("age", AGES)
def test_a_file_of_each_age_means_what_it_meant(age: str) -> None:
    matches = [*objects(AGES[age]).values()]
    assert [expected for expected in ACTUAL[age] if not holds(matches, expected)] == []


def test_another_name_makes_the_same_objects() -> None:
    for theirs, ours in TABLE["same"].items():
        value, beside, _ = OTHERS[ours]
        assert objects(merged(beside, at(theirs, value))) == objects(values_of(ours)), theirs


def test_a_refused_key_is_named_with_the_key_to_set() -> None:
    message = problem(merged(*(at(key, "other than idle") for key in TABLE["refused"])))
    for key, entry in TABLE["refused"].items():
        assert f"{key}: this chart has no such value: {entry['instead']}" in message


def test_what_a_refused_key_says_by_default_is_taken() -> None:
    table = TABLE["refused"]
    empty: tuple[Any, ...] = ({}, [], "", False, None)
    choices = [[at(key, entry.get("idle", [{}])[-1]) for key, entry in table.items()]]
    for choice in (*choices, *([at(key, value) for key in table] for value in empty)):
        assert objects(merged(*choice)) == objects({})


@pytest.mark.parametrize(
    "image", ["bitnamilegacy/pytorch", "mirror/bitnami/pytorch", "pytorch/pytorch", "nvidia/pytorch", "python"]
)
def test_an_image_without_run_needs_a_command(image: str) -> None:
    values = {"image": {"repository": image}}
    assert f"image.repository: {image} is not an image of torchbake" in problem(values)
    assert holds([*objects({**values, "command": ["python", "-c", "1"]}).values()], {"command": ["python", "-c", "1"]})
    assert "It must be one of torchbake" not in render({**values, "command": ["python"]})["NOTES.txt"]


def test_notes_say_what_an_unknown_image_must_have() -> None:
    notes = render({"image": {"registry": "ghcr.io", "repository": "acme/pytorch"}})["NOTES.txt"]
    assert "ghcr.io/acme/pytorch:latest. It must be one of torchbake" in notes


def test_another_volume_permissions_is_refused_if_it_runs() -> None:
    other = {"volumePermissions": {"image": {"repository": "bitnami/os-shell"}}}
    assert "has no `--owner`" in problem(merged(other, {"volumePermissions": {"enabled": True}}))
    assert objects(other) == objects({})


def test_every_template_settles_values_first() -> None:
    paths = [file for file in CHART.glob("templates/*") if file.suffix != ".tpl"]
    assert [
        file.name for file in paths if not file.read_text().startswith('{{- include "pytorch.settle" . -}}\n')
    ] == []
    assert len(paths) >= 10


@pytest.mark.parametrize("adapt", ["auto", "disabled"])
def test_a_cluster_that_is_no_openshift_changes_no_user(adapt: str) -> None:
    values = {"global": {"compatibility": {"openshift": {"adaptSecurityContext": adapt}}}}
    assert objects(values) == objects({})
    assert pod(objects(AGES["2024-openshift"]))["securityContext"].keys() == {"runAsNonRoot", "seccompProfile"}


def test_the_one_example_is_a_smoke_test_of_four_nodes() -> None:
    matches = objects({"mode": "distributed", "worldSize": 4})
    assert one(matches, "Job")["spec"]["completions"] == 4
    assert holds([one(matches, "Job")], SMOKE)
    assert env(matches)["NNODES"] == "4"


def test_every_key_of_the_table_leads_to_a_parameter() -> None:
    assert {*TABLE["same"].values()} <= {*OTHERS}
    assert not {*TABLE["refused"]} & {*OTHERS}
    assert ACTUAL.keys() == FILES.keys()
    assert {*TABLE["empty"]} <= {*OTHERS} | {name.rpartition(".")[0] for name in OTHERS}
