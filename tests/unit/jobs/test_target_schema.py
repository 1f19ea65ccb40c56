"""Every target that writes data has a schema, which accepts its manifests, and whose errors name their place."""

import sys

import pytest

from tests.unit.jobs.cases import CASES, LEAST, task_of, text_of
from torchbake.errors import InstallError, JobError, UsageError
from torchbake.jobs.target_schema import CHECKS, check_for
from torchbake.jobs.targets import TARGETS

SCRIPTS = {"docker", "slurm", "torchrun"}
COMPOSE = "the Compose specification"
OWNERS = {
    **{"compose": COMPOSE, "swarm": COMPOSE, "helm": "the chart pytorch"},
    **{"openpai": "OpenPAI's protocol 2", "openpai-v1": "OpenPAI's first protocol"},
}


def test_all_but_scripts_have_one() -> None:
    assert set(CHECKS) == set(TARGETS) - SCRIPTS
    for target in SCRIPTS:
        with pytest.raises(UsageError, match=f"no schema of {target}: it is a script"):
            check_for(target, "")


def test_it_takes_what_is_written() -> None:
    for target, owner in OWNERS.items():
        for case in CASES:
            assert check_for(target, TARGETS[target].render(task_of(text_of(case)))) == owner, (target, case)


def test_a_mistake_is_reported_with_its_place() -> None:
    for target, old, new, message in (
        ("swarm", "endpoint_mode:", "endpointmode:", r"services\.node-.\.deploy: the Compose .*'endpointmode'"),
        ("swarm", "replicas: 1", "replicas: [1]", r"services\.node-.\.deploy\.replicas: the Compose specification"),
        ("helm", "worldSize: 4", "wordSize: 4", r"it: the chart pytorch does not take this: .*'wordSize'"),
        ("helm", "worldSize: 4", "worldSize: four", r"worldSize: the chart pytorch does not take this"),
        ("openpai", "instances: 4", "instance: 4", r"taskRoles\.main: OpenPAI's protocol 2 does not .*'instance'"),
        ("openpai", "gpu: 0", "gpu: 0.5", r"taskRoles\.main\.resourcePerInstance\.gpu: OpenPAI's"),
        ("openpai", "type: dockerimage", "type: image", r"prerequisites\.0\.type: OpenPAI's protocol 2"),
        ("openpai", "dockerImage: image", "", r"taskRoles\.main: OpenPAI's protocol 2 .*'dockerImage' is a required"),
        ("openpai-v1", '"taskNumber": 4', '"tasknumber": 4', r"taskRoles\.0: OpenPAI's first protocol does not"),
        ("openpai-v1", '"jobName": "mnist"', '"jobName": "mn ist"', r"jobName: OpenPAI's first protocol does not"),
        ("openpai-v1", '"memoryMB": 8192', '"memoryMB": 64', r"taskRoles\.0\.memoryMB: OpenPAI's first protocol"),
    ):
        manifest = TARGETS[target].render(task_of(text_of("ddp")))
        assert old in manifest, target
        with pytest.raises(JobError, match=message):
            check_for(target, manifest.replace(old, new))


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for target, package in (("helm", "jsonschema"), ("compose", "check_jsonschema.builtin_schemas")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(InstallError) as caught:
            check_for(target, TARGETS[target].render(task_of(LEAST)))
        assert "torchbake[jobs]" in (caught.value.hint or "")
