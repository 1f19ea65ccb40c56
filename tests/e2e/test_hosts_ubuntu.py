"""PyTorch on a host with Ubuntu 24.04, which has Python 3.12 and no 3.11, by a matrix of one's own.

torch is a stand-in: what the host does with wheels is the same, and no index of the tests has one for this Python.
"""

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docker
import pytest

from tests.e2e.boxes import NOBLE, Box, new_boxes
from tests.e2e.conftest import CPU, CUDA, Completed, torchbake
from tests.e2e.desk import Desk
from tests.e2e.stand_in import torch_wheel
from tests.e2e.waiting import until

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("mmdebstrap"), reason="not run: mmdebstrap makes the bare host; apt has it"),
]
INVENTORY = """\
[all]
ubuntu ansible_user=root base_user=admin base_packages='["sudo", "unattended-upgrades", "ubuntu-pro-client"]'
"""
MATRIX = {
    "repository": "torchbake-test/ubuntu/pytorch",
    "bases": {"ubuntu2404": {"image": "ubuntu:24.04", "distribution": "ubuntu", "suite": "noble", "python": "3.12"}},
    "flavors": {"runtime": {"packages": {"apt": ["git"]}}},
    "rows": [{"torch": "2.13.0", "accelerator": "cpu", "base": "ubuntu2404", "packages": {"pip": ["numpy"]}}],
    "tags": {"defaults": {"accelerator": "cpu", "base": "ubuntu2404"}, "rolling": ["{torch}-{family}"]},
}
RETRYING = "FAILED - RETRYING: [ubuntu]: Install packages"
# A program that holds apt's locks: the one of its lists, for which apt never waits, then the one of packages.
BUSY = """\
import fcntl, os, time
lists, packages = open("/var/lib/apt/lists/lock", "a"), open("/var/lib/dpkg/lock-frontend", "a")
fcntl.lockf(lists, fcntl.LOCK_EX)
while not os.path.exists("/tmp/over"):
    time.sleep(1)
fcntl.lockf(packages, fcntl.LOCK_EX)
fcntl.lockf(lists, fcntl.LOCK_UN)
time.sleep(15)
"""
OWN = ("--offline", "--matrix")
PROJECT = "/home/pytorch/pytorch"
SEES = "import sys, numpy, torch; print(torch.__version__, numpy.ones(2).sum(), sys.version_info[:2])"


@pytest.fixture(scope="module")
def desk(engine: docker.DockerClient) -> Iterator[Desk]:
    with new_boxes(engine, {"ubuntu": NOBLE}) as boxes:
        desk = Desk(boxes=boxes)
        desk.furnish(INVENTORY)
        yield desk


@pytest.fixture(scope="module")
def box(desk: Desk) -> Box:
    (box,) = desk.boxes.boxes
    return box


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A matrix with a row for Python 3.12, and its lock."""
    folder = tmp_path_factory.mktemp("ubuntu")
    wheels = torch_wheel(folder / "wheels")
    matrix = folder / "matrix.yaml"
    matrix.write_text(json.dumps(MATRIX))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_FIND_LINKS", str(wheels))
        process = torchbake("lock", "all", "--matrix", str(matrix))
        assert process.returncode == 0, process.stderr
        yield matrix


@pytest.fixture(scope="module")
def refused(desk: Desk) -> Completed:
    """The bare host is to get an image whose Python it has not, and may not download."""
    return desk.host("apply", CPU, "-e", "pytorch_python_downloads=false", "--format", "json")


@pytest.fixture(scope="module")
def applied(desk: Desk, box: Box, matrix: Path, refused: object) -> Completed:
    """It gets one that fits; at first another program of the host holds apt's locks."""
    log = desk.boxes.folder / "log"
    log.touch()
    box.container.exec_run(["python3", "-c", BUSY], detach=True)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(desk.host, "apply", *OWN, str(matrix), "--format", "json", log=log)
        try:
            until(lambda: RETRYING in log.read_text() or running.done(), seconds=300)
        finally:
            box.inside("touch /tmp/over")
        return running.result()


def test_a_lock_for_another_python_is_refused_early(desk: Desk, box: Box, refused: Completed) -> None:
    (matches,) = desk.results(refused).values()
    assert matches["state"] == "failed"
    assert (
        f"ubuntu has no Python 3.11, which the lock of {CPU} is for, and uv may not download one" in matches["reason"]
    )
    assert "The host has Python 3.12: choose an image whose base in the matrix has that" in matches["reason"]
    assert box.inside("python3 -V").startswith("Python 3.12"), "which was missing, and Ansible needs one"
    assert box.inside("getent passwd pytorch || true; ls /home; dpkg -l | grep ' git ' || true").strip() == ""


def test_it_waits_for_apt_and_needrestart_restarts_nothing(applied: Completed, box: Box) -> None:
    assert applied.returncode == 0, applied.stderr
    assert RETRYING in applied.stderr
    assert box.inside("ls /run/needrestart/unpacked"), "needrestart was put off until somebody else installs"


def test_the_new_user_logs_in_by_key_and_has_what_the_lock_names(applied: Completed, box: Box) -> None:
    process = box.ssh(f"cd {PROJECT} && sandbox/bin/python -c '{SEES}'", user="pytorch")
    assert process.stdout == "2.13.0+cpu 2.0 (3, 12)\n"


def test_the_other_new_user_has_sudo(applied: Completed, box: Box) -> None:
    assert box.ssh("sudo id -un; git --version", user="admin").stdout.startswith("root\ngit version")


def test_a_second_run_changes_nothing(applied: Completed, desk: Desk, matrix: Path) -> None:
    process = desk.host("apply", *OWN, str(matrix), "--format", "json", "-e", "ansible_user=admin")
    (matches,) = desk.results(process).values()
    assert (process.returncode, matches["state"], matches["changed"]) == (0, "ok", []), process.stderr


def test_a_driver_that_is_missing_is_installed_as_ubuntu_does_it(applied: Completed, desk: Desk) -> None:
    process = desk.host("apply", CUDA, "-e", "pytorch_install_type=cuda", "--format", "json")
    (matches,) = desk.results(process).values()
    assert (
        "needs 525.60.13 or newer: install it, by ubuntu-drivers install, and start the host anew" in matches["reason"]
    )


def test_what_was_made_is_removed(applied: Completed, desk: Desk, box: Box) -> None:
    process = desk.host("remove", "-e", "pytorch_remove_user=true")
    assert process.returncode == 0, process.stderr
    assert box.inside("getent passwd pytorch || true; ls /home").split() == ["admin"]
