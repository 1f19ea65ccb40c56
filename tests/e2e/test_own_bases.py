"""Bases of one's own: from a registry that wants a login, with a Python of their own, and Ubuntu's.

torch is a stand-in, except in one of the long tests: no index of the tests has one for Ubuntu's own Python.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import registries
from tests.e2e.conftest import INIT, ROOT, images_of, torchbake
from tests.e2e.pushed_bases import push_base
from tests.e2e.registries import NAME, PASSWORD
from tests.e2e.stand_in import torch_wheel
from torchbake.hostconfig.apt_config import read_apt_config
from torchbake.hostconfig.build_secrets import secret_files
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.hostconfig.proxies import proxy_variables
from torchbake.matrix.project import load_project

pytestmark = pytest.mark.build

Run = Callable[..., str]
PACKAGES = ["numpy", "setuptools"]
SHOW = "import sys, numpy, torch; print(torch.__version__, numpy.ones(2).sum(), sys.version_info[:2], sys.base_prefix)"
PYTHON = "/opt/python/bin/python3.11"
# A base with Python under /opt, like an image with a compiled Python. It is Debian's Python, with pip's wheel in
# `ensurepip/_bundled` as in upstream's Python, and it links to the base's libraries. An Ubuntu base has the user
# `ubuntu` with UID 1000, as Ubuntu's published images do: our user has the same UID and another name.
BRINGS = """\
FROM debian:bookworm-slim AS donor
RUN {secrets} apt-get update -q && apt-get install -yq --no-install-recommends python3-venv \\
    && mkdir -p /own/opt/python/bin /own/opt/python/lib /own/usr/share \\
    && cp -a /usr/bin/python3.11 /own/opt/python/bin && cp -a /usr/lib/python3.11 /own/opt/python/lib \\
    && cp -a /usr/share/python-wheels /own/usr/share && rm /own/opt/python/lib/python3.11/sitecustomize.py \\
    && install -D -t /own/opt/python/lib/python3.11/ensurepip/_bundled /usr/share/python-wheels/pip-*.whl
