"""Properties of OpenPAI's two protocols besides their contract, and the two jobs of its guide."""

import json

import pytest
import yaml

from tests.unit.jobs.cases import LEAST, job_of, printed_job, task_of, text_of
from torchbake.jobs.expressible import impossible, unsupported_keys
from torchbake.jobs.targets import openpai, openpai_v1

# https://github.com/microsoft/pai: examples/pytorch. Its names of images are templates: Docker takes no capitals.
GUIDE = """
{
  "jobName": "pytorch-%(name)s",
  "image": "user/pai.run.pytorch",
  "taskRoles": [
    {
      "name": "main",
      "taskNumber": 1,
      "cpuNumber": 4,
      "memoryMB": 8192,
      "gpuNumber": %(gpu)d,
      "command": "cd examples/%(name)s && python main.py"
    }
  ]
}
"""


def test_the_jobs_of_its_guide_are_written_to_the_letter() -> None:
    for name, gpu in (("mnist", 1), ("regression", 0)):
        text = printed_job("pytorch-mnist").replace("mnist", name).replace("gpu: 1", f"gpu: {gpu}")
        guide = json.loads(GUIDE % {"name": name, "gpu": gpu})
        for target in (openpai, openpai_v1):
            assert [*unsupported_keys(job_of(text), target), *impossible(job_of(text), target)] == []
        first = json.loads(openpai_v1.render(task_of(text)))
        (role,), (expected,) = first.pop("taskRoles"), guide.pop("taskRoles")
        assert guide.items() <= first.items()
        assert expected.items() <= role.items()
        second = yaml.safe_load(openpai.render(task_of(text)))["taskRoles"]["main"]
        assert second["commands"] == [expected["command"]]
        assert second["resourcePerInstance"] == {"cpu": 4, "memoryMB": 8192, "gpu": gpu}


def test_a_value_reaches_the_script_as_it_is() -> None:
    text = LEAST + "args: [\"it's $HOME\"]\nenv: {A: 'b; $c'}"
    commands = yaml.safe_load(openpai.render(task_of(text)))["taskRoles"]["main"]["commands"]
    assert "export A='b; $c'" in commands
    assert commands[-1] == """run train.py 'it'"'"'s $HOME'"""


@pytest.mark.parametrize("line", ["args: ['<% $secrets.x %>']", "env: {A: 'a <% b'}"])
def test_a_reference_of_its_own_is_refused(line: str) -> None:
    (problem,) = unsupported_keys(job_of(LEAST + line), openpai)
    assert "begins a reference" in problem[1]


def test_a_reference_in_a_command_is_refused() -> None:
    ((place, _),) = unsupported_keys(job_of(LEAST.replace("script: train.py", "command: echo <% x")), openpai)
    assert place == ("command",)


def test_a_failed_task_or_a_complete_elastic_task_ends_the_job() -> None:
    role = yaml.safe_load(openpai.render(task_of(text_of("ddp"))))["taskRoles"]["main"]
    assert role["completion"] == {"minFailedInstances": 1, "minSucceededInstances": 4}
    role = yaml.safe_load(openpai.render(task_of(text_of("elastic"))))["taskRoles"]["main"]
    assert role["completion"]["minSucceededInstances"] == 1
    (first,) = json.loads(openpai_v1.render(task_of(text_of("elastic"))))["taskRoles"]
    assert (first["minFailedTaskCount"], first["minSucceededTaskCount"]) == (1, 1)


def test_parts_of_a_cpu_are_refused_and_rounded_up_if_one_must() -> None:
    text = LEAST.replace("cpu: 4", "cpu: 1500m")
    assert [at for at, _ in unsupported_keys(job_of(text), openpai)] == [("resources", "cpu")]
    assert yaml.safe_load(openpai.render(task_of(text)))["taskRoles"]["main"]["resourcePerInstance"]["cpu"] == 2
