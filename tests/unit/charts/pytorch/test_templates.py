"""Properties of the chart besides its parameters: nodes, files, probes, the end of a job, and refused values."""

import re
from typing import Any

import helm_python
import pytest
import yaml

from entrypoints.pytorch.launch.contract import Contract, contract_of
from tests.unit.charts.helm import CHART, container, env, merged, objects, one, pod, problem, render
from tests.unit.jobs.schemas import check_manifest
from tests.unit.jobs.targets.test_kubernetes import unrestricted

SCRIPT = {"entrypoint": {"file": "train.py"}}
GROUP = {"mode": "distributed", "worldSize": 4, **SCRIPT}
SMOKE = ["run", "/opt/torchbake/smoke", "ddp"]
SERVICE = merged(GROUP, {"kind": "statefulset"})
PRODUCTION = merged(yaml.safe_load((CHART / "values-production.yaml").read_text()), SCRIPT)
GIT = {"cloneFilesFromGit": {"enabled": True, "repository": "git@example.com:job.git", "sshSecret": "deploy"}, **SCRIPT}
KINDS = {
    "as it is": {},
    "distributed": GROUP,
    "statefulset": SERVICE,
    "one of a kind": {"kind": "statefulset", **SCRIPT},
    "production": PRODUCTION,
    "production alone": merged(PRODUCTION, {"entrypoint": {"file": ""}}),
    "the smoke test of four": {"mode": "distributed", "worldSize": 4},
    "git over ssh": merged(GIT, {"git": {"repository": "team/git"}}),
    "all beside": merged(SERVICE, {"service": {"type": "LoadBalancer"}, "serviceAccount": {"create": True}}),
}

NOTHING_LEFT = {"worldSize": None, "customStartupProbe": None, "sidecars": None}
# Impossible values, each with a part of the message.
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"worldSize": 2}, "set mode to distributed"),
    ({"processesPerNode": 2}, "set mode to distributed"),
    (merged(SCRIPT, {"command": ["sh"]}), "keep one of them"),
    (merged(SCRIPT, {"args": ["bench"]}), "keep one of them"),
    ({"livenessProbe": {"successThreshold": 2}}, "at '/livenessProbe/successThreshold'"),
    ({"startupProbe": {"successThreshold": 2}}, "at '/startupProbe/successThreshold'"),
    ({"customLivenessProbe": {"successThreshold": 2}}, "at '/customLivenessProbe/successThreshold'"),
    ({"image": {"tag": 2.1}}, "at '/image/tag'"),
    ({"nodeAffinityPreset": {"type": "hard"}}, "without nodeAffinityPreset.key"),
    ({"service": {"nodePorts": {"pytorch": 30080}}}, "set service.type to NodePort"),
    (merged(SCRIPT, {"account": "cluster", "volumePermissions": {"enabled": True}}), "leave permissions out"),
    (merged(GROUP, {"elastic": "1:2"}), "keep one of them"),
    (merged(SCRIPT, {"entrypoint": {"module": "a"}}), "keep one of them"),
    ({"cloneFilesFromGit": {"enabled": True}}, "cloneFilesFromGit.repository: is not set"),
    ({"worldSize": 0}, "at '/worldSize'"),
    ({"worldSize": "4"}, "at '/worldSize'"),
    ({"port": 80}, "at '/port'"),
    ({"mode": "both"}, "at '/mode'"),
    ({"wordSize": 4}, "'wordSize' not allowed"),
    ({"image": {"tags": "a"}}, "'tags' not allowed"),
    ({"image": {"digest": "sha256:1"}}, "at '/image/digest'"),
    ({"securityContext": {"runAsUser": 0}}, "at '/securityContext/runAsUser'"),
    ({"entrypoint": {"file": "a.py", "args": "--name 'a b'"}}, "at '/entrypoint/args'"),
    ({"volumes": [{"mountPath": "/data"}]}, "at '/volumes/0'"),
    ({"extraEnvVars": [{"name": "A", "value": 1}]}, "at '/extraEnvVars/0/value'"),
]


def contracts(values: dict[str, Any]) -> list[Contract]:
    """Return the contract of `run` in each pod, with the variables that Kubernetes adds."""
    matches = objects(values)
    owner = next(each for each in matches.values() if each["kind"] in ("Job", "StatefulSet"))
    count = owner["spec"].get("completions") or owner["spec"].get("replicas", 1)
    name, own = owner["metadata"]["name"], env(matches)
    assert set(own) >= {"MASTER_PORT"}
    extra = {"JOB_COMPLETION_INDEX": "{}"} if owner["spec"].get("completionMode") else {"POD_NAME": name + "-{}"}
    more = {key: text for key, text in extra.items() if key in own or key == "JOB_COMPLETION_INDEX"}
    return [contract_of(own | {key: text.format(rank) for key, text in more.items()}, gpus=8) for rank in range(count)]


