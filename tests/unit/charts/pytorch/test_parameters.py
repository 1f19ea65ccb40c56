"""Every parameter: another value than the default appears in the objects, and Helm accepts it."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import helm_python
import pytest
import yaml

from tests.unit.charts.helm import Objects, defaults, leaves, merged, objects, render
from tests.unit.conftest import NIGHTLY
from tests.unit.jobs.schemas import check_manifest
from torchbake.errors import JobError

GIT = {"cloneFilesFromGit": {"enabled": True, "repository": "https://example.com/job.git"}}
OWN_GIT = merged(GIT, {"git": {"repository": "team/git"}})
SCRIPT = {"entrypoint": {"file": "train.py"}}
GROUP = {"mode": "distributed", "worldSize": 2, **SCRIPT}
FIX = {"volumePermissions": {"enabled": True}, **SCRIPT}
CLOSED = {"networkPolicy": {"enabled": True, "allowExternalEgress": False}}
HOOK = {"preStop": {"exec": {"command": ["sync"]}}}
PORT = {"name": "master", "port": 80, "targetPort": 49875, "protocol": "TCP"}
STARTUP = {"startupProbe": {"enabled": True}}
SNAPSHOT = {"name": "before", "kind": "VolumeSnapshot", "apiGroup": "snapshot.storage.k8s.io"}
CLIENTS = {"demo-pytorch-client": "true"}
NODES = {"nodeAffinityPreset": {"type": "hard", "key": "disk", "values": ["ssd"]}}
ON_ONE = {
    "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "pytorch", "app.kubernetes.io/instance": "demo"}},
    "topologyKey": "kubernetes.io/hostname",
}
SEVERAL = {"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}
PROBE = {"exec": {"command": ["true"]}, "periodSeconds": 77}
BESIDE = {"name": "beside", "image": "team/beside:7"}
RULE: dict[str, Any] = {"ports": [{"port": 9100}]}
POLICY = {"networkPolicy": {"enabled": True}}
BUDGET = {"podDisruptionBudget": {"enabled": True}}
DIGEST = f"sha256:{'a' * 64}"

# By parameter: another value; other values without which it has no effect; and a part of the output, which is the
# value itself if it is not set.
OTHERS: dict[str, tuple[Any, Mapping[str, Any], Any]] = {
    "global.imageRegistry": ("mirror.example.com", {}, "mirror.example.com/torchbake/pytorch:latest"),
    "global.imagePullSecrets": (["login"], {}, {"name": "login"}),
    "global.storageClass": ("everywhere", {}, "everywhere"),
    "image.registry": ("ghcr.io", {}, "ghcr.io/torchbake/pytorch:latest"),
    "image.repository": ("team/image", {}, "docker.io/team/image:latest"),
    "image.tag": ("2.13.0-cpu", {}, "docker.io/torchbake/pytorch:2.13.0-cpu"),
    "image.digest": (DIGEST, {}, f"docker.io/torchbake/pytorch:latest@{DIGEST}"),
    "image.pullPolicy": ("Always", {}, "Always"),
    "image.pullSecrets": (["login"], {}, {"name": "login"}),
    "image.debug": (True, {}, {"name": "NCCL_DEBUG", "value": "INFO"}),
    "nameOverride": ("other", {}, {"app.kubernetes.io/name": "other"}),
    "fullnameOverride": ("other", {}, "other-data"),
    "kind": ("statefulset", {}, "StatefulSet"),
    "restartOnUpgrade": (False, {}, {"kind": "Job", "metadata": {"name": "demo-pytorch"}}),
    "architecture": ("distributed", SCRIPT, {"name": "MODE", "value": "distributed"}),
    "mode": ("distributed", SCRIPT, {"name": "MODE", "value": "distributed"}),
    "worldSize": (4, merged(GROUP, {"worldSize": 4}), {"completions": 4, "parallelism": 4}),
    "processesPerNode": ("auto", GROUP, {"name": "NPROC_PER_NODE", "value": "auto"}),
    "elastic": ("2:5", {"mode": "distributed", **SCRIPT}, {"name": "ELASTIC", "value": "2:5"}),
    "port": (29500, GROUP, {"name": "MASTER_PORT", "value": "29500"}),
    "entrypoint.file": ("train.py", {}, ["run", "train.py"]),
    "entrypoint.module": ("package.train", {}, ["run", "-m", "package.train"]),
    "entrypoint.args": (["--epochs", 3, "a b"], SCRIPT, ["run", "train.py", "--epochs", "3", "a b"]),
    "command": (["python", "-i"], {}, {"command": ["python", "-i"]}),
    "args": (["bench", "--model", "resnet18"], {}, {"args": ["bench", "--model", "resnet18"]}),
    "diagnosticMode.enabled": (True, {}, {"command": ["sleep"], "args": ["infinity"]}),
    "diagnosticMode.command": (["tail"], {"diagnosticMode": {"enabled": True}}, {"command": ["tail"]}),
    "diagnosticMode.args": (["1h"], {"diagnosticMode": {"enabled": True}}, {"args": ["1h"]}),
    "extraEnvVarsCM": ("settings", {}, {"envFrom": [{"configMapRef": {"name": "settings"}}]}),
    "extraEnvVarsSecret": ("logins", {}, {"envFrom": [{"secretRef": {"name": "logins"}}]}),
    "lifecycleHooks": (HOOK, {}, {"lifecycle": HOOK}),
    "existingConfigmap": ("mnist-files", {}, {"configMap": {"name": "mnist-files"}}),
    "extraEnvVars": ([{"name": "A", "value": "b"}], {}, {"name": "A", "value": "b"}),
    "configMap": ("mnist-files", {}, {"configMap": {"name": "mnist-files"}}),
    "files": ({"a/b.py": "print(1)\n"}, {}, {"data": {"a_b.py": "print(1)\n"}}),
    "binaryFiles": ({"c.bin": "AP8="}, {}, {"binaryData": {"c.bin": "AP8="}}),
    "cloneFilesFromGit.enabled": (True, GIT, {"name": "GIT_REPOSITORY", "value": "https://example.com/job.git"}),
    "cloneFilesFromGit.repository": ("https://example.com/b.git", GIT, "https://example.com/b.git"),
    "cloneFilesFromGit.revision": ("v2", GIT, {"name": "GIT_REVISION", "value": "v2"}),
    "cloneFilesFromGit.sshSecret": ("deploy-key", GIT, {"secretName": "deploy-key"}),
    "git.registry": ("ghcr.io", OWN_GIT, "ghcr.io/team/git"),
    "git.repository": ("team/other", GIT, "docker.io/team/other"),
    "git.tag": ("2.40", OWN_GIT, "docker.io/team/git:2.40"),
    "git.digest": (DIGEST, OWN_GIT, f"docker.io/team/git@{DIGEST}"),
    "git.pullPolicy": ("Never", OWN_GIT, {"name": "git", "imagePullPolicy": "Never"}),
    "git.pullSecrets": (["login"], OWN_GIT, {"name": "login"}),
    "restarts": (5, {}, {"backoffLimit": 5}),
    "timeouts.rendezvous": (301, GROUP, {"name": "RENDEZVOUS_TIMEOUT", "value": "301"}),
    "timeouts.group": (1209600, GROUP, {"name": "GROUP_TIMEOUT", "value": "1209600"}),
    "timeouts.stop": (60, {}, {"terminationGracePeriodSeconds": 75}),
    "terminationGracePeriodSeconds": (99, {}, {"terminationGracePeriodSeconds": 99}),
    "activeDeadlineSeconds": (31536000, {}, {"activeDeadlineSeconds": 31536000}),
    "ttlSecondsAfterFinished": (0, {}, {"ttlSecondsAfterFinished": 0}),
    "resources": ({"limits": {"cpu": "7"}}, {}, {"limits": {"cpu": "7"}}),
    "gpu": (2, {}, {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}}),
    "rdma": ("rdma/hca", {}, {"limits": {"rdma/hca": "1"}}),
    "shmSize": ("7Gi", {}, {"medium": "Memory", "sizeLimit": "7Gi"}),
    "persistence.enabled": (False, {}, None),
    "persistence.existingClaim": ("team-data", SCRIPT, {"claimName": "team-data"}),
    "persistence.mountPath": ("/bitnami/pytorch", SCRIPT, {"mountPath": "/bitnami/pytorch"}),
    "persistence.storageClass": ("fast", {}, {"storageClassName": "fast"}),
    "persistence.accessMode": ("ReadWriteMany", {}, {"accessModes": ["ReadWriteMany"]}),
    "persistence.accessModes": (
        ["ReadOnlyMany", "ReadWriteMany"], {}, {"accessModes": ["ReadOnlyMany", "ReadWriteMany"]},
    ),
    "persistence.subPath": ("run/1", SCRIPT, {"mountPath": "/data", "subPath": "run/1"}),
    "persistence.selector": ({"matchLabels": {"a": "b"}}, {}, {"selector": {"matchLabels": {"a": "b"}}}),
    "persistence.dataSource": (SNAPSHOT, {}, {"dataSource": SNAPSHOT}),
    "persistence.size": ("9Gi", {}, {"requests": {"storage": "9Gi"}}),
    "persistence.annotations": ({"a": "b"}, {}, {"annotations": {"a": "b"}}),
    "volumes": ([{"hostPath": "/srv/x", "mountPath": "/x"}], {}, {"hostPath": {"path": "/srv/x"}}),
    "extraVolumes": ([{"name": "x", "emptyDir": {}}], {}, {"name": "x", "emptyDir": {}}),
    "extraVolumeMounts": ([{"name": "tmp", "mountPath": "/x"}], {}, {"name": "tmp", "mountPath": "/x"}),
    "volumePermissions.enabled": (True, SCRIPT, ["--owner", "1001:1001", "/data"]),
    "volumePermissions.image.registry": ("ghcr.io", FIX, "ghcr.io/torchbake/volume-permissions:1.0.0"),
    "volumePermissions.image.repository": ("team/fix", FIX, "docker.io/team/fix:1.0.0"),
    "volumePermissions.image.tag": ("9", FIX, "docker.io/torchbake/volume-permissions:9"),
    "volumePermissions.image.digest": (DIGEST, FIX, f"docker.io/torchbake/volume-permissions:1.0.0@{DIGEST}"),
    "volumePermissions.image.pullPolicy": ("Never", FIX, {"name": "volume-permissions", "imagePullPolicy": "Never"}),
    "volumePermissions.image.pullSecrets": (["login"], FIX, {"imagePullSecrets": [{"name": "login"}]}),
    "volumePermissions.resources": ({"limits": {"cpu": "1"}}, FIX, {"limits": {"cpu": "1"}}),
    "account": ("cluster", {}, None),
    "podSecurityContext.enabled": (False, {}, None),
    "containerSecurityContext.enabled": (False, {}, None),
    "automountServiceAccountToken": (True, {}, {"automountServiceAccountToken": True}),
    "serviceAccount.automountServiceAccountToken": (True, {}, {"automountServiceAccountToken": True}),
    "securityContext.enabled": (False, {}, None),
    "securityContext.fsGroup": (2000, {}, {"fsGroup": 2000}),
    "securityContext.runAsUser": (1000650000, {}, {"runAsUser": 1000650000}),
    "securityContext.readOnlyRootFilesystem": (False, {}, {"readOnlyRootFilesystem": False}),
    "serviceAccount.create": (True, {}, "ServiceAccount"),
    "serviceAccount.name": ("trainer", {}, {"serviceAccountName": "trainer", "automountServiceAccountToken": True}),
    "serviceAccount.annotations": ({"a": "b"}, {"serviceAccount": {"create": True}}, {"annotations": {"a": "b"}}),
    "service.type": ("NodePort", GROUP, {"type": "NodePort"}),
    "service.ports.pytorch": (80, GROUP, {"type": "ClusterIP", "ports": [PORT]}),
    "service.nodePorts.pytorch": (30080, merged(GROUP, {"service": {"type": "NodePort"}}), {"nodePort": 30080}),
    "service.clusterIP": ("10.96.0.9", GROUP, {"type": "ClusterIP", "clusterIP": "10.96.0.9"}),
    "service.annotations": ({"a": "b"}, GROUP, {"kind": "Service", "metadata": {"annotations": {"a": "b"}}}),
    "networkPolicy.allowExternal": (True, POLICY, {"ports": [{"port": 49875, "protocol": "TCP"}]}),
    "networkPolicy.addExternalClientAccess": (True, POLICY, {"podSelector": {"matchLabels": CLIENTS}}),
    "networkPolicy.extraIngress": ([RULE], POLICY, RULE),
    "networkPolicy.extraEgress": ([RULE], CLOSED, RULE),
    "networkPolicy.allowExternalEgress": (False, POLICY, {"policyTypes": ["Ingress", "Egress"]}),
    "networkPolicy.enabled": (True, {}, "NetworkPolicy"),
    "networkPolicy.ingress": ([RULE], POLICY, RULE),
    "networkPolicy.egress": ([RULE], POLICY, RULE),
    "customLivenessProbe": (PROBE, {}, {"livenessProbe": PROBE}),
    "customReadinessProbe": (PROBE, {}, {"readinessProbe": PROBE}),
    "customStartupProbe": (PROBE, {}, {"startupProbe": PROBE}),
    "nodeSelector": ({"zone": "a"}, {}, {"nodeSelector": {"zone": "a"}}),
    "tolerations": ([{"key": "a", "operator": "Exists"}], {}, {"tolerations": [{"key": "a", "operator": "Exists"}]}),
    "affinity": (
        {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}, {},
        {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
    ),
    "podAffinityPreset": ("hard", {}, {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ON_ONE]}}),
    "podAntiAffinityPreset": (
        "soft", {},
        {"podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": ON_ONE}]
        }},
    ),
    "nodeAffinityPreset.type": (
        "soft", {"nodeAffinityPreset": {"key": "disk", "values": ["ssd"]}},
        {"preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}},
    ),
    "nodeAffinityPreset.key": ("size", NODES, {"key": "size", "operator": "In", "values": ["ssd"]}),
    "nodeAffinityPreset.values": (["ssd", "nvme"], NODES, {"nodeSelectorTerms": [{"matchExpressions": [SEVERAL]}]}),
    "schedulerName": ("volcano", {}, {"schedulerName": "volcano"}),
    "hostAliases": (
        [{"ip": "10.0.0.7", "hostnames": ["store"]}], {}, {"hostAliases": [{"ip": "10.0.0.7", "hostnames": ["store"]}]},
    ),
    "topologySpreadConstraints": (
        [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}], {}, {"maxSkew": 2},
    ),
    "priorityClassName": ("research", {}, {"priorityClassName": "research"}),
    "podDisruptionBudget.enabled": (True, GROUP, {"minAvailable": 2}),
    "podDisruptionBudget.minAvailable": (1, merged(GROUP, BUDGET), {"minAvailable": 1}),
    "initContainers": ([BESIDE], {}, {"initContainers": [BESIDE]}),
    "sidecars": ([BESIDE], {}, {"initContainers": [{**BESIDE, "restartPolicy": "Always"}]}),
    "commonLabels": ({"team": "vision"}, {}, {"team": "vision"}),
    "commonAnnotations": ({"a": "b"}, {}, {"annotations": {"a": "b"}}),
    "podLabels": ({"team": "vision"}, {}, {"template": {"metadata": {"labels": {"team": "vision"}}}}),
    "podAnnotations": ({"a": "b"}, {}, {"template": {"metadata": {"annotations": {"a": "b"}}}}),
    "extraDeploy": (["apiVersion: v1\nkind: Secret\nmetadata: {name: '{{ .Release.Name }}-x'}"], {}, "demo-x"),
}  # fmt: skip
LIVE = ["health", "--live"]
# Kubernetes takes no other value.
ONE_VALUE = {"livenessProbe.successThreshold", "startupProbe.successThreshold"}
PROBES: tuple[tuple[str, list[str], Mapping[str, Any]], ...] = (
    ("livenessProbe", LIVE, {}),
    ("readinessProbe", ["health"], {}),
    ("startupProbe", LIVE, STARTUP),
)
for kind, command, beside in PROBES:
    OTHERS[f"{kind}.enabled"] = (False, {}, None)
    for key in ("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "successThreshold", "failureThreshold"):
        if f"{kind}.{key}" not in ONE_VALUE:
            OTHERS[f"{kind}.{key}"] = (17, beside, {kind: {"exec": {"command": command}, key: 17}})
OTHERS["startupProbe.enabled"] = (True, {}, {"startupProbe": {"exec": {"command": LIVE}}})
# These take something away.
MISSING = {
    "persistence.enabled": "PersistentVolumeClaim",
    "livenessProbe.enabled": "livenessProbe",
    "readinessProbe.enabled": "readinessProbe",
    "securityContext.enabled": "runAsUser",
    "podSecurityContext.enabled": "fsGroup",
    "containerSecurityContext.enabled": "runAsUser",
    "account": "fsGroup",
}
# If one of these is empty, the chart refuses the values that need it.
NEEDS = {"cloneFilesFromGit.repository", "nodeAffinityPreset.key", "nodeAffinityPreset.values"}
FIRST = {"elastic": "1.31"}  # Kubernetes that knows it, where 1.28 does not


DEFAULTS = dict(leaves(defaults()))


def at(path: str, value: Any) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return {**value}


def values_of(*parameters: str) -> dict[str, Any]:
    """Return values that set these parameters, which need the same other values."""
    _, beside, _ = OTHERS[parameters[0]]
    return merged(beside, *(at(parameter, OTHERS[parameter][0]) for parameter in parameters))


def before(parameter: str) -> Objects:
    """Return the objects with the parameter's default, which is set only over another value: to render takes 12 ms."""
    _, beside, _ = OTHERS[parameter]
    if parameter in NEEDS:
        return objects({})
    return objects(merged(beside, at(parameter, DEFAULTS[parameter])) if parameter in dict(leaves(beside)) else beside)


