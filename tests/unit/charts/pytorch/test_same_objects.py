"""The chart with the values of `job show helm` creates the objects of `job show kubernetes`."""

from typing import Any

import helm_python
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.charts.helm import Objects, objects, one
from tests.unit.jobs.cases import CASES, LEAST, task_of, text_of
from torchbake.jobs.targets import helm, kubernetes
from torchbake.jobs.targets.yaml_text import documents
from torchbake.jobs.task import Task

HELMS = ("helm.sh/chart", "app.kubernetes.io/instance")  # what Helm says of itself; docs/how-to/chart.md
BY_HELM = "app.kubernetes.io/managed-by"
MORE = {
    "literal texts": """\
args: [$(A), $$B, '{{ .Values }}', '1e3', y]
env: {A: $(X), B: '{{ fail "no" }}', C: '1e3', D: n}
""",
    "claims": """\
nodes: 2
volumes:
  - {size: 1Gi, mountPath: /a, accessMode: ReadWriteOncePod}
  - {size: 2Gi, mountPath: /b}
  - {claim: made, size: 3Gi, mountPath: /c}
  - {claim: there, mountPath: /d, permissions: fix}
""",
    "configMap": "files: {configMap: mnist-files}",
    "no restarts": "restarts: 0\nmodule: package.train",
    "labels of its own": "labels: {app.kubernetes.io/name: other, team: ''}",
    "empty pod fields": "nodes: 2\nmode: distributed\nresources: {gpu: 2}\ntolerations: [{operator: Exists}]",
}
IMAGES = ("pytorch", "pytorch:1e3", "team/pytorch", "localhost/a:b", "host:5000/a/b", f"a.b/c:d@sha256:{'a' * 64}")


def meaning(value: Any) -> Any:
    """Remove Helm's own labels, and sort variables and files by name, as Kubernetes merges them."""
    if isinstance(value, list):
        return [meaning(each) for each in value]
    if not isinstance(value, dict):
        return value
    matches = {key: meaning(each) for key, each in value.items() if key not in HELMS}
    if BY_HELM in matches:
        matches[BY_HELM] = {"Helm": "torchbake"}.get(matches[BY_HELM], matches[BY_HELM])
    for key, name in (("env", "name"), ("items", "key")):
        if key in matches:
            matches[key] = sorted(matches[key], key=lambda each: each[name])
    return matches


def of_chart(task: Task) -> Objects:
    """Return the objects of the chart, which do not depend on the name of the release."""
    return {name: meaning(each) for name, each in objects(helm_python.values_from_yaml(helm.render(task))).items()}


def of_kubernetes(task: Task) -> Objects:
    return {(each["kind"], each["metadata"]["name"]): meaning(each) for each in kubernetes.objects(task)}


@pytest.mark.parametrize("case", CASES)
def test_the_chart_makes_the_same_objects(case: str) -> None:
    task = task_of(text_of(case))
    assert of_chart(task) == of_kubernetes(task)


def more_of(case: str) -> Task:
    least = LEAST.replace("script: train.py\n", "") if "module" in MORE[case] else LEAST
    least = least.partition("resources")[0] if "resources" in MORE[case] else least
    return task_of(least + MORE[case])


@pytest.mark.parametrize("case", MORE)
def test_the_same_of_what_could_be_read_otherwise(case: str) -> None:
    assert of_chart(more_of(case)) == of_kubernetes(more_of(case))


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_is_named_to_the_letter(image: str) -> None:
    task = Task(job=task_of(LEAST).job, image=image)
    assert of_chart(task) == of_kubernetes(task)


def test_files_whose_keys_are_the_same_stay_apart() -> None:
    task = task_of(text_of("standalone"))
    contents = {"z": b"0", "a_b": b"1", "a/b": b"2", "a b": b"\xff", f"{'ä' * 300}.py": b"4"}
    task = Task(job=task.job, image=task.image, folder=task.folder, contents=contents)
    assert of_chart(task) == of_kubernetes(task)
    assert len(one(of_chart(task), "ConfigMap")["data"]) == 4


def test_another_user_owns_the_volumes() -> None:
    task = task_of(LEAST + "volumes: [{claim: a, mountPath: /data, permissions: fix}]")
    task = Task(job=task.job, image=task.image, init_image=task.init_image, uid=2000)
    assert of_chart(task) == of_kubernetes(task)


@given(text=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12))
def test_a_text_is_the_same_text_for_helm(text: str) -> None:
    assert helm_python.values_from_yaml(documents([{"a": text}])) == {"a": text}


def test_what_looks_like_something_else_stays_a_text() -> None:
    for text in ("1e3", "y", "N", "0o17", "1e-3", ".5", "+1", "0x1F", "1_000", "~", "on", "2026-01-01"):
        assert (
            helm_python.values_from_yaml(documents([{"a": text}]))
            == yaml.safe_load(documents([{"a": text}]))
            == {"a": text}
        ), text
