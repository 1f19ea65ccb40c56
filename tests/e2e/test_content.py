"""The content of the built images, from inside and from the engine, compared with the lock and the matrix."""

import json
import re
from collections.abc import Callable
from typing import Any

import docker
import pytest
from docker.models.volumes import Volume

from tests.e2e.conftest import CPU, CUDA, INIT, ROOT, on_cuda
from tests.e2e.containers import output_of
from tests.e2e.owned import OURS
from tests.e2e.waiting import until
from torchbake.lock.lockfile import Lock, parse_lock

pytestmark = pytest.mark.render

Built = dict[str, dict[str, Any]]
Run = Callable[..., str]

VERSIONS = """
import json, torch
cuda = torch.version.cuda is not None
print(json.dumps({
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "cudnn": torch.backends.cudnn.version() if cuda else None,
    "nccl": torch.cuda.nccl.version() if cuda else None,
    "sum": torch.ones(8, 8).mm(torch.ones(8, 8)).sum().item(),
}))
"""


def lock_of(name: str) -> Lock:
    return parse_lock((ROOT / "images" / name / "requirements.lock").read_text(), name)


@pytest.mark.parametrize("name", [CPU, on_cuda()])
def test_runs_as_uid_1001_with_group_0(built: Built, run: Run, name: str) -> None:
    assert run(built[name]["ref"], "id", "-u") == "1001"
    assert run(built[name]["ref"], "id", "-g") == "0"


def test_cpu_image_holds_the_locked_torch(built: Built, run: Run) -> None:
    answer = json.loads(run(built[CPU]["ref"], "python", "-c", VERSIONS))
    assert answer == {
        "torch": lock_of(CPU).pins["torch"].version,
        "cuda": None,
        "cudnn": None,
        "nccl": None,
        "sum": 512,
    }
    assert "nvidia" not in run(
        built[CPU]["ref"], "sh", "-c", "ls /; ls /pytorch /opt/venv/lib/python3.11/site-packages"
    )


@pytest.mark.cuda
def test_cuda_image_holds_the_locked_libraries(built: Built, run: Run) -> None:
    answer = json.loads(run(built[CUDA]["ref"], "python", "-c", VERSIONS))
    lock = lock_of(CUDA)
    assert answer["torch"].split("+")[0] == lock.pins["torch"].version
    assert answer["cuda"] == ".".join((lock.cuda or "").split(".")[:2])
    major, minor, patch = (int(part) for part in (lock.cudnn or "").split(".")[:3])
    assert answer["cudnn"] == major * 10000 + minor * 100 + patch
    assert ".".join(map(str, answer["nccl"])) == lock.nccl
    assert answer["sum"] == 512


@pytest.mark.parametrize("name", [CPU, on_cuda()])
def test_every_locked_package_is_there_and_no_other(built: Built, run: Run, name: str) -> None:
    script = (
        "from importlib.metadata import distributions as d; import json, re;"
        "print(json.dumps({re.sub('[-_.]+', '-', x.name).lower(): x.version for x in d()}))"
    )
    assert json.loads(run(built[name]["ref"], "python", "-c", script)) == {
        pin.name: pin.version for pin in lock_of(name).pins.values()
    }


@pytest.mark.parametrize("name", [CPU, on_cuda()])
def test_records_of_trimmed_wheels_stay_true(built: Built, run: Run, name: str) -> None:
    """Check that each file in a RECORD exists with the recorded size."""
    script = (
        "from importlib.metadata import distributions as d\n"
        "bad = [str(f) for x in d() for f in x.files or () if not f.locate().exists()"
        " or (f.size is not None and f.size != f.locate().stat().st_size)]\n"
        "print(len(bad), bad[:5])"
    )
    assert run(built[name]["ref"], "python", "-c", script).startswith("0 ")


@pytest.mark.cuda
def test_tools_import(built: Built, run: Run) -> None:
    assert run(built[CUDA]["ref"], "python", "-c", "import torchvision, torchaudio, triton, numpy; print('ok')") == "ok"


@pytest.mark.parametrize("name", [CPU, on_cuda()])
def test_torchrun_is_a_program(built: Built, run: Run, name: str) -> None:
    assert "usage: torchrun" in run(built[name]["ref"], "torchrun", "--help")


@pytest.mark.parametrize(("name", "own"), [(CPU, ["/etc/pip.conf", "/etc/uv/uv.toml"]), on_cuda([])])
def test_nothing_is_left_behind(built: Built, run: Run, name: str, own: list[str]) -> None:
    """Only the files in ``own`` are left, and they name the matrix's index, not the one of the host that built it."""
    find = (
        "find / -xdev -type f -perm /6000; "
        "find / -xdev -type d -perm -o+w ! -perm -1000; "
        "find /var/lib/apt/lists /var/cache/apt /var/log /root/.cache /tmp -mindepth 1 2>/dev/null; "
        "find / -xdev -name '.git' -o -xdev -name 'pip.conf' -o -xdev -name 'uv.toml'"
    )
    assert sorted(run(built[name]["ref"], "sh", "-c", find, user="0").split()) == own
    for path in own:
        text = run(built[name]["ref"], "cat", path)
        assert "download.pytorch.org" in text or "torch-backend" in text
        assert len([line for line in text.splitlines() if "=" in line]) == 1


