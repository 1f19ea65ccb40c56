"""Properties of a Job of Kubernetes besides its contract: names, restarts, and the fewest privileges."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from entrypoints.pytorch.launch.launch_error import Code
from tests.unit.jobs.cases import CASES, LEAST, job_of, task_of, text_of
from torchbake.jobs.expressible import unsupported_keys
from torchbake.jobs.targets import kubernetes

POWERFUL = {"everything"}  # has hostPath, and volume-permissions


def objects(text: str) -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(kubernetes.render(task_of(text)))}


def pod(text: str) -> Any:
    return objects(text)["Job"]["spec"]["template"]["spec"]


def unrestricted(spec: Any) -> Iterator[str]:
    """Yield violations of Pod Security "restricted": kubernetes.io/docs/concepts/security/pod-security-standards."""
    kinds = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
    yield from (f"volume {each['name']}" for each in spec["volumes"] if not kinds & set(each))
    yield from (key for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key))
    whole = spec.get("securityContext", {})
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        own = whole | container.get("securityContext", {})
        rules = {
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "runAsNonRoot": own.get("runAsNonRoot") is True,
            "runAsUser": own.get("runAsUser") != 0,
            "seccomp": own.get("seccompProfile", {}).get("type") in ("RuntimeDefault", "Localhost"),
            "drop": own.get("capabilities", {}).get("drop") == ["ALL"],
            "add": set(own.get("capabilities", {}).get("add", ())) <= {"NET_BIND_SERVICE"},
            "privileged": not own.get("privileged"),
        }
        yield from (f"{container['name']}: {rule}" for rule, holds in rules.items() if not holds)


@pytest.mark.parametrize("case", sorted(set(CASES) - POWERFUL))
def test_a_job_passes_pod_security_restricted_and_says_so(case: str) -> None:
    assert list(unrestricted(pod(text_of(case)))) == []
    assert kubernetes.render(task_of(text_of(case))).startswith('# Pod Security "restricted" takes this.\n')


def test_only_volume_permissions_has_privileges() -> None:
    text = LEAST + "volumes: [{claim: a, mountPath: /data, permissions: fix}, {claim: b, mountPath: /other}]"
    rules = {"runAsNonRoot", "runAsUser", "add"}
    assert set(unrestricted(pod(text))) == {f"volume-permissions: {rule}" for rule in rules}
    (container,) = pod(text)["initContainers"]
    assert container["securityContext"]["capabilities"]["add"] == ["CHOWN", "FOWNER", "DAC_OVERRIDE"]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/data"]
    assert "volume-permissions runs as root" in kubernetes.render(task_of(text)).splitlines()[0]


def test_what_a_read_only_root_must_be_able_to_write_is_a_volume() -> None:
    spec = pod(text_of("standalone"))
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    empty = {each["name"] for each in spec["volumes"] if "emptyDir" in each}
    assert {"/tmp", "/dev/shm"} <= {each["mountPath"] for each in container["volumeMounts"] if each["name"] in empty}


def test_one_node_is_a_plain_job_and_several_have_a_service() -> None:
    alone, several = objects(text_of("standalone")), objects(text_of("ddp"))
    assert "Service" not in alone
    assert "completionMode" not in alone["Job"]["spec"]
    service = several["Service"]["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    assert service["selector"] == {"job-name": several["Job"]["metadata"]["name"]}
    assert pod(text_of("ddp"))["subdomain"] == several["Service"]["metadata"]["name"]


def test_a_lost_node_is_replaced_but_not_a_failed_script() -> None:
    lost, failed = objects(text_of("ddp"))["Job"]["spec"]["podFailurePolicy"]["rules"]
    assert (lost["action"], lost["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    codes = failed["onExitCodes"]
    assert (failed["action"], codes["operator"]) == ("FailJob", "NotIn")
    of_nodes = {Code.NO_NAME, Code.NO_PORT, Code.NODES_MISSING, Code.NODE_LOST}
    assert set(codes["values"]) == {int(code) for code in of_nodes} | {143}
    never = objects(LEAST + "restarts: 0")["Job"]["spec"]
    assert (never["backoffLimit"], never["podFailurePolicy"]["rules"][0]["action"]) == (0, "FailJob")


def test_kubernetes_expands_no_variable_in_texts_of_the_job() -> None:
    text = LEAST + "args: [$(A), $$B, $C]\nenv: {A: $(X)}"
    (container,) = pod(text)["containers"]
    assert container["args"][2:] == ["$$(A)", "$$$$B", "$C"]
    assert {"name": "A", "value": "$$(X)"} in container["env"]


def test_files_keep_their_paths_though_keys_have_no_slashes() -> None:
    matches = objects(text_of("standalone"))
    config, (volume,) = matches["ConfigMap"], [v for v in pod(text_of("standalone"))["volumes"] if "configMap" in v]
    keys = {**config["data"], **config["binaryData"]}
    assert {item["path"] for item in volume["configMap"]["items"]} == {"train.py", "data/labels.bin", "odd name.txt"}
    assert {item["key"] for item in volume["configMap"]["items"]} == set(keys)


def test_two_paths_of_one_key_are_told_apart() -> None:
    task = task_of(text_of("standalone"))
    object.__setattr__(task, "contents", {"a b": b"1", "a/b": b"2", "a_b": b"3"})
    (config,) = [each for each in kubernetes.objects(task) if each["kind"] == "ConfigMap"]
    assert sorted(config["data"].values()) == ["1", "2", "3"]


def test_a_name_too_long_for_a_pods_host_is_refused() -> None:
    name = "m" * 62
    assert unsupported_keys(job_of(LEAST.replace("mnist", name)), kubernetes)
    assert not unsupported_keys(job_of(LEAST.replace("mnist", "m" * 61)), kubernetes)
    assert unsupported_keys(job_of(LEAST.replace("mnist", "m" * 61) + "nodes: 11"), kubernetes)


@pytest.mark.parametrize(("nodes", "mode"), [(1, "ReadWriteOnce"), (2, "ReadWriteMany")])
def test_a_claim_can_be_mounted_by_all_nodes(nodes: int, mode: str) -> None:
    text = LEAST + f"nodes: {nodes}\nvolumes: [{{size: 8Gi, mountPath: /data}}]"
    claim = objects(text)["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == [mode]
    assert "storageClassName" not in claim["spec"]