def holds(whole: Any, expected: Any) -> bool:
    """Return True if the value contains a text, a list, or the entries of a mapping."""
    if isinstance(expected, dict) and isinstance(whole, dict) and _within(whole, expected):
        return True
    if whole == expected:
        return True
    parts = whole.values() if isinstance(whole, dict) else whole if isinstance(whole, list) else ()
    return any(holds(part, expected) for part in parts) or (isinstance(whole, dict) and expected in [*whole])


def _within(whole: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    """Return True if the mapping has all entries, and inner mappings all of theirs."""

    def same(found: Any, value: Any) -> bool:
        return found == value or (isinstance(value, dict) and isinstance(found, dict) and _within(found, value))

    return all(key in whole and same(whole[key], value) for key, value in part.items())


MOST_TOGETHER = 1 if NIGHTLY else 24


@cache
def groups() -> list[list[str]]:
    """Parameters to set at once, as Helm takes 12 ms each time; none appears in the expected output of another."""
    together: list[list[str]] = []
    for parameter in OTHERS:
        group = next((each for each in together if len(each) < MOST_TOGETHER and _fits(parameter, each)), None)
        if group:
            group.append(parameter)
        else:
            together.append([parameter])
    return [part for group in together for part in _accepted(group)]


def _fits(parameter: str, group: list[str]) -> bool:
    if {parameter, *group} & {*MISSING, *NEEDS}:
        return False
    value, beside, expected = OTHERS[parameter]
    return all(
        OTHERS[other][1] == beside
        and not holds([OTHERS[other][0], OTHERS[other][2]], expected)
        and not holds([value, expected], OTHERS[other][2])
        for other in group
    )


def _accepted(group: list[str]) -> list[list[str]]:
    """Return the group, or each of its parameters if Helm refuses them together."""
    try:
        render(values_of(*group))
    except helm_python.HelmError:
        return [[parameter] for parameter in group]
    return [group]


def test_every_parameter_is_tried() -> None:
    assert set(OTHERS) == set(DEFAULTS) - ONE_VALUE


def test_another_value_than_the_default_is_found_in_the_output() -> None:
    cases = [(parameter, group) for group in groups() for parameter in group]
    assert [parameter for parameter, _ in cases if OTHERS[parameter][0] == DEFAULTS[parameter]] == []
    wrong = [
        parameter
        for parameter, group in cases
        if not has_effect(parameter, group) and not has_effect(parameter, [parameter])
    ]
    assert wrong == []


def has_effect(parameter: str, group: list[str]) -> bool:
    """Return True if the parameter changes the output as expected, when all of the group are set."""
    without, after = [*before(parameter).values()], [*objects(values_of(*group)).values()]
    if parameter in MISSING:
        return holds(without, MISSING[parameter]) and not holds(after, MISSING[parameter])
    return holds(after, OTHERS[parameter][2]) and not holds(without, OTHERS[parameter][2])


def test_kubernetes_takes_it_with_every_parameter() -> None:
    """By the newest schemas, and those of 1.28 or of the first version that has the field."""
    distinct = {
        (json.dumps(each), version): group  # most parameters change one object of several
        for group in groups()
        for each in objects(values_of(*group)).values()
        for version in ("", max(FIRST.get(parameter, "1.28") for parameter in group))
    }
    refused = []
    for (text, version), group in distinct.items():
        try:
            check_manifest(text, version)
        except JobError as error:
            refused.append(f"{', '.join(group)}: {error.message}")
    assert refused == []


def test_an_older_kubernetes_does_not_know_it() -> None:
    for parameter in FIRST:
        with pytest.raises(JobError, match=r"1\.28.* does not take this"):
            check_manifest(yaml.dump_all(objects(values_of(parameter)).values(), Dumper=yaml.CSafeDumper), "1.28")
