"""The chart by Helm 3: what Helm 4's library makes of it in the unit tests, object by object, and what both refuse."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import helm_python
import pytest
import yaml

from tests.e2e.conftest import ROOT
from tests.e2e.helm3 import VERSION, Helm3, helm3
from tests.unit.charts.helm import objects
from tests.unit.charts.pytorch.test_other_charts import AGES
from tests.unit.charts.pytorch.test_parameters import groups, holds, values_of
from tests.unit.charts.pytorch.test_same_objects import MORE, more_of
from tests.unit.charts.pytorch.test_templates import KINDS, NOTHING_LEFT, REFUSED
from tests.unit.jobs.cases import CASES, task_of, text_of
from torchbake.jobs.kubernetes_schema import check_manifest
from torchbake.jobs.targets import helm as target

pytestmark = pytest.mark.charts

SETS: dict[str, Mapping[str, Any]] = {
    **{", ".join(group): values_of(*group) for group in groups()},
    **KINDS,
    **AGES,
    **{f"job {case}": helm_python.values_from_yaml(target.render(task_of(text_of(case)))) for case in CASES},
    **{f"job {case}": helm_python.values_from_yaml(target.render(more_of(case))) for case in MORE},
    "what is taken away": NOTHING_LEFT,
}


@pytest.fixture(scope="module")
def helm() -> Helm3:
    value = helm3(ROOT / ".torchbake/tools")
    assert value.version() == VERSION
    return value


def test_every_set_of_values_makes_the_objects_that_helm_4_makes(helm: Helm3) -> None:
    with ThreadPoolExecutor(2) as pool:
        items = dict(zip(SETS, pool.map(helm.objects, SETS.values()), strict=True))
    assert [case for case, values in SETS.items() if items[case] != objects(values)] == []
    assert len(SETS) > 60


@pytest.mark.parametrize("case", KINDS)
def test_its_lint_finds_nothing(case: str, helm: Helm3) -> None:
    assert helm.lint(KINDS[case]) == ""


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("--set mode=distributed --set worldSize=4", {"mode": "distributed", "worldSize": 4}),
        ("--values charts/pytorch/values-production.yaml", KINDS["production alone"]),
        ("--set image.tag=9", {"image": {"tag": "9"}}),
    ],
)
def test_a_line_of_a_document_is_rendered_as_it_is_typed(line: str, values: Mapping[str, Any], helm: Helm3) -> None:
    assert helm.objects({}, *line.split()) == objects(values)


@pytest.mark.parametrize(("adapt", "account"), [("auto", "cluster"), ("force", "cluster"), ("disabled", "")])
def test_openshift_chooses_the_user_if_a_file_says_so(adapt: str, account: str, helm: Helm3) -> None:
    values = {"global": {"compatibility": {"openshift": {"adaptSecurityContext": adapt}}}}
    matches = helm.objects(values, "--api-versions", "security.openshift.io/v1")
    assert matches == objects({"account": account})


def test_its_lint_finds_what_is_there_to_be_found(helm: Helm3) -> None:
    assert "wordSize" in helm.lint({"wordSize": 4})


@pytest.mark.parametrize(("values", "output"), REFUSED)
def test_what_helm_4_refuses_is_refused_in_its_own_words(values: dict[str, Any], output: str, helm: Helm3) -> None:
    """Of a schema it writes image.tags for /image/tags; our own sentences are the same."""
    place = output.removeprefix("at ").removesuffix(" not allowed").strip("'/").replace("/", ".")
    assert place in helm.problem(values)


SCRIPT: dict[str, Any] = {"entrypoint": {"file": "train.py"}}
GROUP = {**SCRIPT, "mode": "distributed", "worldSize": 2}
NEEDS: dict[str, tuple[Mapping[str, Any], str, str]] = {
    "several nodes": (GROUP, "1.26", "set kind to statefulset, or write the job by `job show kubernetes-1.20`."),
    "restarts": (SCRIPT, "1.26", "set restarts to 0, or kind to statefulset."),
    "elastic": ({**SCRIPT, "mode": "distributed", "elastic": "2:3"}, "1.31", "set kind to statefulset, or worldSize"),
    "sidecars": ({**SCRIPT, "sidecars": [{"name": "beside", "image": "beside:1"}]}, "1.29", "leave it out."),
}


@pytest.mark.parametrize("case", NEEDS)
def test_a_kubernetes_that_misreads_the_chart_is_refused(case: str, helm: Helm3) -> None:
    values, version, instead = NEEDS[case]
    before = f"1.{int(version.partition('.')[2]) - 1}.9"
    output = helm.problem(values, "--kube-version", before)
    assert f"needs Kubernetes {version}, and this is v{before}: {instead}" in output
    assert helm.objects(values, "--kube-version", f"v{version}.0-gke.7") == objects(values)


@pytest.mark.parametrize(
    "values", [{**SCRIPT, "restarts": 0}, {**GROUP, "kind": "statefulset"}], ids=["job", "service"]
)
def test_what_the_oldest_understands_is_rendered_for_it(values: Mapping[str, Any], helm: Helm3) -> None:
    matches = helm.objects(values, "--kube-version", "1.20.2")
    check_manifest(yaml.safe_dump_all(matches.values()), "1.25")  # the oldest whose schema is at hand
    assert not holds([*matches.values()], "podFailurePolicy")
    assert "needs" not in helm.problem(values, "--kube-version", "1.19.0")  # of all of it Helm says so itself
