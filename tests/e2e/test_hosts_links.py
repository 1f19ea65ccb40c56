"""Links that users of a host put below their homes, to files of root: no playbook follows them with root's rights.

The inventory names one machine many times, with another user each time: one run of a playbook meets every link.
"""

import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest
import uv

from tests.e2e.boxes import BOOKWORM, Box, new_boxes
from tests.e2e.conftest import CPU
from tests.e2e.plays import Play, Plays, small_lock
from torchbake.core.paths import OWN_TOOLBOX
from torchbake.hosts.archive import archive_of

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif(not shutil.which("mmdebstrap"), reason="not run: mmdebstrap makes the bare host; apt has it"),
]

HERE = "pytorch/.torchbake"
# By user: what they run at home before the playbook, where /canary is root's.
PLANTED = {
    "project": "ln -s /canary pytorch",
    "state": f"mkdir pytorch && ln -s /canary {HERE}",
    "sandboxes": f"mkdir -p {HERE} && ln -s /canary {HERE}/sandboxes",
    "lock": f"mkdir -p {HERE} && ln -s /canary/lock {HERE}/lock",
    "keys": "mkdir -p .ssh && ln -s /canary/keys .ssh/authorized_keys",
    "ssh": "ln -s /canary .ssh",
}
# These get PyTorch, the last by an admin with sudo. Root would write through the first one's links, and would start its
# program to ask for a version.
SERVED = {
    "elsewhere": f"mkdir -p {HERE} {HERE}/python/own/bin && ln -s /canary {HERE}/build && ln -s /canary/uv {HERE}/uv"
    f" && cd {HERE}/python/own/bin && printf '#!/bin/sh\\ntouch /canary/python\\n' > python3.11 && chmod +x python3.11",
    "moved": "mkdir disk && ln -s disk pytorch",
}
LOGIN = {"moved": "admin"}
STATE = "find /canary -printf '%p %m %u %g %l %T@\\n' | sort; find /canary -type f -exec sha256sum {} + | sort"
# Make root's folder look like a project with a sandbox to go back to.
LIKE_A_PROJECT = """
cd /canary && mkdir -p torchbake .torchbake/sandboxes/one .torchbake/sandboxes/two
touch torchbake/run .torchbake/sandboxes/one/torchbake.json .torchbake/sandboxes/two/torchbake.json
ln -s /home/project/pytorch/.torchbake/sandboxes/one sandbox
ln -s /home/project/pytorch/.torchbake/sandboxes/two .torchbake/before
"""


@pytest.fixture(scope="module")
def plays(engine: docker.DockerClient, collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plays]:
    """Every user has the stand-in for torch to get, by a lock that names nothing else; an admin logs in by sudo."""
    folder = tmp_path_factory.mktemp("links")
    small_lock(folder, ())
    (folder / "entrypoints.tar").write_bytes(archive_of(OWN_TOOLBOX))
    with new_boxes(engine, {"box": BOOKWORM}) as boxes:
        (box,) = boxes.boxes
        _admin(box)
        users = {**PLANTED, **SERVED}
        for user, planted in users.items():
            box.inside(f"useradd -m -s /bin/bash {user} && su {user} -c {shlex.quote(f'cd && {planted}')}")
        (boxes.folder / "files").mkdir()
        shutil.copy(boxes.key.with_suffix(".pub"), boxes.folder / "files/pub_key")
        yield Plays(
            boxes=boxes, collections=collection,
            hosts={
                # Only a host that is offline is asked for its Pythons, one of which is a program of this user.
                user: {
                    "pytorch_user": user,
                    "ansible_user": LOGIN.get(user, "root"),
                    "pytorch_offline": user == "elsewhere",
                }
                for user in users
            },
            variables={
                "ansible_host": "box", "pytorch_image": CPU, "pytorch_locks": str(folder),
                "pytorch_uv_config": {"no-index": True},
                "pytorch_uv": uv.find_uv_bin(), "pytorch_wheelhouse": str(folder / "wheels"),
                "pytorch_entrypoints": str(folder / "entrypoints.tar"),
            },
        )  # fmt: skip


