"""Plans from facts about a host, for every kind of machine."""

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.unit.conftest import SMALL
from torchbake.commands import setup
from torchbake.engine.address import DEFAULT, Address
from torchbake.engine.capability import NO_UIDMAP, Capabilities, Need, problems
from torchbake.errors import MatrixError, SetupError, UsageError
from torchbake.setup import plan as hosts
from torchbake.setup.paths import EnginePaths
from torchbake.setup.plan import (
    Install,
    RegisterEmulation,
    SetupHost,
    SetupPlan,
    StartDaemon,
    StartUnit,
    WriteFile,
    engine_config,
    make_plan,
)

PATHS = EnginePaths()
ENGINE = Capabilities(
    address=DEFAULT, version="26.1.5+dfsg1", store="containerd", driver="overlayfs",
    docker="/usr/bin/docker", buildx="0.13.1",
)  # fmt: skip
READY = SetupHost(distro="debian", release="12", root="root", docker="/usr/bin/docker", engine=ENGINE, buildx="0.13.1")
BARE12 = SetupHost(distro="debian", release="12", root="root", installed=frozenset({"ca-certificates"}))
BARE13 = dataclasses.replace(BARE12, release="13")
UBUNTU = dataclasses.replace(BARE12, distro="ubuntu", release="22.04")
INSTALLED = frozenset({"docker.io", "docker-cli", "docker-buildx", "iptables", "ca-certificates", "mmdebstrap"})
STOPPED = dataclasses.replace(READY, engine=None, dockerd="26.1.5", installed=INSTALLED)


def change(host: SetupHost, **facts: Any) -> SetupHost:
    return dataclasses.replace(host, **facts)


def plan(host: SetupHost, paths: EnginePaths = PATHS) -> SetupPlan:
    return make_plan(host, paths)


def packages(host: SetupHost) -> tuple[str, ...]:
    return next((step.packages for step in plan(host).steps if isinstance(step, Install)), ())


def write(host: SetupHost) -> dict[str, str]:
    return {step.path: step.text for step in plan(host).steps if isinstance(step, WriteFile)}


def arguments(
    folder: Path, *, form: Literal["text", "json"] = "text", platform: Literal["", "linux/arm64", "locked"] = ""
) -> setup.Arguments:
    return setup.Arguments(
        matrix=folder / "matrix.yaml",
        check=True,
        dry_run=False,
        platform=platform,
        shown=False,
        format=form,
        quiet=False,
        verbose=False,
        progress="auto",
    )


@pytest.mark.parametrize(
    "host",
    [
        READY,
        change(READY, engine=dataclasses.replace(ENGINE, version="23.0.1", driver="overlay2", store="classic")),
        change(READY, distro="fedora", release="43", root="no"),
        change(READY, system="Darwin", distro="", chosen_by="`docker context use` chose desktop-linux"),
        change(READY, buildx="v0.30.1-desktop.2"),
    ],
)
def test_a_working_engine_with_buildx_needs_nothing(host: SetupHost) -> None:
    assert plan(host) == SetupPlan()
    assert plan(host).ready


def test_debian_12_takes_docker_from_trixie_alone() -> None:
    names = ("docker.io/trixie", "docker-cli/trixie", "docker-buildx/trixie", "iptables", "mmdebstrap")
    assert packages(BARE12) == names
    assert [type(step) for step in plan(BARE12).steps] == [WriteFile, WriteFile, Install, StartDaemon]