@pytest.mark.parametrize("name", [CPU, on_cuda(), INIT])
def test_labels_say_what_is_inside(engine: docker.DockerClient, built: Built, name: str) -> None:
    config = engine.images.get(built[name]["ref"]).attrs["Config"]
    labels = config["Labels"]
    assert labels["org.torchbake.id"] == name
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", labels["org.torchbake.inputs"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", labels["org.opencontainers.image.created"])
    assert re.fullmatch(r"\d+(:\d+)?", config["User"])
    if name != INIT:
        assert labels["org.torchbake.torch"] == lock_of(name).pins["torch"].version
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", labels["org.opencontainers.image.base.digest"])
        own_name = labels["org.opencontainers.image.base.name"]
        assert (labels["org.torchbake.base"], own_name) in (("registry", "debian:bookworm-slim"), ("bootstrap", ""))
        assert labels.get("org.torchbake.cuda") == lock_of(name).cuda


def test_init_image_is_tiny(built: Built) -> None:
    assert built[INIT]["size_bytes"] < 4_000_000


@pytest.mark.parametrize(
    ("command", "code"), [("exit 0", 0), ("exit 42", 42), ("nonexistent", 127), ("/etc/passwd", 126)]
)
def test_exit_code_is_the_commands_own(engine: docker.DockerClient, built: Built, command: str, code: int) -> None:
    words = ["sh", "-c", command] if command.startswith("exit") else [command]
    container = engine.containers.run(built[CPU]["ref"], words, detach=True)
    try:
        assert container.wait(timeout=30)["StatusCode"] == code
    finally:
        container.remove(force=True)


def test_sigterm_ends_it_at_once(engine: docker.DockerClient, built: Built) -> None:
    container = engine.containers.run(built[CPU]["ref"], ["sleep", "600"], detach=True, labels=OURS)
    try:
        until(lambda: "sleep 600" in str(container.top()["Processes"]))  # the kernel drops it before tini is there
        container.stop(timeout=20)
        assert container.wait()["StatusCode"] == 143
    finally:
        container.remove(force=True)


def test_orphans_are_reaped(built: Built, run: Run) -> None:
    script = "(sh -c 'sleep 0.2 & exit' &); sleep 1; cat /proc/*/stat | grep -c ' Z ' || true"
    assert run(built[CPU]["ref"], "sh", "-c", script) == "0"


def test_banner_is_one_line_on_a_terminal_and_can_be_silenced(engine: docker.DockerClient, built: Built) -> None:
    def answer(**options: Any) -> str:
        return output_of(engine, built[CPU]["ref"], ["true"], stderr=True, **options)

    text = answer(tty=True)
    assert (text.count("\n"), CPU in text) == (1, True)
    assert answer(tty=True, environment={"TORCHBAKE_BANNER": "0"}) == answer() == ""


def test_tini_adopts_orphans_also_where_it_is_not_pid_1(engine: docker.DockerClient, built: Built) -> None:
    """The engine's own init is PID 1. tini prints no warning, which would be a line more."""
    script = "orphan=$(sh -c 'sleep 60 > /dev/null & echo $!'); cut -d' ' -f4 /proc/$orphan/stat; echo $PPID"
    for init in (True, False):
        output = output_of(engine, built[CPU]["ref"], ["sh", "-c", script], stderr=True, init=init)
        parent, tini = output.splitlines()
        assert (parent, tini == "1") == (tini, not init)


@pytest.mark.parametrize(("environment", "permanent"), [({}, True), ({"TORCHBAKE_FREEZE": "0"}, False)])
def test_objects_of_torchs_import_are_no_work_for_the_collector(
    built: Built, run: Run, environment: dict[str, str], permanent: bool
) -> None:
    script = (
        "import gc; before = gc.get_stats()[0]['collections']; import torch;"
        "paused = gc.get_stats()[0]['collections'] == before;"
        "print(paused, gc.get_freeze_count() > 100_000, gc.isenabled())"
    )
    assert run(built[CPU]["ref"], "python", "-c", script, environment=environment) == f"{permanent} {permanent} True"


def test_any_uid_of_group_0_is_at_home_on_a_read_only_root(built: Built, run: Run) -> None:
    script = (
        "import getpass, os, pathlib, torch, torch._inductor.runtime.cache_dir_utils as c;"
        "pathlib.Path.home().joinpath('x').write_text('x');"
        "print(getpass.getuser(), os.getuid(), c.cache_dir().startswith(os.environ['HOME']))"
    )
    options = {"user": "54321:0", "read_only": True, "tmpfs": {"/tmp": "mode=1777"}}
    options |= {"cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}
    assert run(built[CPU]["ref"], "python", "-c", script, **options) == "user 54321 True"


def test_volume_permissions_makes_a_volume_writable(
    engine: docker.DockerClient, built: Built, run: Run, volume: Volume
) -> None:
    mount = {volume.name: {"bind": "/data", "mode": "rw"}}
    caps: dict[str, Any] = {"cap_drop": ["ALL"], "cap_add": ["CHOWN", "FOWNER", "DAC_OVERRIDE"]}
    run(built[CPU]["ref"], "sh", "-c", "mkdir -p /data/a && touch /data/a/b", user="0", volumes=mount)
    run(built[INIT]["ref"], "/data", volumes=mount, network_mode="none", **caps)
    output = run(built[CPU]["ref"], "sh", "-c", "echo hi > /data/a/b && stat -c %u:%g /data/a/b", volumes=mount)
    assert output == "1001:1001"
