"""Two machines with sshd. One gets a stand-in for torch by the command `host`.

The other gets real torch in the long tests, by the commands of docs/how-to/hosts.md. Its files are on the first, as
the DDP smoke test needs two machines: its ranks refuse to share a machine.

The roles have tests in tests/e2e/test_hosts.py.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import docker
import pytest

from tests.e2e.bare import Bare
from tests.e2e.boxes import BOOKWORM, Box, new_boxes, purge_python
from tests.e2e.conftest import CPU, ROOT, Completed, ref_of
from tests.e2e.desk import Desk
from tests.e2e.page_hosts import check_page, install_by_page
from tests.e2e.plays import small_lock, small_wheels
from tests.e2e.waiting import until

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif(not shutil.which("mmdebstrap"), reason="not run: mmdebstrap makes the bare host; apt has it"),
]
# In an image, the environment lists torch once more, for uv.
PACKAGES = 'import importlib.metadata as m; print(*sorted({f"{d.name}=={d.version}" for d in m.distributions()}))'
VERSION = "pytorch/sandbox/bin/python -c 'import torch; print(torch.__version__)'"
INVENTORY = """\
[sample_group]
foo_bar
foo_baz

[gone]
nowhere ansible_host=127.0.0.1 ansible_port=1

[all:vars]
ansible_user=root
"""


@pytest.fixture(scope="module")
def desk(engine: docker.DockerClient) -> Iterator[Desk]:
    with new_boxes(engine, {"foo_bar": BOOKWORM, "foo_baz": BOOKWORM}) as boxes:
        desk = Desk(boxes=boxes)
        desk.furnish(INVENTORY)
        yield desk


def test_ctrl_c_ends_ansible_and_all_that_it_started(desk: Desk) -> None:
    log = desk.boxes.folder / "log"
    with log.open("w") as answer:
        running = subprocess.Popen(
            [sys.executable, "-m", "torchbake", "host", "check", desk.inventory, CPU, "--limit", "foo_baz"], cwd=ROOT,
            env={**os.environ, **desk.env()}, stdout=answer, stderr=answer, start_new_session=True,
        )  # fmt: skip
        until(lambda: "TASK [" in log.read_text() or running.poll() is not None, seconds=120)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130, log.read_text()
    with pytest.raises(ProcessLookupError):
        os.killpg(running.pid, 0)
    # Python itself prints what a signal raised in a callback of a fork, and drops it; Ansible is then told again. Its
    # last line can be lost, as the fork ends.
    dropped = r"^Exception ignored .*\nTraceback .*\n(?:  .*\n)*(?:KeyboardInterrupt.*\n)?"
    text = re.sub(dropped, "", log.read_text(), flags=re.MULTILINE)
    assert "Traceback" not in text, text


@pytest.fixture(scope="module")
def small(bare: Bare, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The options for a small lock and a folder with its wheels; no index is asked."""
    folder = tmp_path_factory.mktemp("small")
    shutil.copy(ROOT / "matrix.yaml", folder)
    names = ("numpy", "setuptools")  # the matrix's row names both
    small_lock(folder / "images", names)
    wheels = small_wheels(bare, folder / "wheels", names)
    words = ["--matrix", f"{folder}/matrix.yaml", "--offline", "--format", "json"]
    return [*words, *(f"--wheelhouse={wheels}/{name}" for name in ("torch", *names))]


@pytest.fixture(scope="module")
def applied(desk: Desk, small: list[str]) -> Completed:
    """The second host gets the wheels of the small lock by the command."""
    return desk.host("apply", CPU, "--limit", "foo_baz", *small)


@pytest.fixture(scope="module")
def checked(desk: Desk, applied: Completed, small: list[str]) -> Completed:
    """A check of all hosts: one lacks torch, and one of which no ssh reaches."""
    return desk.host("check", CPU, *small)


@pytest.fixture(scope="module")
def installed(desk: Desk, bare: Bare, tmp_path_factory: pytest.TempPathFactory) -> Box:
    """The first host, on which the page's commands have installed real torch."""
    box = desk.boxes.boxes[0]
    purge_python(box)
    install_by_page(box, bare, tmp_path_factory.mktemp("page"))
    return box


