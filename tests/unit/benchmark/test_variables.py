"""Variables of a plan, and settings that depend on other keys of an experiment."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.benchmark.cases import document_of
from torchbake.benchmark.expand import Experiment, PlaceName, expand, experiments
from torchbake.benchmark.field_types import Conditions
from torchbake.benchmark.model import ExperimentSettings, Plan, load_plan, validate_plan, with_variables
from torchbake.benchmark.variables import KEYS
from torchbake.commands._benchmark_options import variable
from torchbake.errors import PlanError, UsageError

LEAST = "models: [a, b]\nimages: [cpu]\n"


def plan_of(text: str, **arguments: Any) -> Plan:
    return validate_plan(with_variables(document_of(LEAST + text), arguments))


def all_of(text: str, **arguments: Any) -> list[Experiment]:
    return list(experiments(plan_of(text, **arguments)))


def problem_of(text: str, **arguments: Any) -> str:
    with pytest.raises(PlanError) as caught:
        expand(plan_of(text, **arguments), [PlaceName(kind="image", word="cpu", name="cpu")], document_of(LEAST + text))
    return caught.value.message


def test_a_variable_stands_for_any_value_also_a_list() -> None:
    plan = plan_of(
        "variables: {root: /data, set: '${root}/imagenet', sizes: [8, 16], few: 3, size: 2g}\n"
        "data_dir: ${set}\nbatch_sizes: ${sizes}\nnum_batches: ${few}\ndocker: {shm_size: '${size}'}\n"
    )
    assert (plan.data_dir, plan.batch_sizes, plan.num_batches) == ("/data/imagenet", (8, 16), 3)
    assert plan.docker.shm_size == "2g"


def test_the_command_line_counts_more_and_may_name_more() -> None:
    text = "variables: {sizes: [8, 16]}\nbatch_sizes: ${sizes}\nnum_batches: ${few}\n"
    plan = plan_of(text, sizes=["1", "2"], few="7")
    assert (plan.batch_sizes, plan.num_batches) == ((1, 2), 7)
    assert plan_of("variables: {a: '${b}'}\ntimeout: ${a}\n", b="9").timeout == 9


def test_keys_of_an_experiment_are_known_in_its_settings() -> None:
    actual = all_of(
        "variables: {log: 'out/${model}-${batch_size}'}\nbatch_sizes: [1, 2]\ngpus: [0, 2]\nnum_batches: 3\n"
        "args: [--note, '${log} ${cudnn_benchmark}']\nenv: {X: '${gpus} ${num_batches}'}\n"
        "docker: {options: ['--name=${model}']}\n"
    )
    assert len(actual) == 8
    for each in actual:
        assert each.settings.args == ("--note", f"out/{each.model}-{each.batch_size} true")
        assert each.settings.env == {"X": f"{each.gpus} 3"}
        assert each.settings.docker.options == (f"--name={each.model}",)


def test_two_dollars_are_no_reference() -> None:
    (first, _) = all_of("variables: {x: 'a$${b}'}\nenv: {A: '$${model} $HOME ${x}'}\nargs: ['${x}']\n")
    assert first.settings.env == {"A": "${model} $HOME a${b}"}
    assert first.settings.args == ("a${b}",)
    assert plan_of("hosts: [{ssh: 'a$${b}'}]\n").hosts[0].name == "a${b}"


def test_every_key_of_an_experiment_can_be_referred_to() -> None:
    scalars = {*ExperimentSettings.model_fields} - {"args", "env", "docker", "data_dir"}
    assert {*KEYS} == {*Conditions.model_fields} | scalars


MISTAKES = [
    ("timeout: ${x}\n", "plan.yaml:3: timeout: ${x} is unknown; name it in `variables`"),
    ("variables: {sizes: 1}\ntimeout: ${size}\n", "plan.yaml:4: timeout: ${size} is unknown; did you mean ${sizes}?"),
    ("variables:\n  a: ${b}\n  b: x${c}\n  c: ${a}\n", "refer to each other in a circle: "),
    ("variables: {a: '${a}'}\n", "plan.yaml:3: variables.a: variables refer to each other in a circle: a → a"),
    ("variables: {a: [1, 2]}\ntimeout: 1${a}\n", "plan.yaml:4: timeout: ${a} is a list"),
    ("variables: {a: [1, 2]}\nbatch_sizes: [4, '${a}']\n", "plan.yaml:4: batch_sizes.1: ${a} is a list"),
    ("timeout: ${x\n", "plan.yaml:3: timeout: '${x' names no variable"),
    ("timeout: ${a b}\n", "'${a b}' names no variable"),
    ("timeout: ${batch_size}\n", "${batch_size} is a key of an experiment, which can stand in args, env, data_dir"),
    ("variables: {model: x}\n", "plan.yaml:3: variables.model: 'model' is a key of an experiment"),
    ("variables: {a: ten}\ntimeout: ${a}\n", "plan.yaml:4: timeout: should be a whole number (got 'ten')"),
    ("variables: {a-b: 1}\n", "does not fit the form"),
    ("when: [{model: a}]\n", "plan.yaml:3: when.0.set: is missing"),
    ("when: [{model: a, set: {}}]\n", "plan.yaml:3: when.0: `set` has no key"),
    ("when: [{set: {num_batches: 1}}]\n", "plan.yaml:3: when.0: names no condition"),
    ("when: [{model: c, set: {num_batches: 1}}]\n", "plan.yaml:3: when.0: changes nothing: no experiment"),
    ("when: [{model: a, set: {num_batch: 1}}]\n", "unknown key 'num_batch'; did you mean 'num_batches'?"),
    ("when: [{model: a, set: {args: [--device, gpu]}}]\n", "when.0.set.args.0: '--device' is set by the key 'device'"),
    ("phases: [data_ingestion]\n", "plan.yaml:3: phases.0: data_ingestion reads `data_dir`, which is not set"),
    ("batch_sizes: [2, 1]\nstop_at_out_of_memory: true\n", "plan.yaml:3: batch_sizes: do not ascend"),
    ("monitor_seconds: 0.1\n", "plan.yaml:3: monitor_seconds: should be 0 or at least 0.2 seconds"),
]


def test_a_mistake_has_its_place() -> None:
    for text, message in MISTAKES:
        assert message in problem_of(text), text


def test_an_unused_variable_is_a_usage_error(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(LEAST + "variables: {a: 1, b: 2}\ntimeout: ${a}\n")
    assert load_plan(path, variables={"a": "5"})[0].timeout == 5
    for name in ("b", "c"):
        with pytest.raises(UsageError, match=f"-P {name} changes nothing"):
            load_plan(path, variables={name: "5"})


def test_a_rule_changes_its_experiments_and_the_last_one_wins() -> None:
    actual = all_of(
        "batch_sizes: [1, 2]\nenv: {A: x, B: y}\ndocker: {shm_size: 2g}\nnum_batches: 9\nwhen:\n"
        "  - {model: b, set: {num_batches: 5, env: {B: '${batch_size}'}, docker: {stack: 7}}}\n"
        "  - {model: b, batch_size: 2, set: {num_batches: 4, data_dir: 'd/${model}'}}\n"
    )
    assert [each.settings.num_batches for each in actual] == [9, 9, 5, 4]
    assert [each.settings.env["B"] for each in actual] == ["y", "y", "1", "2"]
    assert {each.settings.env["A"] for each in actual} == {"x"}
    assert [(each.settings.docker.shm_size, each.settings.docker.stack) for each in actual[1:3]] == [
        ("2g", "67108864"), ("2g", "7"),
    ]  # fmt: skip
    assert [each.settings.data_dir for each in actual] == [None, None, None, "d/b"]


def test_what_the_command_line_says() -> None:
    for text, matches in (
        ("a=b=c", ("a", "b=c")), ("a=", ("a", "")), ("a=[16, 32]", ("a", ["16", "32"])), ('a="x y"', ("a", "x y")),
        ("image=ghcr.io/acme/pytorch:cpu", ("image", "ghcr.io/acme/pytorch:cpu")), ("a=# b: c", ("a", "# b: c")),
    ):  # fmt: skip
        assert variable(text) == matches
    for text in ("a", "=b", "a b=c", "model=resnet50", "a=[1", "a=[[1]]", "a=[{b: c}]"):
        with pytest.raises(UsageError, match=r"-P "):
            variable(text)
