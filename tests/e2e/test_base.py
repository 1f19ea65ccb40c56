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
    digest = _push_base(image)
    path.write_text(path.read_text().replace("debian:bookworm-slim", image))
    process = torchbake("base", INIT, "--source", "registry", "--matrix", str(path))
    assert process.returncode == 0, process.stderr
    assert f"{image}@{digest}" in process.stderr
    built = images_of(torchbake("build", INIT, "--matrix", str(path), "--format", "json"))[INIT]
    assert built["status"] == "built"
    record = json.loads((path.parent / ".torchbake/bases/debian12.json").read_text())
    assert (record["source"], record["digest"]) == ("registry", digest)


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
    digest = _push_base(f"{registry}/library/debian:bookworm-slim")
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


def _push_base(image: str) -> str:
    """Push the base of the tests as ``image``, and return its digest in the registry."""
    base = json.loads((ROOT / ".torchbake/bases/debian12.json").read_text())
    name = base["image"]
    context = [] if base["source"] == "registry" else [
        "--build-context", f"{name}=oci-layout://{ROOT}/.torchbake/bases/debian12@{base['digest']}"
    ]  # fmt: skip
    command = ["docker", "build", *context, "--provenance=false", "-t", image, "-"]
    subprocess.run(command, input=f"FROM {name}\nLABEL test=registry\n", text=True, check=True, capture_output=True)
    subprocess.run(["docker", "push", "-q", image], check=True, capture_output=True)
    inspect = ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{json .Manifest}}"]
    return str(json.loads(subprocess.run(inspect, capture_output=True, check=True).stdout)["digest"])
