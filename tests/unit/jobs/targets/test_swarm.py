"""Properties of a stack file besides its contract."""

import shlex
from typing import Any

import pytest
import yaml

from tests.job_scripts import HOSTILE
from tests.job_scripts import task_of as hostile
from tests.unit.jobs.cases import CASES, LEAST, job_of, task_of, text_of
from tests.unit.jobs.launchers import of_swarm
from torchbake.jobs.expressible import impossible, unsupported_keys
from torchbake.jobs.targets import swarm

# Keys that `docker stack deploy` ignores with a warning, or refuses: docker/cli, cli/compose/types/types.go.
PASSED_OVER = {
    *("build", "cgroupns_mode", "cgroup_parent", "devices", "domainname", "external_links", "ipc", "links"),
    *("mac_address", "network_mode", "pid", "privileged", "restart", "security_opt", "shm_size", "userns_mode"),
    *("container_name", "expose", "extends", "volume_driver", "volumes_from", "cpu_quota", "cpu_shares", "cpuset"),
    *("mem_limit", "memswap_limit", "depends_on", "cpus"),
}


def stack(text: str) -> Any:
    return yaml.safe_load(swarm.render(task_of(text)))


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_said_that_a_stack_passes_over(case: str) -> None:
    value = stack(text_of(case))
    assert value["version"] == "3.8"
    assert "name" not in value
    for service in value["services"].values():
        assert PASSED_OVER.isdisjoint(service)


@pytest.mark.parametrize("case", CASES)
def test_nodes_meet_on_an_overlay_network_and_never_restart(case: str) -> None:
    value = stack(text_of(case))
    assert value["networks"]["default"]["driver"] == "overlay"
    for name, service in value["services"].items():
        assert service["hostname"] == name
        assert service["healthcheck"] == {"disable": True}  # Swarm names no task that is not healthy
        deploy = service["deploy"]
        assert (deploy["replicas"], deploy["endpoint_mode"]) == (1, "dnsrr")
        assert deploy["restart_policy"] == {"condition": "none"}


def test_shared_memory_is_a_mount_of_its_own() -> None:
    service = stack(text_of("gpus"))
    (shm,) = [mount for mount in service["services"]["node-0"]["volumes"] if mount["target"] == "/dev/shm"]
    assert shm == {"type": "tmpfs", "target": "/dev/shm", "tmpfs": {"size": 8 * 1024**3}}


def test_resources_are_reserved_and_no_more() -> None:
    resources = stack(text_of("everything"))["services"]["node-1"]["deploy"]["resources"]
    assert resources["limits"] == {"cpus": "1.5", "memory": "8192M"}
    gpus = [{"discrete_resource_spec": {"kind": "NVIDIA-GPU", "value": 1}}]
    assert resources["reservations"] == {**resources["limits"], "generic_resources": gpus}
    assert stack(text_of("everything"))["services"]["node-1"]["deploy"]["placement"] == {
        "constraints": ["node.labels.zone == a"]
    }


def test_secrets_of_swarm_become_variables_before_run() -> None:
    value = stack(text_of("everything"))
    assert set(value["secrets"]) == {"hub.token", "job.token"}
    service = value["services"]["node-0"]
    assert {"source": "hub.token", "target": "HF_TOKEN"} in service["secrets"]
    shell, option, script, _, *command = [word.replace("$$", "$") for word in service["command"]]
    assert (shell, option) == ("sh", "-c")
    assert 'HF_TOKEN="$(cat /run/secrets/HF_TOKEN)"; export HF_TOKEN;' in script
    assert script.endswith('exec "$@"')
    assert command == list(task_of(text_of("everything")).job.words)
    assert "HF_TOKEN" not in service["environment"]
    assert stack(text_of("ddp"))["services"]["node-0"]["command"] == ["run", "train.py"]


def test_values_are_neither_variables_nor_templates() -> None:
    task = hostile({})
    text = swarm.render(task)
    for env in of_swarm(text, task):
        assert env["ODD"] == HOSTILE
    service = yaml.safe_load(text)["services"]["node-0"]
    assert "{{.Task" not in service["environment"]["ODD"]
    assert [word.replace("$$", "$") for word in service["command"]][4:] == list(task.job.words)
    (bind,) = [mount["source"] for mount in service["volumes"] if mount["type"] == "bind"]
    assert bind.replace("$$", "$") == str(task.folder)


@pytest.mark.parametrize(
    ("more", "at"),
    [
        (f"name: {'m' * 57}", ("name",)),
        (f"secrets: {{A: {{secret: {'s' * 60}, key: token}}}}", ("secrets",)),
        ("nodeSelector: {nvidia.com/gpu: a}", ("nodeSelector",)),
        ("nodeSelector: {zone: ''}", ("nodeSelector",)),
    ],
)
def test_what_swarm_would_not_take_is_refused(more: str, at: tuple[str]) -> None:
    text = LEAST.partition("\n")[2] + more if more.startswith("name") else LEAST + more
    assert [location for location, _ in unsupported_keys(job_of(text), swarm)] == [at]


def test_what_swarm_takes_is_not() -> None:
    for more in ("nodeSelector: {zone: a}", "secrets: {A: {secret: s, key: token}}"):
        assert not unsupported_keys(job_of(LEAST + more), swarm)
    assert not unsupported_keys(job_of(LEAST.replace("mnist", "m" * 56)), swarm)


def test_a_network_has_so_many_addresses() -> None:
    assert impossible(job_of(LEAST + "nodes: 126"), swarm) == []
    assert [at for at, _ in impossible(job_of(LEAST + "nodes: 127"), swarm)] == [("nodes",)]


def test_the_first_line_says_how_it_is_deployed() -> None:
    first = swarm.render(task_of(LEAST)).partition("\n")[0]
    assert shlex.split(first)[1:4] == ["docker", "stack", "deploy"]
    assert first.endswith(" mnist")