@pytest.mark.parametrize("case", KINDS)
@pytest.mark.parametrize("version", ["", "1.28"])
def test_kubernetes_takes_it(case: str, version: str) -> None:
    check_manifest(yaml.dump_all(objects(KINDS[case]).values(), Dumper=yaml.CSafeDumper), version)


def test_helm_lint_finds_nothing() -> None:
    for case, values in KINDS.items():
        report = helm_python.lint(CHART, values, strict=True)
        assert report["errors"] == [], case
        assert {message["error"] for message in report["messages"]} <= {"icon is recommended"}, case


@pytest.mark.parametrize("case", KINDS)
def test_pod_security_restricted_takes_it(case: str) -> None:
    assert list(unrestricted(pod(objects(KINDS[case])))) == []


@pytest.mark.parametrize("kind", ["job", "statefulset"])
@pytest.mark.parametrize(("processes", "expected"), [("", 1), (2, 2), ("auto", 8)])
def test_nodes_are_one_master_and_the_rest_workers(kind: str, processes: object, expected: int) -> None:
    values = merged(GROUP, {"kind": kind, "processesPerNode": processes})
    matches, name = contracts(values), objects(values)
    assert [each.node_rank for each in matches] == [0, 1, 2, 3]
    assert {(each.nnodes, each.nproc_per_node, each.master_port) for each in matches} == {(4, expected, 49875)}
    owner = one(name, {"job": "Job", "statefulset": "StatefulSet"}[kind])["metadata"]["name"]
    service = one(name, "Service")
    assert {each.master_addr for each in matches[1:]} == {f"{owner}-0.{service['metadata']['name']}"}
    assert service["spec"]["publishNotReadyAddresses"] is True


@pytest.mark.parametrize("kind", ["job", "statefulset"])
def test_an_elastic_group_has_a_range_and_starts_the_most(kind: str) -> None:
    matches = contracts(merged(SCRIPT, {"mode": "distributed", "elastic": "2:3", "kind": kind, "restarts": 5}))
    assert len(matches) == 3
    assert {(each.elastic, each.max_restarts) for each in matches} == {((2, 3), 5)}


def test_a_statefulset_starts_all_pods_at_once_and_always_again() -> None:
    value = one(objects(SERVICE), "StatefulSet")["spec"]
    assert value["podManagementPolicy"] == "Parallel"
    assert value["template"]["spec"]["restartPolicy"] == "Always"
    assert value["selector"]["matchLabels"].items() <= value["template"]["metadata"]["labels"].items()
    assert one(objects(SERVICE), "Service")["spec"]["selector"] == value["selector"]["matchLabels"]


def test_production_is_four_nodes_that_share_a_claim() -> None:
    matches = objects(PRODUCTION)
    assert one(matches, "Job")["spec"]["completions"] == 4
    assert one(matches, "PersistentVolumeClaim")["spec"]["accessModes"] == ["ReadWriteMany"]
    assert one(matches, "PodDisruptionBudget")["spec"]["minAvailable"] == 4
    labels = one(matches, "Job")["spec"]["template"]["metadata"]["labels"]
    (spread,) = pod(matches)["topologySpreadConstraints"]
    for selector in (spread["labelSelector"], one(matches, "NetworkPolicy")["spec"]["podSelector"]):
        assert selector["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize(
    ("values", "source"),
    [
        ({"configMap": "a", "files": {"train.py": ""}, **GIT}, {"name": "a"}),
        ({"files": {"train.py": ""}, **GIT}, {"name": "demo-pytorch-files"}),
        (GIT, None),
    ],
    ids=["ConfigMap", "files", "git"],
)
def test_a_config_map_comes_before_files_and_those_before_git(values: dict[str, Any], source: Any) -> None:
    matches = objects(values)
    mounted = [each["configMap"]["name"] for each in pod(matches)["volumes"] if "configMap" in each]
    assert mounted == ([source["name"]] if source else [])
    assert ("GIT_REPOSITORY" in env(matches)) == (source is None)
    assert ("JOB_DIR" in env(matches)) == (source is not None)


def test_an_own_git_image_clones_before_the_job_starts() -> None:
    matches = objects(KINDS["git over ssh"])
    (git,) = pod(matches)["initContainers"]
    assert {"GIT_REPOSITORY", "GIT_REVISION", "GIT_SSH_COMMAND"} <= {each["name"] for each in git["env"]}
    assert "GIT_REPOSITORY" not in env(matches)
    assert env(matches)["JOB_DIR"] == "/job"
    (mount,) = [each for each in container(matches)["volumeMounts"] if each["mountPath"] == "/job"]
    assert (mount["subPath"], mount["readOnly"]) == ("job", True)
    assert not [each for each in container(matches)["volumeMounts"] if each["name"] == "git-ssh"]


