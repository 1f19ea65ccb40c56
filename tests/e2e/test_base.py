"""Bases: pulled from a real registry and pinned by digest, or bootstrapped reproducibly."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from tests.e2e import registries
from tests.e2e.conftest import INIT, ROOT, images_of, torchbake
from tests.e2e.pushed_bases import push_base
from torchbake.errors import RegistryError
from torchbake.oci.labels import INPUTS

pytestmark = pytest.mark.build

Project = Callable[..., Path]
ROWS = (
    "rows:\n  - {torch: 2.13.0, accelerator: cpu, base: debian12}\n"
    "init:\n  volume-permissions: {version: 1.0.0, base: debian12}\n"
)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The ``host:port`` of a real registry on a free loopback port."""
    with registries.registry(ROOT / ".torchbake/tools", tmp_path_factory.mktemp("registry")) as running:
        yield running.host


def test_a_registry_base_is_pinned_by_digest(project: Project, registry: str, engine: docker.DockerClient) -> None:
    path = project(ROWS, repository="torchbake-test/registry/pytorch")
    (path.parent / ".torchbake/bases").unlink()
    image = f"{registry}/debian:bookworm-slim"
    digest = push_base(image)
    path.write_text(path.read_text().replace("debian:bookworm-slim", image))
    process = torchbake("base", INIT, "--source", "registry", "--matrix", str(path))
    assert process.returncode == 0, process.stderr
    assert f"{image}@{digest}" in process.stderr
    built = images_of(torchbake("build", INIT, "--matrix", str(path), "--format", "json"))[INIT]
    assert built["status"] == "built"
    record = json.loads((path.parent / ".torchbake/bases/debian12.json").read_text())
    assert (record["source"], record["digest"]) == ("registry", digest)


@pytest.mark.long  # the tests around it build on a digest, too
def test_a_base_by_its_digest_is_the_one_that_is_built_on(
    project: Project, registry: str, engine: docker.DockerClient
) -> None:
    path = project(ROWS, repository="torchbake-test/digest/pytorch")
    (path.parent / ".torchbake/bases").unlink()
    image = f"{registry}/pinned/debian"
    digest = push_base(f"{image}:12")
    push_base(f"{image}:12", "LABEL test=newer\n")  # the tag moves
    matrix = path.read_text()
    for name in (f"{image}@{digest}", f"{image}:12@{digest}"):
        path.write_text(matrix.replace("debian:bookworm-slim", name))
        built = images_of(torchbake("build", INIT, "--matrix", str(path), "--format", "json"))[INIT]
        assert built["status"] == "built", built
        record = json.loads((path.parent / ".torchbake/bases/debian12.json").read_text())
        assert (record["source"], record["digest"]) == ("registry", digest)
        assert f"FROM {name} AS base" in (path.parent / f"images/{INIT}/Dockerfile").read_text()
        by_hand(path.parent)
    assert (
        images_of(torchbake("build", INIT, "--matrix", str(path), "--format", "json"))[INIT]["status"] == "up-to-date"
    )
    wrong = f"{image}@sha256:{'0' * 64}"
    path.write_text(matrix.replace("debian:bookworm-slim", wrong))
    process = torchbake("build", INIT, "--matrix", str(path))
    assert process.returncode == 8, process.stderr
    assert f"{wrong} is not available from its registry" in process.stderr
    assert "Check the digest" in process.stderr


def by_hand(root: Path) -> None:
    """Build the first stage of an image's Dockerfile by docker alone."""
    command = ["docker", "build", "-q", "-f", f"images/{INIT}/Dockerfile", "--target", "base", "."]
    subprocess.run(command, cwd=root, check=True, capture_output=True)


def test_a_pushed_base_serves_machines_without_mmdebstrap(
    project: Project, registry: str, engine: docker.DockerClient, bases: Path, tmp_path: Path
) -> None:
    """Another machine gets the lock of the bases alone."""
    if json.loads((bases / "debian12.json").read_text())["source"] != "bootstrap":
        pytest.fail("this test needs a bootstrapped base: run it where no registry serves debian")
    path, other = project(ROWS, repository="torchbake-test/pusher/pytorch"), tmp_path / "fleet/matrix.yaml"
    matrix = ("--matrix", str(path))
    pushed = torchbake("base", INIT, "--push", f"{registry}/team", "--format", "json", *matrix)
    assert pushed.returncode == 0, pushed.stderr
    base = json.loads(pushed.stdout)["bases"]["debian12"]
    digest = json.loads((bases / "debian12.json").read_text())["digest"]
    assert base["digest"] == digest
    assert base["image"] == f"{registry}/team/debian12:bookworm-{digest[7:19]}@{digest}"
    again = torchbake("base", INIT, "--push", f"{registry}/team", *matrix)
    assert "(0 B sent)" in again.stderr, again.stderr
    first = images_of(torchbake("build", INIT, "--format", "json", *matrix))[INIT]

    (other.parent / "images").mkdir(parents=True)
    other.write_text(path.read_text().replace("test/pusher/", "test/fleet/"))
    shutil.copyfile(path.parent / "images/bases.lock", other.parent / "images/bases.lock")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "mmdebstrap").write_text("#!/bin/sh\nexit 1\n")
    (tools / "mmdebstrap").chmod(0o755)
    process = torchbake(
        "build", INIT, "--matrix", str(other), "--format", "json", env={"PATH": f"{tools}:{os.environ['PATH']}"}
    )
    second = images_of(process)[INIT]
    assert second["status"] == "built", process.stderr
    one, two = (engine.images.get(built["ref"]) for built in (first, second))
    assert (two.labels[INPUTS], two.attrs["RootFS"]) == (one.labels[INPUTS], one.attrs["RootFS"]), "one base, one image"
    record = json.loads((other.parent / ".torchbake/bases/debian12.json").read_text())
    assert (record["source"], record["image"]) == ("registry", base["image"])
    other.write_text(other.read_text().replace('python: "3.11"', 'python: "3.12"'))
    process = torchbake("list", "all", "--matrix", str(other))
    assert process.returncode != 0
    assert "debian12 is of Python 3.11, and the matrix says Python 3.12" in process.stderr