@pytest.fixture(scope="module")
def copied(desk: Desk, installed: Box, applied: Completed) -> None:
    """Both hosts with real torch."""
    source, target = (box.container.name for box in desk.boxes.boxes)
    desk.boxes.boxes[1].inside("cd /home/pytorch/pytorch && rm -r sandbox .torchbake")
    copy = f"docker exec {source} tar -C /home -c pytorch/pytorch | docker exec -i {target} tar -C /home -x"
    subprocess.run(["bash", "-euo", "pipefail", "-c", copy], check=True)


def test_a_host_gets_what_it_lacks(desk: Desk, applied: Completed) -> None:
    (matches,) = desk.results(applied).values()
    assert (applied.returncode, matches["state"]) == (0, "changed"), applied.stderr
    assert desk.boxes.boxes[1].ssh(VERSION, user="pytorch").stdout == "2.13.0+cpu\n"


def test_each_host_has_a_result_and_a_check_changes_nothing(desk: Desk, checked: Completed) -> None:
    matches = desk.results(checked)
    assert checked.returncode == 22
    assert "1 of 3 hosts did not end well:" in checked.stderr
    assert "nowhere (unreachable): " in checked.stderr
    assert (matches["foo_baz"]["state"], matches["foo_baz"]["changed"]) == ("ok", []), matches["foo_baz"]
    assert matches["foo_bar"]["state"] == "changed", "it lacks torch"
    assert matches["nowhere"]["state"] == "unreachable"
    assert "Connection refused" in matches["nowhere"]["reason"]
    assert desk.boxes.boxes[0].inside("getent passwd pytorch || true") == ""


def test_a_host_that_ssh_does_not_reach_takes_no_part(desk: Desk, applied: Completed) -> None:
    process = desk.host("smoke", CPU, "--limit", "foo_baz:nowhere", "--payload", "versions")
    assert process.returncode == 13
    assert "nowhere: failed, ssh cannot log in as pytorch: ssh: connect to host 127.0.0.1" in process.stdout
    assert "these hosts cannot take part: nowhere" in process.stdout


@pytest.mark.long
def test_a_bare_host_gets_torch_by_what_the_page_prints(installed: Box) -> None:
    check_page(installed)


@pytest.mark.long
def test_a_host_has_the_packages_of_the_image(installed: Box, run: Callable[..., str]) -> None:
    of_image = run(ref_of(CPU), "python", "-c", PACKAGES)
    assert "torch==2.13.0+cpu" in of_image
    assert installed.ssh(f"pytorch/sandbox/bin/python -c '{PACKAGES}'", user="pytorch").stdout.strip() == of_image


@pytest.mark.long
def test_a_check_after_the_pages_commands_adds_entry_points(desk: Desk, installed: Box) -> None:
    process = desk.host("check", CPU, "--limit", "foo_bar", "--offline", "--format", "json")
    (matches,) = desk.results(process).values()
    assert (process.returncode, matches["state"]) == (22, "changed"), process.stderr


@pytest.mark.long
def test_ddp_runs_over_hosts_that_ssh_reaches(desk: Desk, copied: None) -> None:
    words = ("--limit", "sample_group", "--payload", "versions", "--payload", "ddp", "--nproc", "1", "--format", "json")
    process = desk.host("smoke", CPU, *words)
    assert process.returncode == 0, process.stdout + process.stderr
    outcomes = {
        check["id"]: check["outcome"] for each in json.loads(process.stdout)["images"] for check in each["checks"]
    }
    assert outcomes == {"smoke.versions[cpu]": "passed", "smoke.ddp[gloo,2x1,workers-first]": "passed"}
    box = desk.boxes.boxes[0]
    assert box.inside("ls /tmp; pgrep -u pytorch -l || true") == "", "nothing of it stays"


def test_what_was_made_is_removed(desk: Desk, applied: Completed) -> None:
    assert desk.host("remove", "--limit", "foo_baz").returncode == 0
    left = desk.boxes.boxes[1].inside("ls -A /home/pytorch/pytorch || true")
    assert "sandbox" not in left.split()