def test_the_trixie_source_and_pin() -> None:
    assert write(BARE12) == {
        "/etc/apt/sources.list.d/torchbake-trixie.sources": (
            "Types: deb\nURIs: http://deb.debian.org/debian\nSuites: trixie\nComponents: main\n"
            "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        ),
        "/etc/apt/preferences.d/torchbake-trixie": "Package: *\nPin: release n=trixie\nPin-Priority: 50\n",
    }


def test_the_trixie_source_uses_the_hosts_own_mirror() -> None:
    mirrored = change(BARE12, mirror="http://mirror.example/debian")
    assert "URIs: http://mirror.example/debian\n" in write(mirrored)[hosts.TRIXIE_SOURCE]


def test_files_that_are_there_are_not_written_again() -> None:
    again = change(BARE12, files=write(BARE12))
    assert write(again) == {}
    other_mirror = change(again, mirror="http://mirror.example/debian")
    assert list(write(other_mirror)) == [hosts.TRIXIE_SOURCE]


def test_a_host_that_has_trixie_already_keeps_its_own_priorities() -> None:
    assert write(change(BARE12, trixie_known=True)) == {}
    assert "docker.io/trixie" in packages(change(BARE12, trixie_known=True))


@pytest.mark.parametrize(
    ("host", "names"),
    [
        (BARE13, ("docker.io", "docker-cli", "docker-buildx", "iptables", "mmdebstrap")),
        (UBUNTU, ("docker.io", "docker-buildx", "iptables", "mmdebstrap", "debian-archive-keyring")),
        (
            change(BARE13, docker="/usr/local/bin/docker"),
            ("docker.io", "docker-buildx", "iptables", "mmdebstrap"),
        ),
        (
            change(BARE13, release="14"),
            ("docker.io", "docker-cli", "docker-buildx", "iptables", "mmdebstrap"),
        ),
        (change(STOPPED, installed=INSTALLED - {"mmdebstrap"}), ("mmdebstrap",)),
        (STOPPED, ()),
    ],
)
def test_only_what_is_missing_is_installed(host: SetupHost, names: tuple[str, ...]) -> None:
    assert packages(host) == names
    assert hosts.TRIXIE_SOURCE not in write(host)


def test_an_engine_that_answers_gets_buildx_and_nothing_else() -> None:
    assert packages(change(READY, release="13", buildx=None)) == ("docker-buildx",)
    assert [type(step) for step in plan(change(READY, release="13", buildx=None)).steps] == [Install]
    assert packages(change(READY, buildx=None)) == ("docker-buildx/trixie",)


def test_an_old_buildx_is_upgraded_though_installed() -> None:
    old = change(READY, release="13", buildx="0.12.1", installed=INSTALLED)
    assert packages(old) == ("docker-buildx",)
    problem = plan(old).problem
    assert problem
    assert "0.12.1" in problem.reason


def test_docker_ce_keeps_its_own_packages() -> None:
    official = frozenset({"docker-ce", "docker-ce-cli"})
    assert packages(change(READY, buildx=None, installed=official)) == ("docker-buildx-plugin",)
    stopped = change(STOPPED, installed=official | {"iptables", "ca-certificates", "mmdebstrap"})
    assert [type(step) for step in plan(stopped).steps] == [StartDaemon]


def test_an_old_stopped_docker_is_replaced_with_its_command() -> None:
    old = change(STOPPED, dockerd="20.10.24", buildx=None, installed=INSTALLED - {"docker-buildx"})
    assert packages(old)[:3] == ("docker.io/trixie", "docker-cli/trixie", "docker-buildx/trixie")


def test_ubuntu_never_gets_a_second_engine_along_with_buildx() -> None:
    foreign = change(READY, distro="ubuntu", release="24.04", buildx=None)
    assert plan(foreign).steps == ()
    problem = plan(foreign).problem
    assert problem
    assert "Install buildx" in problem.remedy
    own = change(foreign, installed=frozenset({"docker.io"}))
    assert packages(own) == ("docker-buildx",)


def test_systemd_starts_the_engine_where_it_runs() -> None:
    assert plan(change(STOPPED, systemd=True)).steps == (StartUnit(),)
    assert [type(step) for step in plan(STOPPED).steps] == [StartDaemon]


def test_an_own_folder_is_started_by_hand_even_under_systemd() -> None:
    paths = EnginePaths.under(Path("/srv/tb"))
    (step,) = plan(change(STOPPED, systemd=True), paths).steps
    assert isinstance(step, StartDaemon)
    assert step.paths == paths


def test_a_new_engine_under_systemd_gets_the_containerd_store() -> None:
    bare = change(BARE13, systemd=True)
    assert json.loads(write(bare)[hosts.DAEMON_JSON]) == hosts.CONTAINERD_STORE
    assert [type(step) for step in plan(bare).steps] == [WriteFile, Install, StartUnit]


@pytest.mark.parametrize(
    "facts", [{"files": {hosts.DAEMON_JSON: "{}"}}, {"used_before": True}, {"dockerd": "20.10.24"}]
)
def test_settings_and_images_that_exist_are_left_alone(facts: dict[str, Any]) -> None:
    assert hosts.DAEMON_JSON not in write(change(BARE13, systemd=True, **facts))


def test_what_only_a_person_can_do_is_said_and_nothing_is_done() -> None:
    for host, advice in (
        (change(STOPPED, docker=None, docker_elsewhere="/opt/bin/docker"), "/opt/bin/docker in PATH"),
        (change(STOPPED, chosen_by="DOCKER_HOST is tcp://far:2375"), "DOCKER_HOST is tcp://far:2375"),
        (change(STOPPED, socket="forbidden"), "usermod -aG docker"),
        (change(STOPPED, socket="hangs"), "Stop what holds unix:///var/run/docker.sock"),
        (change(STOPPED, installed=frozenset({"podman-docker"})), "Remove podman-docker"),
        (change(READY, engine=dataclasses.replace(ENGINE, version="20.10.24")), "Upgrade that engine"),
        (change(READY, buildx=None, installed=INSTALLED), "see `docker info`"),
        (change(STOPPED, socket="answers"), "see `docker info`"),
        (SetupHost(system="Darwin"), "Docker Desktop"),
        (SetupHost(system="Windows"), "WSL"),
        (SetupHost(distro="fedora", release="43", root="root"), "dnf install moby-engine"),
        (SetupHost(distro="debian", release="11", root="root"), "docs.docker.com/engine/install"),
        (SetupHost(distro="ubuntu", release="20.04", root="root"), "docs.docker.com/engine/install"),
        (change(STOPPED, distro="fedora"), "systemctl start docker"),
        (change(READY, distro="fedora", buildx=None), "Install buildx 0.13"),
        (
            change(BARE13, root="no"),
            "apt-get install --no-install-recommends docker.io docker-cli docker-buildx",
        ),
    ):
        assert plan(host).steps == (), (host, advice)
        problem = plan(host).problem
        assert problem, (host, advice)
        assert advice in problem.remedy, (host, advice)
        assert not plan(host).ready, (host, advice)


def test_a_missing_command_of_a_running_engine_starts_no_second() -> None:
    host = change(BARE13, socket="answers")
    assert packages(host) == ("docker-cli", "docker-buildx", "mmdebstrap")
    assert [type(step) for step in plan(host).steps] == [Install]


def test_an_engine_that_cannot_build_is_left_to_a_person() -> None:
    for engine, words in (
        (dataclasses.replace(ENGINE, version="20.10.24"), "23.0 or later"),
        (dataclasses.replace(ENGINE, kind="Podman", version="4.2.0", store="podman"), "Podman 4.2.0"),
    ):
        for buildx in (None, "0.13.1"):  # to install one would help nothing
            value = plan(change(READY, engine=engine, buildx=buildx))
            assert value.steps == ()
            assert value.problem
            assert words in value.problem.reason
            assert value.problem.remedy


def test_a_context_without_an_address_is_reported_without_start() -> None:
    value = plan(change(STOPPED, unknown_address="There is no docker context 'x'."))
    assert value.steps == ()
    assert value.problem
    assert value.problem.reason == "There is no docker context 'x'."
    assert "DOCKER_CONTEXT" in value.problem.remedy


def test_check_shows_the_words_that_commands_are_refused_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = dataclasses.replace(ENGINE, kind="Podman", version="5.8.6", store="podman", no_bootstrap=NO_UIDMAP)
    host = change(READY, engine=engine)
    setup._report(host, plan(host), PATHS, arguments(tmp_path))
    rows, expected = capsys.readouterr(), [problem for need in Need for problem in problems(engine, need)]
    assert len(expected) == 2
    assert all(problem.reason.split("(")[0] in " ".join(rows.err.split()) for problem in expected)
    assert engine.text in rows.out
    setup._report(host, plan(host), PATHS, arguments(tmp_path, form="json"))
    facts = json.loads(capsys.readouterr().out)
    assert [one["problem"] for one in facts["commands"] if one["problem"]] == [one.reason for one in expected]
    assert [facts["engine"][name] for name in ("kind", "endpoint", "remote")] == ["Podman", DEFAULT.host, False]


def test_an_engine_by_hand_takes_over_registries_and_gpus() -> None:
    daemon_json = json.dumps(
        {
            "registry-mirrors": ["https://mirror.example"],
            "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}},
            "features": {"cdi": True, "containerd-snapshotter": False},
            "data-root": "/srv/docker",
            "hosts": ["tcp://0.0.0.0:2375"],
            "storage-driver": "overlay2",
        }
    )
    assert json.loads(engine_config(daemon_json)) == {
        "registry-mirrors": ["https://mirror.example"],
        "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}},
        "features": {"cdi": True, "containerd-snapshotter": True},
    }


@pytest.mark.parametrize("broken", ["{", "[]", '"text"', '{"features": []}', '{"features": null}'])
def test_a_broken_daemon_json_is_named(broken: str) -> None:
    with pytest.raises(SetupError, match=r"/etc/docker/daemon\.json"):
        engine_config(broken)


def test_one_variable_puts_the_whole_engine_into_one_folder() -> None:
    paths = EnginePaths.from_env({"TORCHBAKE_ENGINE_DIR": "/srv/tb"})
    places = (
        paths.socket,
        paths.data_root,
        paths.exec_root,
        paths.pidfile,
        paths.config,
        paths.units,
        paths.log,
    )
    assert all(place.is_relative_to("/srv/tb") for place in places)
    assert EnginePaths.from_env({}) == EnginePaths() == EnginePaths.from_env({"TORCHBAKE_ENGINE_DIR": ""})


@pytest.mark.parametrize("folder", ["relative/folder", "/" + "x" * 80, "/" + "ü" * 40])
def test_a_folder_that_cannot_hold_an_engine_is_refused(folder: str) -> None:
    with pytest.raises(UsageError, match="TORCHBAKE_ENGINE_DIR"):
        EnginePaths.from_env({"TORCHBAKE_ENGINE_DIR": folder})


def test_a_failed_install_shows_what_apt_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def apt(*words: str) -> "subprocess.CompletedProcess[str]":
        output = "W: no route to mirror.example" if words == ("update",) else "E: Unable to locate package docker.io"
        return subprocess.CompletedProcess(words, 0 if words == ("update",) else 100, stdout=output)

    monkeypatch.setattr(setup, "_apt", apt)
    with pytest.raises(SetupError, match=r"no route to mirror\.example\n.*Unable to locate package docker\.io"):
        setup._install(("docker.io",))


ARM = ("linux/arm64",)


def test_qemu_is_installed_on_ready_and_on_bare_machines() -> None:
    """Debian 12's own qemu does not start images, so it comes from trixie."""
    assert plan(READY).ready
    item = plan(change(READY, foreign=ARM, trixie_known=True))
    assert "linux/arm64" in str(item.problem)
    qemu = ("qemu-user/trixie", "qemu-user-binfmt/trixie")
    assert item.steps == (Install(packages=qemu), RegisterEmulation(platforms=ARM))
    assert hosts.TRIXIE_SOURCE in write(change(READY, foreign=ARM))
    assert packages(change(BARE12, foreign=ARM)) == (*packages(BARE12), *qemu)
    assert plan(change(BARE12, foreign=ARM)).steps[-1] == RegisterEmulation(platforms=ARM)


def test_systemd_registers_qemu_by_the_package_alone() -> None:
    trixie = change(READY, release="13", foreign=ARM, systemd=True)
    assert plan(trixie).steps == (Install(packages=("qemu-user", "qemu-user-binfmt")),)
    ubuntu = change(trixie, distro="ubuntu", release="24.04", installed=frozenset({"docker.io"}))
    assert plan(ubuntu).steps == (Install(packages=("qemu-user-static",)),)


@pytest.mark.parametrize(
    "facts",
    [
        {"engine": dataclasses.replace(ENGINE, address=Address(host="ssh://far", origin="DOCKER_HOST"))},
        {"distro": "fedora"},
        {"root": "no"},
    ],
    ids=["a remote engine", "another distribution", "no rights"],
)
def test_a_person_registers_qemu_where_setup_cannot(facts: dict[str, Any]) -> None:
    item = plan(change(READY, foreign=ARM, **facts))
    assert item.steps == ()
    assert item.problem
    assert item.problem.remedy


def test_a_report_names_platforms_of_the_matrix_that_do_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "matrix.yaml").write_text(SMALL.replace("  cudnn: 9\n", "  platforms: [linux/amd64, linux/arm64]\n"))
    for foreign in (True, False):
        monkeypatch.setattr(setup, "runs", lambda platform, foreign=foreign: not foreign or platform == "linux/amd64")
        setup._report(READY, plan(READY), PATHS, arguments(tmp_path))
        assert ("images for linux/arm64" in capsys.readouterr().err) is foreign


def test_platforms_of_locked_packages_are_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "host_platform", lambda: "linux/amd64")
    both = SMALL.replace("  cudnn: 9\n", "  platforms: [linux/amd64, linux/arm64]\n")
    (tmp_path / "matrix.yaml").write_text(both)
    (tmp_path / "images").mkdir()
    for name, foreign in (("none", ()), ("debian12.lock", ()), ("debian12-arm64.lock", ARM)):
        (tmp_path / "images" / name).touch()
        assert setup._platforms(arguments(tmp_path, platform="locked")) == foreign
        assert setup._platforms(arguments(tmp_path)) == ()
    assert setup._platforms(arguments(tmp_path / "none", platform="linux/arm64")) == ARM
    with pytest.raises(MatrixError):
        setup._platforms(arguments(tmp_path / "none", platform="locked"))
