"""The job of all launchers by `podman kube play`, in a machine made of Debian's packages.

The tests make a pod for each index from the output of `job show kubernetes`. They play a job of one node unchanged.
Podman has no Jobs, Services or scheduler, and ignores some fields of a pod:

- `runAsNonRoot`: with `runAsUser: 0` the container starts as root;
- `fsGroup`: volumes always belong to the container's user;
- `seccompProfile`: podman's own profile is always on;
- `readinessProbe`, and `sizeLimit` of an emptyDir in memory;
- an emptyDir at /tmp: podman mounts a folder in memory over it. So these tests do not show that a pod without the
  emptyDir could not write there.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clusters.podman import Podman, podman
from tests.clusters.pods import Play, pods
from tests.e2e.conftest import ROOT
from tests.e2e.launchers.job import FAILS, NAME, TRAINS, check_failed, check_trained, manifest
from tests.e2e.launchers.tree import NoLauncherError, tree

TOOLS = ROOT / ".torchbake/tools"
Holder = dict[str, Any]


@pytest.fixture(scope="module")
def machine(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """It has the image already, as it would pull one."""
    try:
        with podman(tree(TOOLS, "podman"), tmp_path_factory.mktemp("podman") / "machines") as value:
            value.load(image)
            yield value
    except NoLauncherError as error:
        pytest.skip(f"podman is not here, and cannot be had: {error}")


def test_a_job_trains_to_its_end(machine: Podman, image: str, tmp_path: Path) -> None:
    check_trained("podman", machine.run(pods(manifest("kubernetes", tmp_path, image, TRAINS))))
    assert not machine.left()


def test_a_rank_that_fails_gives_the_job_its_exit_code(machine: Podman, image: str, tmp_path: Path) -> None:
    """Every pod has it."""
    check_failed("podman", machine.run(pods(manifest("kubernetes", tmp_path, image, FAILS))))
    assert not machine.left()


@pytest.fixture
def holder(machine: Podman, image: str, tmp_path: Path, files: Callable[..., str]) -> Callable[..., Holder]:
    """Return the limits of a job of one node, after ``change`` has edited its pod."""
    own = {"nodes": 1, "files": {"folder": files("held.py")}}
    text = manifest("kubernetes", tmp_path, image, ("held.py",), **own)

    def play(change: Callable[[dict[str, Any]], object] | None = None) -> Holder:
        pod = f"{NAME}-pod"
        changed = changed_by(change, text) if change else text
        end = machine.run([Play(name=pod, alias=NAME, container=f"{pod}-pytorch", text=changed)])
        assert end.code == 0, end.output
        machine.podman("volume", "rm", f"{NAME}-files")  # which 5.4.2 takes down with a Pod, and not with a Job
        assert not machine.left()
        (matches,) = end.find()
        return matches

    return play


def changed_by(change: Callable[[dict[str, Any]], object], text: str) -> str:
    objects = [each for each in yaml.safe_load_all(text) if each]
    (job,) = (each for each in objects if each["kind"] == "Job")
    change(job["spec"]["template"]["spec"])
    return yaml.safe_dump_all(objects)


def test_a_job_of_one_node_is_held_to_its_security_context(holder: Callable[..., Holder]) -> None:
    """As it is written, with nothing lowered."""
    assert holder() == {
        "rank": 0, "uid": 1001, "gid": 0, "effective": 0, "bounding": 0, "no_new_privileges": True, "seccomp": True,
        "written": {"/": "EROFS", "/opt": "EROFS", "/job": "EROFS", "/tmp": "written", "/dev/shm": "written"},
    }  # fmt: skip


def test_without_its_security_context_it_is_held_to_less(holder: Callable[..., Holder]) -> None:
    """The control: what holds above comes from the manifest, and not from the image or from podman."""

    def take_away(pod: dict[str, Any]) -> None:
        pod["securityContext"]["runAsUser"] = 1500
        del pod["containers"][0]["securityContext"]

    matches = holder(take_away)
    assert (matches["uid"], matches["no_new_privileges"]) == (1500, False)
    assert matches["bounding"] > 0
    assert matches["written"]["/"] == "EACCES"
