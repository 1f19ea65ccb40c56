"""What OpenPAI's two protocols promise beside their contract, and the two jobs of its own guide."""

import json

import pytest
import yaml

from tests.unit.jobs.cases import LEAST, job_of, task_of, text_of
from torchbake.jobs.expressible import impossible, unsaid
from torchbake.jobs.targets import openpai, openpai_v1

GUIDE = """\
name: {name}
image: USER/pai.run.pytorch:1
script: {script}
resources: {{cpu: 4, memory: 8Gi, gpu: {gpu}}}
"""


@pytest.mark.parametrize(("name", "gpu"), [("pytorch-mnist", 1), ("pytorch-regression", 0)])
def test_the_jobs_of_its_guide_in_both_protocols(name: str, gpu: int) -> None:
    text = GUIDE.replace("USER", "user").format(name=name, script="/app/main.py", gpu=gpu)
    job = job_of(text)
    assert [*unsaid(job, openpai_v1), *impossible(job, openpai_v1), *unsaid(job, openpai)] == []
    first = json.loads(openpai_v1.render(task_of(text)))
    assert (first["jobName"], first["image"]) == (name, "user/pai.run.pytorch:1")
    (role,) = first["taskRoles"]
    assert (role["taskNumber"], role["cpuNumber"], role["memoryMB"], role["gpuNumber"]) == (1, 4, 8192, gpu)
    assert role["command"].endswith("run /app/main.py")
    second = yaml.safe_load(openpai.render(task_of(text)))
    resources = second["taskRoles"]["main"]["resourcePerInstance"]
    assert resources == {"cpu": 4, "memoryMB": 8192, "gpu": gpu}


def test_a_value_reaches_the_script_as_it_is() -> None:
    text = LEAST + "args: [\"it's $HOME\"]\nenv: {A: 'b; $c'}"
    commands = yaml.safe_load(openpai.render(task_of(text)))["taskRoles"]["main"]["commands"]
    assert "export A='b; $c'" in commands
    assert commands[-1] == """run train.py 'it'"'"'s $HOME'"""


@pytest.mark.parametrize("line", ["args: ['<% $secrets.x %>']", "env: {A: 'a <% b'}"])
def test_a_reference_of_its_own_is_refused(line: str) -> None:
    (problem,) = unsaid(job_of(LEAST + line), openpai)
    assert "begins a reference" in problem[1]


def test_one_failed_task_ends_the_job_and_an_elastic_one_ends_with_the_first_that_is_done() -> None:
    role = yaml.safe_load(openpai.render(task_of(text_of("ddp"))))["taskRoles"]["main"]
    assert role["completion"] == {"minFailedInstances": 1, "minSucceededInstances": 4}
    role = yaml.safe_load(openpai.render(task_of(text_of("elastic"))))["taskRoles"]["main"]
    assert role["completion"]["minSucceededInstances"] == 1
    (first,) = json.loads(openpai_v1.render(task_of(text_of("elastic"))))["taskRoles"]
    assert (first["minFailedTaskCount"], first["minSucceededTaskCount"]) == (1, 1)


def test_parts_of_a_cpu_are_refused_and_rounded_up_if_one_must() -> None:
    text = LEAST.replace("cpu: 4", "cpu: 1500m")
    assert [at for at, _ in unsaid(job_of(text), openpai)] == [("resources", "cpu")]
    assert yaml.safe_load(openpai.render(task_of(text)))["taskRoles"]["main"]["resourcePerInstance"]["cpu"] == 2
