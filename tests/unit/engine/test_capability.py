"""Capabilities of each kind of engine, by recorded answers of real ones, and the problems of commands there."""

import os
import pwd
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchbake.engine.address import DEFAULT, Address
from torchbake.engine.capability import (
    NO_UIDMAP,
    Capabilities,
    Need,
    bootstrap_problem,
    capabilities_of,
    identity_of,
    number,
    problems,
    require,
)
from torchbake.engine.docker_cli import DockerCli
from torchbake.errors import EngineError

PLUGIN = "/usr/libexec/docker/cli-plugins/docker-buildx"
CLI = DockerCli(path="/usr/bin/docker", buildx="0.13.1+ds1", buildx_path=PLUGIN)
OVERLAY2 = [["Backing Filesystem", "extfs"], ["Supports d_type", "true"], ["Native Overlay Diff", "true"]]
SNAPSHOTTER = [["driver-type", "io.containerd.snapshotter.v1"]]
SECCOMP = ["name=seccomp,profile=builtin"]
# Of `/info` and `/version` of engines of Debian's packages: what is read of them.
RECORDED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "docker 20.10": (
        {"ID": "L24F:EEZU:5G5V:KUHS", "ServerVersion": "20.10.24+dfsg1", "Driver": "overlay2", "DriverStatus": OVERLAY2,
         "SecurityOptions": ["name=seccomp,profile=default"], "DockerRootDir": "/srv/old/data"},
        {"ApiVersion": "1.41", "Components": [{"Name": "Engine", "Version": "20.10.24+dfsg1"}]},
    ),
    "docker 26.1": (
        {"ID": "12f38035-9dad-40bf-8cf7-23f6cf963418", "ServerVersion": "26.1.5+dfsg1", "Driver": "overlayfs",
         "DriverStatus": SNAPSHOTTER, "SecurityOptions": SECCOMP, "DockerRootDir": "/var/lib/torchbake/engine"},
        {"ApiVersion": "1.45", "Components": [{"Name": "Engine", "Version": "26.1.5+dfsg1"}]},
    ),
    "docker 26.1, classic": (
        {"ID": "03092747-d4e5-42a9-9d7c-3e4430d62336", "ServerVersion": "26.1.5+dfsg1", "Driver": "overlay2",
         "DriverStatus": OVERLAY2, "SecurityOptions": SECCOMP, "DockerRootDir": "/srv/classic/data"},
        {"ApiVersion": "1.45", "Components": [{"Name": "Engine", "Version": "26.1.5+dfsg1"}]},
    ),
    "docker 26.1, rootless": (
        {"ID": "3d49f517-3900-4a03-bd09-7be396f2435a", "ServerVersion": "26.1.5+dfsg1", "Driver": "overlay2",
         "DriverStatus": OVERLAY2, "SecurityOptions": [*SECCOMP, "name=rootless"], "DockerRootDir": "/srv/rootless"},
        {"ApiVersion": "1.45", "Components": [{"Name": "Engine", "Version": "26.1.5+dfsg1"},
                                             {"Name": "rootlesskit", "Version": "2.0.2"}]},
    ),
    "docker 28.5": (
        {"ID": "f31970c3-d0dc-411e-ac01-6e9fa60b63ca", "ServerVersion": "28.5.2+dfsg4", "Driver": "overlayfs",
         "DriverStatus": SNAPSHOTTER, "SecurityOptions": SECCOMP, "DockerRootDir": "/srv/28/data"},
        {"ApiVersion": "1.51", "Components": [{"Name": "Engine", "Version": "28.5.2+dfsg4"}]},
    ),
    "podman 4.3": (
        {"ID": "9289f648-e43f-4e96-a08e-88ae88b8b5d7", "ServerVersion": "4.3.1", "Driver": "overlay",
         "DriverStatus": OVERLAY2, "SecurityOptions": ["name=seccomp,profile=default"], "DockerRootDir": "/srv/4/data"},
        {"ApiVersion": "1.41", "Components": [{"Name": "Podman Engine", "Version": "4.3.1"},
                                             {"Name": "Conmon", "Version": "conmon version 2.1.6, commit: unknown"}]},
    ),
    "podman 5.8": (
        {"ID": "38ba0255-85a7-4991-84de-f30815b92292", "ServerVersion": "5.8.6", "Driver": "overlay",
         "DriverStatus": OVERLAY2, "SecurityOptions": ["name=seccomp,profile=default"], "DockerRootDir": "/srv/5/data"},
        {"ApiVersion": "1.44", "Components": [{"Name": "Podman Engine", "Version": "5.8.6"}]},
    ),
}  # fmt: skip
TOO_OLD = "builds need 23.0 or later"
_CONTENT = {Need.CONTENT: "does not keep the published layers"}
_BUILDS = tuple(need for need in Need if need not in (Need.BOOTSTRAP, Need.CONTENT))
# The words with which each need is refused; an engine that is not here refuses nothing.
REFUSED: dict[str, dict[Need, str]] = {
    "docker 20.10": dict.fromkeys(_BUILDS, TOO_OLD),
    "podman 4.3": _CONTENT,
    "podman 5.8": _CONTENT,
}


