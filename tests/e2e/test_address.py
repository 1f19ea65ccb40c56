"""Two engines on one machine: commands build, tag and test only in the engine that docker's settings name."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import docker
import pytest

from tests.e2e.conftest import INIT, images_of, tags_of, torchbake
from tests.e2e.waiting import until
from torchbake.errors import EngineError

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="starting an engine by hand needs root"),
]

Project = Callable[..., Path]
ROWS = (
    "rows:\n  - {torch: 2.13.0, accelerator: cpu, base: debian12}\n"
    "init:\n  volume-permissions: {version: 1.0.0, base: debian12}\n"
)
REPOSITORY = "torchbake-test/address/pytorch"
REF = "torchbake-test/address/volume-permissions:1.0.0"
BRIDGE, SUBNET = "tb-address", "10.252.40"
# Containers of the second engine reach the same network as this machine; the rules apply only to its bridge.
RULES = (
    ("-t", "nat", "POSTROUTING", "-s", f"{SUBNET}.0/24", "!", "-o", BRIDGE, "-j", "MASQUERADE"),
    ("-t", "filter", "FORWARD", "-i", BRIDGE, "-j", "ACCEPT"),
    ("-t", "filter", "FORWARD", "-o", BRIDGE, "-j", "ACCEPT"),
)


def ran(*words: str, check: bool = True, env: Mapping[str, str] | None = None) -> str:
    process = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})
    assert not check or process.returncode == 0, process.stderr
    return process.stdout


@contextlib.contextmanager
def bridge() -> Iterator[None]:
    try:
        ran("ip", "link", "add", BRIDGE, "type", "bridge")
        ran("ip", "addr", "add", f"{SUBNET}.1/24", "dev", BRIDGE)
        ran("ip", "link", "set", BRIDGE, "up")
        for table, name, chain, *rule in RULES:
            ran("iptables", "-w", table, name, "-I", chain, *rule)
        yield
    finally:
        for table, name, chain, *rule in RULES:
            ran("iptables", "-w", table, name, "-D", chain, *rule, check=False)
        ran("ip", "link", "delete", BRIDGE, check=False)


@pytest.fixture(scope="module")
def second() -> Iterator[str]:
    """The address of another engine, with its own folder and bridge; the engine ends with the tests."""
    folder = Path(tempfile.mkdtemp(prefix="tb-", dir="/tmp"))  # short: sockets allow 107 bytes
    socket = f"unix://{folder}/docker.sock"
    (folder / "daemon.json").write_text(json.dumps({"features": {"containerd-snapshotter": True}}))
    places = {"data-root": "data", "exec-root": "run", "pidfile": "pid", "config-file": "daemon.json"}
    words = [f"--{name}={folder}/{place}" for name, place in places.items()]
    words += [f"--host={socket}", f"--bridge={BRIDGE}", "--iptables=false", "--ip6tables=false"]
    with bridge(), (folder / "log").open("w") as log:
        process = subprocess.Popen(["dockerd", *words], stdout=log, stderr=log, start_new_session=True)
        try:
            until(lambda: bool(ran("docker", "--host", socket, "info", "--format", "{{.ID}}", check=False).strip()))
            yield socket
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            shutil.rmtree(folder)


@pytest.fixture(scope="module")
def settings(second: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Docker's settings with a context `far` for the second engine, which is not the current one."""
    env = {"DOCKER_CONFIG": str(tmp_path_factory.mktemp("docker"))}
    ran("docker", "context", "create", "far", f"--docker=host={second}", env=env)
    return env


def tags(client: docker.DockerClient) -> set[str]:
    return {tag for tag in tags_of(client, REF) if tag == REF}


def test_a_context_decides_for_build_tag_and_test(
    second: str, settings: dict[str, str], project: Project, engine: docker.DockerClient
) -> None:
    path, env = project(ROWS, repository=REPOSITORY), {**settings, "DOCKER_CONTEXT": "far"}
    process = torchbake("build", INIT, "--matrix", str(path), "--format", "json", env=env)
    assert process.returncode == 0, process.stderr
    assert images_of(process)[INIT]["status"] == "built"
    with contextlib.closing(docker.DockerClient(base_url=second)) as other:
        assert (tags(other), tags(engine)) == ({REF}, set())
    assert second in process.stderr
    assert "DOCKER_CONTEXT" in process.stderr
    process = torchbake(
        "test", INIT, "--matrix", str(path), "--only", "volume-permissions.*", "--format", "json", env=env
    )
    (image,) = json.loads(process.stdout)["images"]
    assert (process.returncode, image["outcome"]) == (0, "passed"), process.stderr
    assert torchbake("test", INIT, "--matrix", str(path)).returncode != 0  # this machine's own engine lacks it

    # The same by the current context, by DOCKER_HOST, and by ssh, which a local script replaces.
    current = {**settings, "DOCKER_CONFIG": str(path.parent / "docker"), "DOCKER_CONTEXT": ""}
    shutil.copytree(settings["DOCKER_CONFIG"], current["DOCKER_CONFIG"])
    ran("docker", "context", "use", "far", env=current)
    ssh = path.parent / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift 2\nDOCKER_HOST={second} exec "$@"\n')
    ssh.chmod(0o755)
    by_ssh = {"DOCKER_HOST": "ssh://me@far", "PATH": f"{ssh.parent}:{os.environ['PATH']}"}
    for way in (current, {"DOCKER_HOST": second}, by_ssh):
        process = torchbake("build", INIT, "--matrix", str(path), "--format", "json", env=way)
        assert (process.returncode, images_of(process)[INIT]["status"]) == (0, "up-to-date"), process.stderr
    path.write_text(path.read_text().replace("version: 1.0.0,", "version: 1.0.0, labels: {changed: 'yes'},"))
    process = torchbake("build", INIT, "--matrix", str(path), "--format", "json", env=by_ssh)
    assert images_of(process)[INIT]["status"] == "built", process.stderr
    assert tags(engine) == set()


def test_a_context_that_is_not_there_is_one_sentence(settings: dict[str, str]) -> None:
    for words in (("build", INIT), ("test", INIT), ("sbom", INIT), ("base", INIT, "--refresh")):
        process = torchbake(*words, env={**settings, "DOCKER_CONTEXT": "nowhere"})
        assert process.returncode == EngineError.exit_code, words
        assert "no docker context 'nowhere', which DOCKER_CONTEXT names" in " ".join(process.stderr.split())
        assert "Traceback" not in process.stderr


def test_check_says_which_engine_and_why(second: str, settings: dict[str, str]) -> None:
    process = torchbake("setup", "--check", "--format", "json", env={**settings, "DOCKER_CONTEXT": "far"})
    facts = json.loads(process.stdout)
    assert (process.returncode, facts["engine"]["endpoint"]) == (0, second)
    assert "DOCKER_CONTEXT: far" in facts["engine"]["source"]


def test_a_docker_command_with_another_engine_is_refused(second: str, tmp_path: Path) -> None:
    (tmp_path / "docker").write_text(f'#!/bin/sh\nexec {shutil.which("docker")} --host {second} "$@"\n')
    (tmp_path / "docker").chmod(0o755)
    process = torchbake("build", INIT, "--no-cache", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert process.returncode == EngineError.exit_code
    assert "another engine" in process.stderr