def test_a_push_without_the_right_names_the_repository(project: Project, bases: Path, tmp_path: Path) -> None:
    path = project(ROWS)
    with registries.registry(ROOT / ".torchbake/tools", tmp_path / "registry", login=True) as running:
        process = torchbake("base", INIT, "--push", f"{running.host}/team", "--matrix", str(path))
    assert process.returncode == RegistryError.exit_code, process.stderr
    assert f"{running.host}/team/debian12 does not take it" in process.stderr
    assert f"docker login {running.host}" in process.stderr
    assert not (path.parent / "images/bases.lock").exists()


# A docker command whose engine says that it has a mirror.
MIRRORED = """\
#!{python}
import json, os, subprocess, sys
if sys.argv[1:2] != ["info"]:
    os.execv({docker!r}, [{docker!r}, *sys.argv[1:]])
info = json.loads(subprocess.run([{docker!r}, *sys.argv[1:]], capture_output=True, check=True).stdout)
info["RegistryConfig"]["IndexConfigs"]["docker.io"]["Mirrors"] = ["http://127.0.0.1:1/", "http://{mirror}/"]
print(json.dumps(info))
"""


def test_a_mirror_of_the_engine_serves_a_base_of_its_hub(project: Project, registry: str, tmp_path: Path) -> None:
    path = project(ROWS)
    (path.parent / ".torchbake/bases").unlink()
    digest = push_base(f"{registry}/library/debian:bookworm-slim")
    command = tmp_path / "bin/docker"
    command.parent.mkdir()
    command.write_text(MIRRORED.format(python=sys.executable, docker=str(shutil.which("docker")), mirror=registry))
    command.chmod(0o755)
    environment = {"PATH": f"{command.parent}:{os.environ['PATH']}"}
    process = torchbake("base", INIT, "--source", "registry", "--matrix", str(path), env=environment)
    assert process.returncode == 0, process.stderr
    assert "127.0.0.1:1 does not serve it" in process.stderr
    assert f"debian:bookworm-slim@{digest} from the engine's mirror {registry}" in process.stderr
    record = json.loads((path.parent / ".torchbake/bases/debian12.json").read_text())
    assert (record["source"], record["image"], record["digest"]) == ("registry", "debian:bookworm-slim", digest)


def test_a_registry_that_does_not_have_it_is_a_clear_error(project: Project, registry: str) -> None:
    path = project(ROWS)
    path.write_text(path.read_text().replace("debian:bookworm-slim", f"{registry}/no/such:image"))
    process = torchbake("base", INIT, "--source", "registry", "--refresh", "--matrix", str(path))
    assert process.returncode == 8
    assert "--source bootstrap" in process.stderr


@pytest.mark.long  # test_debian_lock.py bootstraps the same base, every night too; each run bootstraps one
def test_a_base_is_the_same_whoever_bootstraps_it(project: Project, bases: Path) -> None:
    """The umask of this process, and the owner of a file of this host, were those of apt's sources in the base."""
    path = project(ROWS)
    (path.parent / ".torchbake/bases").unlink()
    words = ["base", INIT, "--source", "bootstrap", "--refresh", "--matrix", str(path)]
    first = json.loads((bases / "debian12.json").read_text())
    digests = {first["digest"]} if first["source"] == "bootstrap" else set[str]()
    for mask in ("022", "077")[len(digests) :]:
        command = ["sh", "-c", f'umask {mask}; exec "$@"', "sh", sys.executable, "-m", "torchbake", *words]
        subprocess.run(command, cwd=ROOT, check=True)
        digests.add(json.loads((path.parent / ".torchbake/bases/debian12.json").read_text())["digest"])
    assert len(digests) == 1
    assert _apt_sources(path.parent / ".torchbake/bases/debian12") == ["debian.sources"]  # none of the host's mirrors


def _apt_sources(layout: Path) -> list[str]:
    """Return the names of apt's source files in a base with one layer."""
    index = json.loads((layout / "index.json").read_text())
    blobs = layout / "blobs/sha256"
    manifest = json.loads((blobs / index["manifests"][0]["digest"].removeprefix("sha256:")).read_text())
    layer = blobs / manifest["layers"][0]["digest"].removeprefix("sha256:")
    listed = subprocess.run(["tar", "--zstd", "-tf", str(layer)], capture_output=True, text=True, check=True).stdout
    return [Path(name).name for name in listed.splitlines() if "/apt/sources.list" in name and not name.endswith("/")]


def test_without_mmdebstrap_and_registry_the_error_names_both(project: Project, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    path = project(ROWS)
    path.write_text(path.read_text().replace("debian:bookworm-slim", "127.0.0.1:1/debian:bookworm-slim"))
    process = torchbake("base", INIT, "--refresh", "--matrix", str(path), env={"PATH": str(tools)})
    assert process.returncode == 8
    assert "mmdebstrap" in process.stderr
    assert "registry" in process.stderr