FROM {image}
RUN {secrets} --mount=type=bind,from=layers,source=apt-install,target=/run/apt-install /run/apt-install {libraries}
RUN grep -q ubuntu /etc/os-release && useradd --create-home --uid 1000 ubuntu || true
COPY --from=donor /own /
"""
# The packages that modules of Python's standard library link to.
LIBRARIES = "libbz2-1.0 libexpat1 libffi8 liblzma5 libnsl2 libreadline8 libsqlite3-0 libssl3 libtirpc3 libuuid1 zlib1g"


@dataclass(frozen=True, kw_only=True)
class Project:
    """A matrix with one base and one row, in a separate folder. ``env`` is added to its commands' environment."""

    path: Path
    env: Mapping[str, str]

    def torchbake(self, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        return torchbake(*words, "--matrix", str(self.path), env={**self.env, **env})

    def build(self, name: str, **env: str) -> dict[str, Any]:
        process = self.torchbake("build", name, "--format", "json", **env)
        assert process.returncode == 0, process.stderr
        (image,) = images_of(process).values()
        return image

    @property
    def record(self) -> dict[str, str]:
        (base,) = (self.path.parent / ".torchbake/bases").glob("*.json")
        matches: dict[str, str] = json.loads(base.read_text())
        return matches


def project_in(folder: Path, base: Mapping[str, str], *, env: Mapping[str, str]) -> Project:
    matrix = {
        "repository": "torchbake-test/own-bases/pytorch",
        "bases": {"own": base},
        "defaults": {"compiler": False},
        "flavors": {"runtime": {}},
        "rows": [
            {"torch": "2.13.0", "accelerator": "cpu", "base": "own", "packages": {"pip": ["numpy", "setuptools"]}}
        ],
        "init": {INIT: {"version": "1.0.0", "base": "own"}},
        "tags": {"defaults": {"accelerator": "cpu", "base": "own"}, "rolling": ["{torch}-{family}"]},
    }
    folder.mkdir(exist_ok=True)
    (folder / "matrix.yaml").write_text(json.dumps(matrix))
    return Project(path=folder / "matrix.yaml", env=env)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {"PIP_FIND_LINKS": str(torch_wheel(tmp_path_factory.mktemp("wheels")))}


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real registry that wants a login; ``host:port``."""
    with registries.registry(ROOT / ".torchbake/tools", tmp_path_factory.mktemp("private"), login=True) as running:
        yield running.host


@pytest.fixture(scope="module")
def login(private: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of somebody who has logged in there."""
    env = {"DOCKER_CONFIG": str(tmp_path_factory.mktemp("docker"))}
    command = ["docker", "login", private, "--username", NAME, "--password-stdin"]
    subprocess.run(command, input=PASSWORD, env=os.environ | env, text=True, check=True, capture_output=True)
    return env


def bring(project: Project, image: str, contexts: Mapping[str, str], *, source: str) -> None:
    """Push an image that brings its Python, built by docker on ``source``."""
    spec = load_project(project.path).expansion.specs[0]
    folder = project.path.parent / "brings"
    folder.mkdir()
    with secret_files(read_pip_config(), read_apt_config(), [spec]) as files:
        secrets = {name: path for name, path in files[spec.id].items() if name in ("ca", "apt-conf")}
        mounts = "--mount=type=secret,id=ca --mount=type=secret,id=apt-conf,target=/etc/apt/apt.conf.d/99host"
        (folder / "Dockerfile").write_text(BRINGS.format(image=source, secrets=mounts, libraries=LIBRARIES))
        command = ["docker", "build", "--provenance=false", "--tag", image]
        command += [f"--secret=id={name},src={path}" for name, path in secrets.items()]
        contexts = {**contexts, "layers": str(ROOT / "layers")}
        command += [f"--build-context={name}={context}" for name, context in contexts.items()]
        command += [f"--build-arg={name}" for name in proxy_variables()]
        subprocess.run([*command, folder], check=True, capture_output=True, close_fds=False)
    subprocess.run(["docker", "push", "-q", image], env=os.environ | project.env, check=True, capture_output=True)


def context_of(folder: Path, name: str) -> dict[str, str]:
    """Return the build context that replaces a recorded base's image; none if that comes from a registry."""
    base = json.loads((folder / f"{name}.json").read_text())
    return {} if base["source"] == "registry" else {base["image"]: f"oci-layout://{folder / name}@{base['digest']}"}


@pytest.fixture(scope="module")
def own(
    private: str, login: dict[str, str], wheels: dict[str, str], bases: Path, tmp_path_factory: pytest.TempPathFactory
) -> Project:
    """A project whose base is an image of Debian with a custom Python in the private registry."""
    image = f"{private}/team/python:3.11"
    base = {"image": image, "suite": "bookworm", "python": "3.11", "interpreter": PYTHON}
    project = project_in(tmp_path_factory.mktemp("own"), base, env={**login, **wheels})
    bring(project, image, context_of(bases, "debian12"), source="debian:bookworm-slim")
    return project


@pytest.fixture
def pushed(
    private: str, login: dict[str, str], bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Project:
    """A project whose base is that of the other tests, in the private registry."""
    assert bases.is_dir()
    image = f"{private}/team/debian:12"
    monkeypatch.setenv("DOCKER_CONFIG", login["DOCKER_CONFIG"])
    push_base(image)
    base = {"image": image, "suite": "bookworm", "python": "3.11"}
    return project_in(tmp_path / "project", base, env=login)


def test_a_missing_login_is_one_sentence_without_fallback(pushed: Project, private: str, tmp_path: Path) -> None:
    process = pushed.torchbake("build", INIT, DOCKER_CONFIG=str(tmp_path))
    assert process.returncode == 8
    assert f"own: the registry {private} does not serve {private}/team/debian:12 to you: " in process.stderr
    assert f"next: Log in: docker login {private}; and check that your account may pull it." in process.stderr
    assert "bootstrap" not in process.stderr
    assert not list((pushed.path.parent / ".torchbake/bases").glob("*.json"))
    process = pushed.torchbake("base", "all")
    assert process.returncode == 0, process.stderr
    assert (pushed.record["source"], pushed.record["image"]) == ("registry", f"{private}/team/debian:12")


@pytest.mark.long  # the next test's base takes a minute to make
def test_an_unavailable_python_is_an_error_before_the_build(own: Project, tmp_path: Path) -> None:
    base = json.loads(own.path.read_text())["bases"]["own"] | {"interpreter": "/usr/local/bin/python3.11"}
    process = project_in(tmp_path, base, env=own.env).torchbake("base", "all")
    assert process.returncode == 8
    assert f"{base['image']} has no Python with venv and ensurepip at /usr/local/bin/python3.11." in process.stderr
    assert f"Correct bases.own.interpreter in matrix.yaml: there is {PYTHON}" in process.stderr


@pytest.mark.long
def test_an_image_on_a_private_base_runs_that_bases_python(own: Project, run: Run) -> None:
    image = own.build("2.13.0")
    assert (own.record["source"], own.record["python"]) == ("registry", "3.11")
    assert run(image["ref"], "python", "-c", SHOW) == "2.13.0+cpu 2.0 (3, 11) /opt/python"
    assert run(image["ref"], "sh", "-c", "ls /usr/bin/python3* 2>/dev/null || true") == "", "Debian's came with nothing"
    # Debian 12's pip is too old for Python 3.12.
    assert " from /opt/python/lib/python3.11/ensurepip/" in run(image["ref"], "pip", "--version")


@pytest.fixture(scope="module")
def ubuntu(wheels: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project on Ubuntu 24.04, which has been bootstrapped."""
    if not shutil.which("mmdebstrap"):
        pytest.skip("not run: mmdebstrap makes the base; apt has it")
    base = {"image": "ubuntu:24.04", "distribution": "ubuntu", "suite": "noble", "python": "3.12"}
    project = project_in(tmp_path_factory.mktemp("ubuntu"), base, env=wheels)
    process = project.torchbake("base", "all", "--source", "bootstrap")
    assert process.returncode == 0, process.stderr
    return project


@pytest.mark.long
def test_ubuntu_is_bootstrapped_and_its_image_has_its_python(ubuntu: Project, run: Run) -> None:
    assert ubuntu.record["python"] == "3.12"
    image = ubuntu.build("2.13.0")
    assert run(image["ref"], "python", "-c", SHOW) == "2.13.0+cpu 2.0 (3, 12) /usr"
    assert run(image["ref"], "sh", "-c", "cd /etc/apt && find . -name '*.sources' -size +0") == (
        "./sources.list.d/ubuntu.sources"
    )
    assert "Ubuntu 24.04" in run(image["ref"], "cat", "/etc/os-release")


@pytest.mark.long
def test_an_image_on_ubuntu_with_real_torch_passes_its_checks(
    ubuntu: Project, private: str, login: dict[str, str], bases: Path, tmp_path: Path
) -> None:
    """torch for Python 3.11, which a base in a private registry brings to Ubuntu 24.04; uid 1000 is ours."""
    image = f"{private}/team/ubuntu-python:3.11"
    base = {"image": image, "distribution": "ubuntu", "suite": "noble", "python": "3.11", "interpreter": PYTHON}
    project = project_in(tmp_path / "project", base, env=login)
    defaults = {"compiler": False, "user": {"uid": 1000}}  # this Python has no headers
    matrix = json.loads(project.path.read_text()) | {"defaults": defaults}
    project.path.write_text(json.dumps(matrix | {"indexes": load_project(ROOT / "matrix.yaml").matrix.indexes}))
    contexts = context_of(bases, "debian12") | context_of(ubuntu.path.parent / ".torchbake/bases", "own")
    bring(project, image, contexts, source="ubuntu:24.04")
    process = project.torchbake("build", "all")
    assert process.returncode == 0, process.stderr
    process = project.torchbake("test", "all", "--format", "json")
    failed = [
        (check["id"], check["reason"])
        for value in json.loads(process.stdout)["images"]
        for check in value["checks"]
        if check["outcome"] == "failed"
    ]
    assert (process.returncode, failed) == (0, []), process.stderr
