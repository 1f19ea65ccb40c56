"""The command `host` on machines with sshd: the results of `apply` for each host, smoke tests by ssh, and Ctrl-C.

tests/e2e/test_hosts.py tests the roles. The DDP smoke test needs two machines: its ranks refuse to share a machine.
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

from tests.e2e.boxes import BOOKWORM, new_boxes
from tests.e2e.conftest import CPU, ROOT, Completed, ref_of
from tests.e2e.desk import Desk
from tests.e2e.waiting import until

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif(not shutil.which("mmdebstrap"), reason="not run: mmdebstrap makes the bare host; apt has it"),
]
PACKAGES = 'import importlib.metadata as m; print(*sorted(f"{d.name}=={d.version}" for d in m.distributions()))'
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
            [sys.executable, "-m", "torchbake", "host", "check", desk.inventory, CPU, "--limit", "foo_bar"], cwd=ROOT,
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
def installed(desk: Desk) -> Completed:
    """Install PyTorch on the first host and copy its files to the second: another installation takes half a minute."""
    process = desk.host("apply", CPU, "--offline", "--limit", "foo_bar", "--format", "json")
    source, target = (box.container.name for box in desk.boxes.boxes)
    here = "--exclude=etc/hosts --exclude=etc/hostname --exclude=etc/resolv.conf"  # files of docker's, each its own
    folders = "etc home var/lib/dpkg var/lib/torchbake"
    copy = f"docker exec {source} tar -C / {here} -c {folders} | docker exec -i {target} tar -C / -x"
    subprocess.run(["bash", "-euo", "pipefail", "-c", copy], check=True)
    return process


@pytest.fixture(scope="module")
def checked(desk: Desk, installed: Completed) -> Completed:
    """A check of all hosts, one of which no ssh reaches."""
    return desk.host("check", CPU, "--offline", "--format", "json")


def test_a_host_gets_what_it_lacks(desk: Desk, installed: Completed) -> None:
    (matches,) = desk.results(installed).values()
    assert (installed.returncode, matches["state"]) == (0, "changed"), installed.stderr


def test_a_host_has_the_packages_of_the_image(desk: Desk, installed: object, run: Callable[..., str]) -> None:
    of_image = run(ref_of(CPU), "python", "-c", PACKAGES)
    assert "torch==2.13.0+cpu" in of_image
    box = desk.boxes.boxes[0]
    assert box.ssh(f"pytorch/sandbox/bin/python -c '{PACKAGES}'", user="pytorch").stdout.strip() == of_image


def test_each_host_has_its_own_result_and_a_check_changes_nothing(desk: Desk, checked: Completed) -> None:
    matches = desk.results(checked)
    assert checked.returncode == 22
    assert "1 of 3 hosts did not end well: nowhere (unreachable)" in checked.stderr
    for name in ("foo_bar", "foo_baz"):
        assert (matches[name]["state"], matches[name]["changed"]) == ("ok", []), matches[name]
    assert matches["nowhere"]["state"] == "unreachable"
    assert "Connection refused" in matches["nowhere"]["reason"]


def test_ddp_runs_over_hosts_that_ssh_reaches(desk: Desk, checked: Completed) -> None:
    words = ("--limit", "sample_group", "--payload", "versions", "--payload", "ddp", "--nproc", "1", "--format", "json")
    process = desk.host("smoke", CPU, *words)
    assert process.returncode == 0, process.stdout + process.stderr
    outcomes = {
        check["id"]: check["outcome"] for each in json.loads(process.stdout)["images"] for check in each["checks"]
    }
    assert outcomes == {"smoke.versions[cpu]": "passed", "smoke.ddp[gloo,2x1,workers-first]": "passed"}
    box = desk.boxes.boxes[0]
    assert box.inside("ls /tmp; pgrep -u pytorch -l || true") == "", "nothing of it stays"


def test_a_host_that_ssh_does_not_reach_takes_no_part(desk: Desk, checked: Completed) -> None:
    process = desk.host("smoke", CPU, "--limit", "foo_bar:nowhere", "--payload", "versions")
    assert process.returncode == 13
    assert "nowhere: failed, ssh cannot log in as pytorch: ssh: connect to host 127.0.0.1" in process.stdout
    assert "these hosts cannot take part: nowhere" in process.stdout


def test_what_was_made_is_removed(desk: Desk, checked: Completed) -> None:
    assert desk.host("remove", "--limit", "foo_bar").returncode == 0
    left = desk.boxes.boxes[0].inside("ls -A /home/pytorch/pytorch || true")
    assert "sandbox" not in left.split()
