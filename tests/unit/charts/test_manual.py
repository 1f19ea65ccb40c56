"""README, schema and values of the chart have the same parameters, and its images are those of the matrix."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.unit.charts.helm import CHART, defaults, leaves
from torchbake.charts.manual import with_parameters
from torchbake.matrix.project import Project

VALUES = (CHART / "values.yaml").read_text()
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
README = (CHART / "README.md").read_text()


def schema_leaves(node: Mapping[str, Any], path: str = "") -> Iterator[str]:
    node = SCHEMA["definitions"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    if "properties" not in node:
        yield path.rstrip(".")
    for key, below in node.get("properties", {}).items():
        yield from schema_leaves(below, f"{path}{key}.")


def test_the_readme_is_what_the_values_say() -> None:
    assert with_parameters(README, VALUES) == README, "run: nox -s schema"


def test_every_parameter_is_described_where_it_stands() -> None:
    assert re.findall(r"(?m)^ *## @param (\S+) .", VALUES) == [name for name, _ in leaves(defaults())]


def test_the_schema_is_the_parameters_and_the_table() -> None:
    table = yaml.safe_load((CHART / "other-charts.yaml").read_text())
    assert set(schema_leaves(SCHEMA)) == {name for name, _ in leaves(defaults())} | {*table["same"], *table["refused"]}


def test_a_default_and_a_bar_are_shown_in_the_table() -> None:
    page = with_parameters("# Words\n", "# -- All\na:\n  ## @param a.b x|y\n  b: 4\n## @param c Nothing\nc: null\n")
    assert page.startswith("# Words\n")
    assert "| `a.b` | x\\|y | `4` |\n| `c` | Nothing | not set |\n" in page


def test_production_sets_only_what_there_is() -> None:
    parameters = {name for name, _ in leaves(defaults())}
    assert {name for name, _ in leaves(yaml.safe_load((CHART / "values-production.yaml").read_text()))} <= parameters


def test_images_and_their_tags_are_those_of_the_matrix(project: Project) -> None:
    tags = {spec.repository: {*project.tags[spec.id]} for spec in project.expansion.specs}
    for spec in project.expansion.specs:
        tags[spec.repository] |= {*project.tags[spec.id]}
    for image in (defaults()["image"], defaults()["volumePermissions"]["image"]):
        assert image["tag"] in tags[image["repository"]]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == defaults()["image"]["tag"]
