"""The pod of a node: user, GPUs, image, probes and labels; and values of null."""

import re
from collections.abc import Iterable
from typing import Any

import helm_python
import pytest
import yaml

from tests.unit.charts.helm import CHART, container, defaults, env, leaves, merged, objects, one, pod, render
from tests.unit.charts.pytorch.test_templates import GROUP, KINDS, SCRIPT, SERVICE
from tests.unit.jobs.targets.test_kubernetes import unrestricted


def test_a_cluster_that_chooses_the_user_is_told_none() -> None:
    for case in KINDS:
        more = {"podSecurityContext": {"fsGroup": 3, "runAsGroup": 4, "supplementalGroups": [5]}}
        text = yaml.dump_all(
            objects(merged(KINDS[case], more, {"account": "cluster"})).values(), Dumper=yaml.CSafeDumper
        )
        assert not re.findall("runAsUser|runAsGroup|fsGroup", text), case
        assert "supplementalGroups" in text, case
        assert list(unrestricted(pod(objects(merged(KINDS[case], {"account": "cluster"}))))) == [], case


@pytest.mark.parametrize(
    ("values", "void"),
    [
        ({}, True),
        ({"resources": {"limits": {"cpu": 1, "nvidia.com/gpu": 0}}}, True),
        ({"gpu": 1}, False),
        ({"resources": {"limits": {"nvidia.com/mig-1g.5gb": 1}}}, False),
        ({"resources": {"claims": [{"name": "gpu"}]}}, False),
    ],
)
def test_a_job_without_a_gpu_sees_none(values: dict[str, Any], void: bool) -> None:
    assert (env(objects(values)).get("NVIDIA_VISIBLE_DEVICES") == "void") == void


def test_a_users_own_choice_of_gpus_counts() -> None:
    matches = objects({"extraEnvVars": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]})
    names = [each["value"] for each in container(matches)["env"] if each["name"] == "NVIDIA_VISIBLE_DEVICES"]
    assert names == ["all"]


@pytest.mark.parametrize("tag", [9, 20240101, "9"])
def test_a_tag_that_is_a_number_is_that_tag(tag: object) -> None:
    matches = objects(merged(KINDS["git over ssh"], {"image": {"tag": tag}, "git": {"tag": tag}}))
    assert container(matches)["image"] == f"docker.io/torchbake/pytorch:{tag}"
    assert pod(matches)["initContainers"][0]["image"] == f"docker.io/team/git:{tag}"
    assert env(objects(merged(SCRIPT, {"cloneFilesFromGit": {"enabled": True, "repository": "a", "revision": tag}})))[
        "GIT_REVISION"
    ] == str(tag)


@pytest.mark.parametrize("values", [{"command": ["python"]}, {"diagnosticMode": {"enabled": True}, **GROUP}])
def test_another_command_is_not_asked_as_run_is(values: dict[str, Any]) -> None:
    value = container(objects(merged(values, {"startupProbe": {"enabled": True}})))
    assert not [key for key in value if key.endswith("Probe")]
    probe = {"exec": {"command": ["true"]}}
    own = container(objects(merged(values, {"customReadinessProbe": probe})))
    assert ("readinessProbe" in own) == ("command" in values)


def test_a_pods_labels_keep_it_in_its_group() -> None:
    value = one(objects(merged(SERVICE, {"podLabels": {"app.kubernetes.io/name": "other", "a": "b"}})), "StatefulSet")
    labels = value["spec"]["template"]["metadata"]["labels"]
    assert value["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels["a"] == "b"


def test_a_null_is_nothing_or_an_error_in_a_sentence() -> None:
    """A file may set a value to null; the error of a template itself has the word `executing`."""
    names = [name for name, _ in leaves(defaults())]
    sections = {name.rpartition(".")[0] for name in names} - {""}
    refused = [name for name in names if name in MANDATORY]
    names = [name for name in names if name not in MANDATORY]
    count = len(names) // TOGETHER
    groups = [*(names[place::count] for place in range(count)), *([name] for name in (*refused, *sorted(sections)))]
    for group in groups:
        if problem_of_nulls(group):  # which hides that of the others
            for name in group:
                text = problem_of_nulls([name])
                assert not re.search('executing "|<no value>|<nil>|%!', text), f"{name}: {text}"


TOGETHER = 24  # parameters of different sections, as to render takes 12 ms
MANDATORY = yaml.safe_load((CHART / "other-charts.yaml").read_text())["needed"]


def problem_of_nulls(names: Iterable[str]) -> str:
    """Return the error of Helm, or the objects if a null is in their text."""
    values = GROUP
    for name in names:
        nested: dict[str, Any] = {}
        for key in reversed(name.split(".")):
            nested = {key: nested or None}
        values = merged(values, nested)
    try:
        text = "".join(render(values).values())
    except helm_python.HelmError as error:
        return str(error)
    return text if re.search("<no value>|<nil>|%!", text) else ""