def engine(name: str = "docker 26.1", address: Address = DEFAULT, **facts: Any) -> Capabilities:
    info, version = RECORDED[name]
    return replace(capabilities_of(address, info, version, CLI, no_bootstrap=None), **facts)


def refusal(it: Capabilities, need: Need = Need.BUILD) -> str:
    return " ".join(problem.sentence for problem in problems(it, need))


@pytest.mark.parametrize("name", RECORDED)
def test_commands_are_refused_on_engines_that_cannot_run_them(name: str) -> None:
    expected = REFUSED.get(name, {})
    for need in Need:
        actual = problems(engine(name), need)
        assert bool(actual) == (need in expected), need
        assert all(expected[need] in problem.reason and problem.remedy for problem in actual)
        if actual:
            with pytest.raises(EngineError) as caught:
                require(engine(name), need)
            assert (caught.value.message, caught.value.hint) == (actual[0].reason, actual[0].remedy)
        else:
            require(engine(name), need)


def test_an_engine_is_described_in_words() -> None:
    address = Address(host="tcp://far:2375", origin="DOCKER_CONTEXT", context="far")
    described = engine("docker 26.1, rootless", address).text
    for word in ("Docker 26.1.5", "tcp://far:2375", "DOCKER_CONTEXT", "classic image store", "rootless", "remote"):
        assert word in described
    assert "Podman 5.8.6" in engine("podman 5.8").text
    assert not {"remote", "rootless"} & set(engine().text.split(", "))


@pytest.mark.parametrize(
    ("version", "store", "need", "oldest"),
    [
        ("22.06", "classic", Need.BUILD, "23.0"),
        ("23.0.6", "classic", Need.BUILD, ""),
        ("23.0.6", "containerd", Need.BUILD, "24.0"),
        ("24.0.0", "containerd", Need.BUILD, ""),
    ],
)
def test_the_oldest_version_depends_on_what_is_done(version: str, store: Any, need: Need, oldest: str) -> None:
    words = refusal(engine(version=version, store=store), need)
    assert words == "" if not oldest else f"{oldest} or later" in words


def test_podman_builds_by_itself() -> None:
    podman = engine("podman 4.3", docker=None, buildx=None)
    assert not refusal(podman)
    assert "4.3 or later" in refusal(replace(podman, version="4.2.0"))


def test_commands_beside_the_engine_are_looked_at() -> None:
    for facts, words in (
        ({"docker": None}, "no docker command"),
        ({"buildx": None}, "no buildx plugin"),
        ({"buildx": "v0.12.1"}, f"buildx v0.12.1 ({PLUGIN}) is too old"),
        ({"buildx": "v0.30.1-desktop.2"}, ""),
    ):
        text = refusal(engine(**facts))
        assert words in text
        assert bool(text) == bool(words)


def test_a_user_without_uidmap_bootstraps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems(engine(no_bootstrap=NO_UIDMAP), Need.BOOTSTRAP) == [NO_UIDMAP]
    assert not problems(engine(no_bootstrap=NO_UIDMAP), Need.BUILD)  # a registry may serve the base
    for name in ("subuid", "subgid"):
        (tmp_path / name).write_text(f"{pwd.getpwuid(os.getuid()).pw_name}:100000:65536\n")
    for uid, commands, problem in ((0, (), None), (1000, (), NO_UIDMAP), (1000, ("newuidmap",), NO_UIDMAP),
                                   (1000, ("newuidmap", "newgidmap"), None)):  # fmt: skip
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        monkeypatch.setattr(shutil, "which", lambda name, commands=commands: name if name in commands else None)
        assert bootstrap_problem(tmp_path) is problem


def test_a_user_without_a_range_of_uids_bootstraps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mmdebstrap itself says that it is unable to pick a mode, or takes fakechroot."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    user = pwd.getpwuid(os.getuid()).pw_name
    for name, text in (("subuid", f"{user}:100000:65536\n"), ("subgid", f"{user}2:100000:65536\n")):
        (tmp_path / name).write_text(text)
    problem = bootstrap_problem(tmp_path)
    assert problem
    assert problem.reason.endswith(f": no line for {user} in {tmp_path}/subgid.")
    assert f"--add-subgids 100000-165535 {user}" in problem.remedy
    (tmp_path / "subuid").unlink()
    assert f"{tmp_path}/subuid and {tmp_path}/subgid" in str(bootstrap_problem(tmp_path))


def test_podman_is_known_by_its_folder_not_by_its_changing_id() -> None:
    info, _ = RECORDED["podman 5.8"]
    assert identity_of(engine("podman 5.8"), info) == identity_of(engine("podman 5.8"), {**info, "ID": "another"})
    info, _ = RECORDED["docker 28.5"]
    assert identity_of(engine("docker 28.5"), info) != identity_of(engine("docker 28.5"), {**info, "ID": "another"})


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("26.1.5+dfsg1", (26, 1, 5)), ("v0.20.1-desktop.2", (0, 20, 1)), ("22.04", (22, 4)), ("", ()), (None, ())],
)
def test_versions_are_compared_by_their_leading_numbers(text: str | None, numbers: tuple[int, ...]) -> None:
    assert number(text) == numbers
