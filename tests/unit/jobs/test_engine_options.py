"""A job that runs here has the options of `job show docker`."""

import shlex
from typing import Any

import yaml

from tests.unit.jobs.cases import ALL_CASES, LEAST, task_of, text_of
from torchbake.engine.gpu import GpuAccess
from torchbake.jobs.engine_options import options_of, permissions_of
from torchbake.jobs.targets import compose, docker
from torchbake.jobs.task import Task

GPU = GpuAccess(how="runtime", reason="")


def lines(task: Task) -> list[list[str]]:
    """Of the script: volume-permissions, if there is one, then the nodes from the last to the first."""
    matches = [shlex.split(line) for line in docker.render(task).splitlines() if "docker run" in line]
    return [words[words.index("docker") :] for words in matches]


def values(words: list[str], option: str) -> list[str]:
    return [words[place + 1] for place, word in enumerate(words) if word == option]


def mounts(words: list[str]) -> set[str]:
    return {text.replace('"', "") for text in values(words, "--mount")}


def as_text(mount: Any) -> str:
    end = ",readonly" if mount["ReadOnly"] else ""
    return f"type={mount['Type']},source={mount['Source']},target={mount['Target']}{end}"


def test_the_nodes_have_the_options_of_the_script() -> None:
    for case in ALL_CASES:
        task = task_of(text_of(case))
        secrets = dict.fromkeys(task.job.secrets, "secret")
        nodes = lines(task)[1 if task.fixed else 0 :]
        for rank, words in enumerate(reversed(nodes)):
            options = options_of(task, rank, secrets, GPU if task.job.resources.gpu else None)
            environment = dict(each.split("=", 1) for each in values(words, "--env") if "=" in each)
            assert options["environment"] == environment | secrets, case
            assert {as_text(mount) for mount in options.get("mounts", [])} == mounts(words), case
            assert [options["hostname"]] == values(words, "--name"), case
            assert [options.get("cap_drop", []), options["security_opt"]] == [
                values(words, "--cap-drop"),
                ["no-new-privileges"],
            ], case
            assert [options[name] for name in ("working_dir",) if name in options] == values(words, "--workdir"), case
            assert [options["shm_size"]] == values(words, "--shm-size"), case
            assert [options[name] for name in ("mem_limit",) if name in options] == values(words, "--memory"), case
            assert [f"{options['nano_cpus'] / 1e9:g}"] == values(words, "--cpus"), case
            assert (
                len(options.get("devices", [])) == len(options.get("ulimits", [])) == len(values(words, "--device"))
            ), case
            requests = options.get("device_requests", [])
            assert len(requests) == len(values(words, "--gpus")), case
            if requests and task.job.most_nodes > 1:
                assert f'"device={",".join(requests[0]["DeviceIDs"])}"' == values(words, "--gpus")[0], case
        assert len(nodes) == task.job.most_nodes, case


def test_a_node_that_is_alone_gets_any_gpus_of_the_machine() -> None:
    """Nodes that share a machine get theirs by number, or each would get the first."""
    alone = task_of(LEAST.replace("8Gi}", "8Gi, gpu: 2}"))
    (words,) = lines(alone)
    assert values(words, "--gpus") == ["2"]
    service = yaml.safe_load(compose.render(alone))["services"]["mnist"]
    assert service["deploy"]["resources"]["reservations"]["devices"] == [
        {"driver": "nvidia", "count": 2, "capabilities": ["gpu"]}
    ]


def test_volume_permissions_has_the_options_of_the_script() -> None:
    task = task_of(text_of("everything"))
    words, (command, options) = lines(task)[0], permissions_of(task)
    assert words[words.index(task.init_image) + 1 :] == command
    assert options["cap_add"] == values(words, "--cap-add")
    assert [options["network_mode"]] == values(words, "--network")
    assert {as_text(mount) for mount in options.get("mounts", [])} == mounts(words)


def test_gpus_are_named_as_the_engine_wants_it() -> None:
    name = GpuAccess(how="cdi", reason="").number(["2", "3"])
    assert name
    assert name["DeviceIDs"] == ["nvidia.com/gpu=2", "nvidia.com/gpu=3"]
    assert GpuAccess(how="none", reason="").number(["0"]) is None
