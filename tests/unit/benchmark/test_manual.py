"""docs/reference/benchmark-plans.md and the schema agree with the model, and the examples of the page are valid."""

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from torchbake.benchmark.expand import experiments
from torchbake.benchmark.manual import MARK, plan_schema, with_reference
from torchbake.benchmark.model import Plan, load_plan, validate_plan, with_variables
from torchbake.commands.schema import PLAN_PAGE, PLAN_SCHEMA
from torchbake.core.paths import TOOLKIT
from torchbake.errors import NoisyError, SlowerError
from torchbake.matrix.yaml_source import parse_document

TEXT = PLAN_PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"(?ms)^```yaml\n(.*?)^```$", TEXT)
PLANS = sorted((TOOLKIT / "examples").glob("*/plan*.yaml"))


def test_the_page_and_the_schema_are_what_the_model_says() -> None:
    assert with_reference(TEXT) == TEXT, "run: nox -s schema"
    assert PLAN_SCHEMA.read_text(encoding="utf-8") == plan_schema(), "run: nox -s schema"


def test_every_key_of_the_model_has_its_row() -> None:
    schema = Plan.model_json_schema()
    keys = sorted(key for model in (schema, *schema["$defs"].values()) for key in model["properties"])
    assert sorted(re.findall(r"(?m)^\| `(\w+)` \|", TEXT.partition(MARK)[2])) == keys


@pytest.mark.parametrize("text", BLOCKS)
def test_a_plan_of_the_page_is_one(text: str) -> None:
    plan = validate_plan(with_variables(parse_document(text, Path("plan.yaml")), {}))
    assert plan.images
    assert len(list(experiments(plan))) >= 4


def test_the_page_has_a_plan_to_begin_with_and_one_with_all_keys() -> None:
    assert len(BLOCKS) == 3
    assert set(yaml.safe_load(BLOCKS[-1])) == set(Plan.model_fields)


def test_editors_take_references_for_any_value() -> None:
    schema: Any = import_module("jsonschema").Draft202012Validator(json.loads(plan_schema()))
    for path in sorted((TOOLKIT / "examples/benchmark").glob("*.yaml")):
        schema.validate(yaml.safe_load(path.read_text()))
    plan = {"models": "${a}", "batch_sizes": ["${b}"], "num_batches": "${c}", "images": "${d}", "gpus": "${e}"}
    schema.validate({**plan, "variables": {"a": "x", "b": [1, "y"]}, "docker": {"shm_size": "${f}"}})
    for wrong in ({"num_batches": "ten"}, {"docker": {"shm_size": "ten"}}, {"batch_sizes": ["x"]}):
        assert not schema.is_valid({**plan, **wrong})


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.parent.name)
def test_an_example_is_a_plan_whose_own_models_are_there(path: Path) -> None:
    plan, _ = load_plan(path)
    own = [model.rpartition(":") for model in plan.models if ".py:" in model]
    assert own
    assert all(f"class {name}(" in (path.parent / file).read_text() for file, _, name in own)


def test_the_pages_exit_codes_are_those_of_the_errors() -> None:
    assert re.search(rf"(?m)^\| `slower` \|.*\| {SlowerError.exit_code} \|$", TEXT)
    assert re.search(rf"(?m)^\| `too noisy` \|.*\| {NoisyError.exit_code} \|$", TEXT)
