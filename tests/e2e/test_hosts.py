"""PyTorch on bare hosts, by the collection as it is built and installed: machines with sshd.

Both hosts get PyTorch once, by a small lock with a stand-in for torch: Ansible runs the same tasks with it in seconds.
The first host gets its wheels from an index, except one that is copied to it; the second host asks no index.

The tests in tests/e2e/test_hosts_door.py install the real torch, those in tests/e2e/test_hosts_printed.py on Debian 13.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import docker
import pytest
import testinfra
import uv

from tests.e2e.bare import ROOT, Bare
from tests.e2e.boxes import BOOKWORM, NOBLE, Box, Boxes, new_boxes, purge_python
from tests.e2e.conftest import CPU, CUDA
from tests.e2e.plays import Hosts, Play, Plays, small_lock, small_wheels
from tests.e2e.serving import index_of
from tests.e2e.waiting import until

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif(not shutil.which("mmdebstrap"), reason="not run: mmdebstrap makes the bare hosts; apt has it"),
]

ONE, OTHER, BARE = "foo_bar", "foo_baz", "bare"  # the first is the alias of the first guide; the last has no Python
PROJECT = "/home/pytorch/pytorch"
# All files of a host but the traces of logging in and of Ansible's own temporary files.
SNAPSHOT = (
    "find / -xdev \\( -path /proc -o -path /sys -o -path /tmp -o -path /run -o -path /root/.ansible -o -path /var/log"
    " \\) -prune -o -printf '%p %m %u %g %s %l %T@\\n' | grep -v '^/root ' | sort | sha256sum"
)
STATE = f"find {PROJECT} /var/lib/torchbake /etc/passwd -printf '%p %u %m %l %T@\\n' 2>/dev/null | sort"


@dataclass(frozen=True, kw_only=True)
class Index:
    """An index at ``url`` of all wheels but one, which is in the folder ``lacks``.

    It answers requests for wheels only while ``is_open`` is set.
    """

    url: str
    lacks: Path
    requests_seen: list[str]
    is_open: threading.Event


@pytest.fixture(scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of locks with the small lock alone."""
    return small_lock(tmp_path_factory.mktemp("locks"))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory, bare: Bare) -> Path:
    """A simple index with the wheels of the small lock."""
    return small_wheels(bare, tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def index(wheels: Path, gateway: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    """An index without the wheel of setuptools."""
    folder = shutil.copytree(wheels, tmp_path_factory.mktemp("index"), dirs_exist_ok=True)
    shutil.rmtree(folder / "setuptools")
    is_open = threading.Event()
    is_open.set()

    def wait(path: str) -> None:
        assert not path.endswith(".whl") or is_open.wait(600)

    with index_of(folder, gateway, wait) as (url, requests_seen):
        yield Index(url=url, lacks=wheels / "setuptools", requests_seen=requests_seen, is_open=is_open)


@pytest.fixture(scope="module")
def wheelhouse(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All wheels in one folder."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    for wheel in wheels.glob("*/*.whl"):
        shutil.copy(wheel, folder)
    return folder


@pytest.fixture(scope="module")
def boxes(engine: docker.DockerClient) -> Iterator[Boxes]:
    with new_boxes(engine, dict.fromkeys((ONE, OTHER, BARE), BOOKWORM)) as boxes:
        boxes.boxes[1].inside("SUDO_FORCE_REMOVE=yes dpkg --purge sudo")
        purge_python(boxes.boxes[2])
        yield boxes


@pytest.fixture(scope="module")
def fresh(boxes: Boxes, collection: Path, index: Index, wheelhouse: Path, locks: Path) -> Plays:
    """The control machine of both hosts, on which nothing has been done. One of them is to get a user with sudo."""
    _hand_in_the_key(boxes)
    by_index: dict[str, object] = {
        "pytorch_uv_config": {"index-url": index.url},
        "pytorch_wheelhouse": str(index.lacks),
    }
    offline = {"pytorch_uv_config": {"no-index": True}, "pytorch_wheelhouse": str(wheelhouse)}
    return Plays(
        boxes=boxes, collections=collection,
        hosts={ONE: by_index, OTHER: {"base_user": "admin", "base_packages": ["sudo"], **offline}},
        variables={
            "ansible_ssh_user": "root", "pytorch_locks": str(locks), "pytorch_uv": uv.find_uv_bin(),
            "pytorch_default_images": {"standard": CPU, "cuda": CUDA},
        },
    )  # fmt: skip


def _hand_in_the_key(boxes: Boxes) -> None:
    """Put the key of who may log in as the new user where the role looks for it."""
    (boxes.folder / "files").mkdir()
    shutil.copy(boxes.key.with_suffix(".pub"), boxes.folder / "files/pub_key")


@pytest.fixture(scope="module")
def checked(fresh: Plays) -> tuple[Play, bool]:
    """A run with --check on both, and whether any file of theirs has changed."""
    before = [box.inside(SNAPSHOT) for box in fresh.boxes.boxes]
    play_result = fresh("apply", "--check", "--diff")
    return play_result, before != [box.inside(SNAPSHOT) for box in fresh.boxes.boxes]


@pytest.fixture(scope="module")
def cut_off(fresh: Plays, checked: object, index: Index) -> str:
    """Kill everything on the first host while uv installs, and return the parts of the project that exist then."""
    box = fresh.boxes.boxes[0]
    index.is_open.clear()
    running = subprocess.Popen(
        fresh.command("apply", "--limit", ONE), env=fresh.env(), cwd=fresh.boxes.folder, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(
            lambda: running.poll() is not None or any(path.endswith(".whl") for path in index.requests_seen),
            seconds=600,
        )
        assert running.poll() is None, "it ended before uv asked for a wheel"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        box.inside("pkill -9 -f '[u]v pip install' || true")
        index.is_open.set()
    return box.inside(f"find {PROJECT} -maxdepth 5 -name sandbox -o -name pyvenv.cfg -o -name torchbake.json")


@pytest.fixture(scope="module")
def applied(fresh: Plays, cut_off: str) -> Plays:
    """Both hosts with PyTorch."""
    play_result = fresh("apply")
    assert play_result.code == 0, play_result.output
    return fresh


def driver(box: Box, version: str) -> None:
    """Give the host an NVIDIA driver of this version, as far as nvidia-smi tells; with an empty version, none."""
    program = f"printf '#!/bin/sh\\necho {version}\\n' > /usr/bin/nvidia-smi; chmod +x /usr/bin/nvidia-smi"
    box.inside(program if version else "rm /usr/bin/nvidia-smi")


@pytest.mark.long  # test_hosts_door.py has a check by the command
def test_a_check_changes_nothing_and_says_what_would_be(checked: tuple[Play, bool]) -> None:
    play_result, differs = checked
    assert play_result.code == 0, play_result.output
    assert not differs
    assert all(play_result.changed.values())
    assert f"torch 2.13.0+cpu of {CPU} would be installed, with 2 packages" in play_result.output
    assert "Packages that would be installed: sudo" in play_result.output


@pytest.mark.long
def test_what_was_killed_is_finished_by_the_next_run(cut_off: str, applied: Plays) -> None:
    assert cut_off.split() == [next(iter(cut_off.split()))]
    assert cut_off.strip().endswith("/pyvenv.cfg"), "neither complete nor switched to"
    box = applied.boxes.boxes[0]
    assert (
        box.ssh("cd pytorch && ./sandbox/bin/python -c 'import torch; print(torch.__version__)'", user="pytorch").stdout
        == "2.13.0+cpu\n"
    )
    left = box.inside(f"ls -A {PROJECT}/.torchbake")
    assert sorted(left.split()) == ["cache", "lock", "sandboxes"]
    assert box.inside("ls -A /var/lib/torchbake/pytorch") == "uv\n", "settings, wheels and certificates are gone"


@pytest.mark.long  # test_hosts_door.py has a login as this user
def test_the_new_user_logs_in_by_key_and_runs_torch(applied: Plays) -> None:
    script = f"#!{PROJECT}/sandbox/bin/python\nimport setuptools, torch\nprint(torch.__version__)\n"
    for box in applied.boxes.boxes[:2]:
        process = box.ssh(f"cat > script <<'END'\n{script}END\nchmod +x script && ./script", user="pytorch")
        assert process.stdout == "2.13.0+cpu\n", box.name


# Two thousand looks a second: what is removed and made again by two steps of Ansible is seen to be gone.
_WATCH = f"""
import os, time
while not os.path.exists("/tmp/done"):
    if not os.access("{PROJECT}/sandbox/bin/python", os.X_OK):
        open("/tmp/gone", "a").write("gone ")
    time.sleep(0.0005)
"""


@pytest.mark.long
def test_a_new_lock_is_switched_to_at_once_and_rolled_back(applied: Plays, tmp_path: Path) -> None:
    _lock(applied, tmp_path, lambda text: re.sub(r"(?m)^setuptools==.*\n(?:    .*\n)*", "", text))
    box = applied.boxes.boxes[1]
    before = box.inside(f"readlink {PROJECT}/sandbox")
    box.container.exec_run(["python3", "-c", _WATCH], detach=True)
    check = applied("apply", "--limit", OTHER, "--check", "--diff", pytorch_locks=str(tmp_path))
    assert re.search(r"(?m)^-setuptools==", check.output), check.output
    play_result = applied("apply", "--limit", OTHER, pytorch_locks=str(tmp_path))
    assert play_result.code == 0, play_result.output
    sees = f"{PROJECT}/sandbox/bin/python -c 'import importlib.util as u; print(bool(u.find_spec(\"setuptools\")))'"
    assert box.ssh(sees, user="pytorch").stdout == "False\n"
    assert applied("rollback", "--limit", OTHER).changed == {OTHER: 2}, "the sandbox, and what was before it"
    assert box.ssh(sees, user="pytorch").stdout == "True\n"
    assert box.inside(f"readlink {PROJECT}/sandbox") == before
    assert len(box.inside(f"ls {PROJECT}/.torchbake/sandboxes").split()) == 2
    assert not box.inside("touch /tmp/done; cat /tmp/gone 2>/dev/null || true"), "at no moment was there no sandbox"


@pytest.mark.long  # test_hosts_door.py has a check that changes nothing
def test_a_second_run_changes_nothing_as_root_and_by_sudo(applied: Plays) -> None:
    """Every night the second host was rolled back before. One login is root's, one of a user with sudo and an agent."""
    boxes = applied.boxes
    settings = boxes.config.read_text()
    socket = boxes.folder / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        until(socket.exists)
        subprocess.run(["ssh-add", "-q", boxes.key], env={**os.environ, "SSH_AUTH_SOCK": str(socket)}, check=True)
        boxes.config.write_text(settings.replace("IdentitiesOnly yes", "").replace(f"IdentityFile {boxes.key}", ""))
        hosts: Hosts = {ONE: applied.hosts[ONE], OTHER: {**applied.hosts[OTHER], "ansible_ssh_user": "admin"}}
        os.environ["SSH_AUTH_SOCK"] = str(socket)
        play_result = replace(applied, hosts=hosts)("apply")
    finally:
        os.environ.pop("SSH_AUTH_SOCK", None)
        boxes.config.write_text(settings)
        agent.terminate()
        agent.wait()
    assert play_result.code == 0, play_result.output
    assert play_result.changed == {ONE: 0, OTHER: 0}


@pytest.mark.long
def test_testinfra_sees_the_same_by_ssh_and_by_ansible(applied: Plays) -> None:
    host = testinfra.get_host(f"ssh://{ONE}", ssh_config=str(applied.boxes.config))
    assert host.user("pytorch").exists
    assert host.file(f"{PROJECT}/sandbox").linked_to.startswith(f"{PROJECT}/.torchbake/sandboxes/{CPU}-")
    applied.command("apply")
    env = {**applied.env(), "INVENTORY": str(applied.boxes.folder / "inventory.json")}
    command = [sys.executable, "-c", _BY_ANSIBLE]
    by_ansible = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert by_ansible.stdout.split() == ["True", "False"], by_ansible.stderr


_BY_ANSIBLE = f"""
import os, testinfra
host = testinfra.get_host("ansible://{OTHER}", ansible_inventory=os.environ["INVENTORY"], force_ansible=True)
print(host.sudo is not None and host.file("{PROJECT}/sandbox").is_symlink, host.file("{PROJECT}/none").exists)
"""


def test_unsuitable_hosts_are_refused_before_a_change(fresh: Plays, tmp_path: Path) -> None:
    """One play for all reasons: the names of its hosts are aliases of the two machines."""
    _lock(fresh, tmp_path, lambda text: text.replace("; python 3.11;", "; python 3.12;"))
    cuda = {"pytorch_install_type": "cuda", "pytorch_locks": str(ROOT / "images")}
    hosts: Hosts = {
        "old_driver": {"ansible_host": ONE, **cuda},
        "no_driver": {"ansible_host": OTHER, **cuda},
        "cpu_torch": {"ansible_host": ONE, "pytorch_install_type": "cuda", "pytorch_image": CPU},
        "no_lock": {"ansible_host": ONE, "pytorch_image": "1.0.0-none"},
        "no_python": {"ansible_host": OTHER, "pytorch_locks": str(tmp_path), "pytorch_python_downloads": False},
    }
    driver(fresh.boxes.boxes[0], "470.57.02")
    before = [box.inside(STATE) for box in fresh.boxes.boxes[:2]]
    play_result = replace(fresh, hosts=hosts)("apply")
    assert before == [box.inside(STATE) for box in fresh.boxes.boxes[:2]]
    driver(fresh.boxes.boxes[0], "")
    assert play_result.failed == dict.fromkeys(hosts, 1), play_result.output
    assert play_result.changed == dict.fromkeys(hosts, 0)
    for message in (
        f"driver of old_driver is 470.57.02, and CUDA 12.6 ({CUDA}) needs 525.60.13 or newer",
        "no_driver has no NVIDIA driver that answers",
        f"A cuda host never gets a torch for the CPU: {CPU} has no CUDA",
        "there is no lock. Set pytorch_locks to the folder that has it",
        f"no_python has no Python 3.12, which the lock of {CPU} is for",
        "may not download one",
    ):
        assert message in _plain(play_result.output)


@pytest.mark.long
def test_a_check_accepts_a_new_driver_and_needs_python(applied: Plays) -> None:
    cuda: dict[str, object] = {"pytorch_install_type": "cuda", "pytorch_locks": str(ROOT / "images")}
    driver(applied.boxes.boxes[0], "580.65.06")
    play_result = replace(applied, hosts={ONE: cuda, BARE: {}})("apply", "--check")
    driver(applied.boxes.boxes[0], "")
    assert play_result.failed == {ONE: 0, BARE: 1}, play_result.output
    assert f"torch 2.7.1 of {CUDA} would be installed" in _plain(play_result.output)
    assert "Python is missing on bare, and --check installs nothing" in _plain(play_result.output)


@pytest.mark.long
def test_a_failed_installation_stops_the_wave(applied: Plays, tmp_path: Path) -> None:
    _lock(applied, tmp_path, lambda text: re.sub(r"(?m)^setuptools==\S+", "setuptools==0.0.1", text))
    hosts: Hosts = {ONE: {**applied.hosts[ONE], "pytorch_locks": str(tmp_path)}, OTHER: applied.hosts[OTHER]}
    play_result = replace(applied, hosts=hosts)("apply", pytorch_serial=1)
    assert "setuptools==0.0.1" in _plain(play_result.output)
    assert play_result.failed == {ONE: 1}
    assert OTHER not in play_result.changed, "the second wave never began"
    box = applied.boxes.boxes[0]
    assert box.inside("ls -A /var/lib/torchbake/pytorch") == "uv\n"
    assert box.inside(f"ls {PROJECT}/.torchbake/sandboxes/*/torchbake.json").count("\n") == 1, "it is not complete"


@pytest.mark.long
def test_a_python_that_the_host_has_not_is_downloaded_by_uv(
    fresh: Plays, engine: docker.DockerClient, gateway: str, tmp_path: Path
) -> None:
    """Ubuntu 24.04 has no Python 3.11: a mirror serves Debian's under the URL path of uv's own builds."""
    with (
        new_boxes(engine, {"donor": BOOKWORM, "ubuntu": NOBLE}) as boxes,
        index_of(tmp_path, gateway) as (url, seen_names),
    ):
        donor, box = boxes.boxes
        known_value = _packed_python(donor, tmp_path)
        _hand_in_the_key(boxes)
        plays = replace(fresh, boxes=boxes, hosts={"ubuntu": fresh.hosts[ONE]})
        arguments = {"UV_PYTHON_DOWNLOADS_JSON_URL": f"{url}/{known_value}"}
        for changes in (True, False):
            play_result = plays("apply", pytorch_python_mirror=f"{url}/mirror", pytorch_environment=arguments)
            assert play_result.code == 0, play_result.output
            assert bool(play_result.changed["ubuntu"]) == changes
        assert [path for path in seen_names if path.startswith("/mirror/")] == ["/mirror/1/python.tar.gz"]
        script = "import sys, torch; print(sys.version_info[:2], sys.base_prefix, torch.__version__)"
        output = box.ssh(f"python3 -V; pytorch/sandbox/bin/python -c '{script}'", user="pytorch").stdout
        assert re.fullmatch(
            rf"Python 3\.12\.\d+\n\(3, 11\) {PROJECT}/\.torchbake/python/cpython-3\.11\S* 2\.13\.0\+cpu\n", output
        )
        assert plays("remove").code == 0
        assert "pytorch" not in box.inside("ls -A /home/pytorch").split(), "with the Python"


def _packed_python(donor: Box, folder: Path) -> str:
    """Debian's Python 3.11 as uv downloads one, in the folder; the file there that tells uv of it."""
    donor.inside(
        "mkdir -p /tmp/python/bin /tmp/python/lib && cp /usr/bin/python3.11 /tmp/python/bin/"
        " && ln -s python3.11 /tmp/python/bin/python3 && ln -s python3.11 /tmp/python/bin/python"
        " && cp -r /usr/lib/python3.11 /tmp/python/lib/ && find /tmp/python -type l -lname '/*' -delete"
        " && tar -C /tmp -czf /tmp/python.tar.gz python"
    )
    packed, _ = donor.container.get_archive("/tmp/python.tar.gz")
    (folder / "mirror/1").mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(b"".join(packed))) as outer:
        archive = outer.extractfile("python.tar.gz")
        assert archive is not None
        (folder / "mirror/1/python.tar.gz").write_bytes(archive.read())
    digest = hashlib.sha256((folder / "mirror/1/python.tar.gz").read_bytes()).hexdigest()
    patch = donor.inside("python3 -c 'import sys; print(sys.version_info.micro)'").strip()
    about = {
        "name": "cpython", "arch": {"family": "x86_64", "variant": None}, "os": "linux", "libc": "gnu",
        "major": 3, "minor": 11, "patch": int(patch), "prerelease": "", "variant": None, "build": None,
        "url": "https://github.com/astral-sh/python-build-standalone/releases/download/1/python.tar.gz",
        "sha256": digest,
    }  # fmt: skip
    (folder / "downloads.json").write_text(json.dumps({f"cpython-3.11.{patch}-linux-x86_64-gnu": about}))
    return "downloads.json"


@pytest.mark.long
def test_what_is_removed_leaves_the_users_own_files(applied: Plays) -> None:
    box = applied.boxes.boxes[1]
    box.ssh("echo mine > pytorch/train.py", user="pytorch")
    assert applied("remove", "--limit", OTHER).code == 0
    assert box.inside(f"ls -A {PROJECT}").split() == ["train.py"]
    play_result = applied("remove", "--limit", OTHER, "-e", "pytorch_remove_user=true")
    assert play_result.changed == {OTHER: 1}, "only the user was left"
    assert box.inside("getent passwd pytorch || true") == ""


def _lock(plays: Plays, folder: Path, change: Callable[[str], str]) -> None:
    """Write the small lock with a change below the folder."""
    text = Path(str(plays.variables["pytorch_locks"]), CPU, "requirements.lock").read_text()
    changed = change(text)
    assert changed != text
    (folder / CPU).mkdir()
    (folder / CPU / "requirements.lock").write_text(changed)


def _plain(output: str) -> str:
    """Without the line breaks that are only for a screen."""
    return " ".join(output.split())