def _admin(box: Box) -> None:
    box.inside(
        "useradd -m -s /bin/bash admin && cp -r /root/.ssh /home/admin/ && chown -R admin /home/admin/.ssh"
        " && echo 'admin ALL=(ALL:ALL) NOPASSWD: ALL' > /etc/sudoers.d/admin"
    )


def _canary(box: Box, more: str = "true") -> str:
    """Make root's folder again, and return its state."""
    box.inside(f"rm -rf /canary && mkdir /canary && echo mine > /canary/keys && chmod 644 /canary/keys; {more}")
    return box.inside(STATE)


def test_apply_refuses_links_of_users(plays: Plays) -> None:
    """Only the refused users: nobody gets PyTorch, which takes minutes."""
    (box,) = plays.boxes.boxes
    before = _canary(box)
    play_result = replace(plays, hosts={user: plays.hosts[user] for user in PLANTED})("apply")
    assert box.inside(STATE) == before, play_result.output
    assert {user for user, failed in play_result.failed.items() if failed} == PLANTED.keys(), play_result.output


@pytest.mark.long
def test_apply_follows_no_link_with_the_rights_of_root(plays: Plays) -> None:
    (box,) = plays.boxes.boxes
    before = _canary(box)
    play_result = plays("apply")
    assert box.inside(STATE) == before, play_result.output
    assert {user for user, failed in play_result.failed.items() if failed} == PLANTED.keys(), play_result.output
    for user in SERVED:
        output = box.inside(f"su {user} -c 'cd; pytorch/sandbox/bin/python -c \"import torch; print(torch)\"'")
        assert f"/home/{user}/" in output
        _only_the_users(box, user)


def _only_the_users(box: Box, user: str) -> None:
    """Check that all files below the home belong to the user, and that root kept uv and the archive alone."""
    assert box.inside(f"find /home/{user} ! -user {user}") == ""
    assert sorted(box.inside(f"ls /var/lib/torchbake/{user}").split()) == ["entrypoints.tar", "uv"]


@pytest.mark.long
def test_a_second_run_changes_nothing(plays: Plays) -> None:
    play_result = replace(plays, hosts={user: plays.hosts[user] for user in SERVED})("apply")
    assert (play_result.code, set(play_result.changed.values())) == (0, {0}), play_result.output


@pytest.mark.parametrize("playbook", ["rollback", pytest.param("remove", marks=pytest.mark.long)])
def test_what_takes_back_follows_no_link_either(plays: Plays, playbook: str) -> None:
    (box,) = plays.boxes.boxes
    before = _canary(box, LIKE_A_PROJECT)
    play_result: Play = replace(plays, hosts={"project": plays.hosts["project"]})(playbook)
    assert box.inside(STATE) == before, play_result.output
    assert play_result.failed == {"project": 1}, play_result.output
    assert "/home/project/pytorch/" in play_result.output


@pytest.mark.long
def test_a_later_run_refuses_new_links(plays: Plays) -> None:
    """One is in root's own folder, one in the place of the entry points."""
    (box,) = plays.boxes.boxes
    before = _canary(box, "rm -rf /var/lib/torchbake/elsewhere && ln -s /canary /var/lib/torchbake/elsewhere")
    box.inside("su moved -c 'cd ~/pytorch && rm -r torchbake && ln -s /canary torchbake'")
    play_result: Play = replace(plays, hosts={user: plays.hosts[user] for user in SERVED})("apply")
    assert box.inside(STATE) == before, play_result.output
    assert play_result.failed == dict.fromkeys(SERVED, 1), play_result.output
    assert "/var/lib/torchbake/elsewhere already exists as a link" in " ".join(play_result.output.split())