def test_a_key_of_ssh_is_where_the_images_own_git_looks() -> None:
    matches = objects(GIT)
    (mount,) = [each for each in container(matches)["volumeMounts"] if each["name"] == "git-ssh"]
    assert f"UserKnownHostsFile={mount['mountPath']}/known_hosts" in env(matches)["GIT_SSH_COMMAND"]


def job_name(values: dict[str, Any]) -> str:
    name: str = one(objects(values), "Job")["metadata"]["name"]
    return name


@pytest.mark.parametrize(
    "change",
    [
        {"restarts": 1},
        {"files": {"train.py": "2"}},
        {"image": {"tag": "x"}},
        {"extraEnvVars": [{"name": "A", "value": "1"}]},
    ],
    ids=["policy", "a file's content", "image", "variable"],
)
def test_an_upgrade_that_changes_what_runs_makes_another_job(change: dict[str, Any]) -> None:
    before = merged(GROUP, {"files": {"train.py": "1"}})
    assert job_name(before) != job_name(merged(before, change))
    assert job_name(before) == job_name(merged(before, {"networkPolicy": {"enabled": True}}))
    assert one(objects(before), "Service")["spec"]["selector"] == {"job-name": job_name(before)}


def test_a_pods_host_has_room_for_its_number() -> None:
    assert len(job_name(merged(GROUP, {"fullnameOverride": "m" * 63}))) + len("-99999") <= 63


@pytest.mark.parametrize(
    ("args", "words"),
    [("--epochs 3  --lr 0.1", ["--epochs", "3", "--lr", "0.1"]), ("", []), (["$(A)", "a b"], ["$$(A)", "a b"])],
)
def test_words_are_a_list_or_a_text(args: object, words: list[str]) -> None:
    assert container(objects({"entrypoint": {"file": "a.py", "args": args}}))["args"] == ["run", "a.py", *words]


def test_impossible_values_are_refused_with_their_place() -> None:
    for values, message in REFUSED:
        assert message in problem(values), (values, message)


@pytest.mark.parametrize("case", KINDS)
def test_notes_name_what_there_is(case: str) -> None:
    notes, matches = render(KINDS[case])["NOTES.txt"], objects(KINDS[case])
    owner = next(each for each in matches.values() if each["kind"] in ("Job", "StatefulSet"))
    assert owner["metadata"]["name"] in notes.splitlines()[0]
    assert "kubectl logs --namespace team" in notes
    assert "%!" not in notes
    assert ("only tests the image" in notes) == (case in ("as it is", "production alone", "the smoke test of four"))
    labels = owner["spec"]["template"]["metadata"]["labels"] | {"job-name": owner["metadata"]["name"]}
    for key, value in re.findall(r"--selector (\S+?)=(\S+)", notes):
        assert labels[key] == value


def test_a_claim_for_one_machine_and_many_nodes_is_told() -> None:
    assert "ReadWriteOnce, so all pods wait for one machine" in render(GROUP)["NOTES.txt"]
    assert "wait for one machine" not in render(PRODUCTION)["NOTES.txt"]


def test_nothing_is_left_of_a_value_that_is_taken_away() -> None:
    """Helm removes a default if its value is null."""
    assert job_name(NOTHING_LEFT)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, ["smoke", "tensor", "autograd"]),
        ({"gpu": 1}, ["smoke", "tensor", "autograd", "--device", "cuda"]),
        ({"mode": "distributed", "worldSize": 4}, SMOKE),
        ({"mode": "distributed", "worldSize": 4, "gpu": 2}, [*SMOKE, "--device", "cuda"]),
        ({"mode": "distributed", "elastic": "2:3"}, SMOKE),
    ],
)
def test_without_a_script_the_image_tests_itself_on_all_nodes(values: dict[str, Any], words: list[str]) -> None:
    assert container(objects(values))["args"] == words


def test_the_images_own_test_waits_for_no_claim_and_keeps_it() -> None:
    matches = objects({"mode": "distributed", "worldSize": 4, "volumePermissions": {"enabled": True}})
    assert one(matches, "PersistentVolumeClaim")
    assert not [each for each in pod(matches)["volumes"] if "persistentVolumeClaim" in each]
    assert "initContainers" not in pod(matches)
    assert [each for each in pod(objects(GROUP))["volumes"] if "persistentVolumeClaim" in each]
