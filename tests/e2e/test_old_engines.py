"""Engines that refuse newer system calls by EPERM, as the seccomp profile of Docker before 20.10.10 does.

glibc falls back to an older call for ENOSYS alone.
"""

import json
from typing import Any

import docker
import pytest

from entrypoints.pytorch.launch.launch_error import Code
from tests.e2e.conftest import CPU
from tests.e2e.nodes import JOBS, new_job
from tests.e2e.owned import OURS

pytestmark = pytest.mark.entrypoints

Built = dict[str, dict[str, Any]]
EPERM = 1


def refusing(*calls: str) -> str:
    """A security option of the engine: its API takes the profile's text, as `docker run` sends it."""
    rule = {"names": list(calls), "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM}
    return f"seccomp={json.dumps({'defaultAction': 'SCMP_ACT_ALLOW', 'syscalls': [rule]})}"


def ran(engine: docker.DockerClient, image: str, *words: str, **options: Any) -> tuple[int, str]:
    """Exit code, and stdout with stderr."""
    container = engine.containers.create(
        image, list(words), volumes={str(JOBS): {"bind": "/job", "mode": "ro"}}, labels=OURS, **options
    )
    try:
        container.start()
        return container.wait(timeout=240)["StatusCode"], container.logs().decode()
    finally:
        container.remove(force=True, v=True)


def test_each_command_names_the_profile_that_refuses_threads(engine: docker.DockerClient, built: Built) -> None:
    refused, image = {"security_opt": [refusing("clone3")]}, built[CPU]["ref"]
    for code, *words in (
        (Code.NO_THREAD, "run", "/job/alone.py"),
        (Code.NO_THREAD, "run", "--dry-run", "/job/alone.py"),
        (Code.NO_THREAD, "env", "NPROC_PER_NODE=2", "run", "/job/alone.py"),
        (1, "smoke", "tensor"),
        (1, "bench", "--model", "deep_mnist", "--batch_size", "2"),
        (1, "health", "--deep"),
    ):
        count, output = ran(engine, image, *map(str, words), **refused)
        assert (count, "Traceback" in output) == (code, False), output
        assert all(word in output for word in ("seccomp", "clone3", "20.10.10", "--security-opt")), output
    assert ran(engine, image, "health", **refused)[0] == 0


def test_the_other_nodes_hear_of_a_node_without_threads(engine: docker.DockerClient, built: Built) -> None:
    for without in (0, 1):
        with new_job(engine, built[CPU]["ref"], 2, {"NNODES": 2, "MASTER_ADDR": "node0"}) as job:
            for node in range(2):
                job.start(node, "/job/alone.py", security=(refusing("clone3"),) if node == without else ())
            assert job.ends() == [Code.NO_THREAD] * 2
            for container in job.containers:
                assert "refuses clone3" in container.logs().decode()


def test_a_limit_of_processes_is_not_called_a_lack_of_memory(engine: docker.DockerClient, built: Built) -> None:
    """A rank is a process of run's, the script's, and a thread that reads what the script says: after tini and run."""
    for limit, expected in ((4, Code.INTERNAL), (3, Code.NO_PROCESS)):
        code, output = ran(engine, built[CPU]["ref"], "run", "/job/alone.py", pids_limit=limit)
        assert (code, "Traceback" in output) == (expected, False), output
        assert "docker run --pids-limit" in output
        assert "SIGKILL" not in output


def test_a_writable_home_stays_where_faccessat2_is_refused(engine: docker.DockerClient, built: Built) -> None:
    refused, image = {"security_opt": [refusing("faccessat2")]}, built[CPU]["ref"]
    show = "echo $HOME; ls -A $HOME"
    for shell in ("sh", "bash"):
        for user in ("1001:0", "4242:0"):
            assert ran(engine, image, shell, "-c", show, user=user, **refused) == (0, "/home/torch\n")
        assert ran(engine, image, shell, "-c", show, user="4242:4242", **refused) == (0, "/tmp/home-4242\n")
    python = "import os, site; print(os.environ['HOME'])"
    assert ran(engine, image, "python", "-c", python, entrypoint=[], **refused) == (0, "/home/torch\n")
