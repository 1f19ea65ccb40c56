"""Layers that are packed beside BuildKit: the same files as by hand, shared by images, whole after any end of a run.

The wheels are small ones of this test's own, so that a build takes seconds; all else is real.
"""

import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.e2e.conftest import ROOT, Completed, container_of, images_of, torchbake
from tests.e2e.waiting import until
from tests.libraries import library
from tests.unit.layouts import damage
from tests.wheels import write_wheel
from torchbake.errors import UsageError
from torchbake.oci.labels import SOURCE
from torchbake.store.layout import Layout

pytestmark = pytest.mark.build

RUNTIME, DEVEL = (f"2.99.0-cuda12.8-cudnn9-{flavor}-debian12" for flavor in ("runtime", "devel"))
OTHERS = {f"{version}-cuda12.8-cudnn9-devel-debian12": version for version in ("2.97.0", "2.98.0")}
MATRIX = """\
defaults: {cudnn: 9, constraints: false, compiler: false}
flavors: {runtime: {}, devel: {headers: true}}
rows:
  - {torch: 2.99.0, accelerator: cuda12.8, base: debian12, flavor: [runtime, devel]}
  - {torch: 2.98.0, accelerator: cuda12.8, base: debian12, flavor: devel}
  - {torch: 2.97.0, accelerator: cuda12.8, base: debian12, flavor: devel}
"""
NVIDIA = {
    "nvidia-cublas-cu12": "12.8.4.99",
    "nvidia-cuda-runtime-cu12": "12.8.99",
    "nvidia-cudnn-cu12": "9.99.0.1",
    "nvidia-nccl-cu12": "2.99.3",
}

PACKED = len(NVIDIA) + 4  # torch, triton and their bytecode


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stack(tmp_path_factory.mktemp("wheels"))


def write_stack(folder: Path) -> Path:
    """Write a folder of wheels: torch, which has a module, a program and a header, and the packages that it needs."""
    whole = library()
    for name, version in NVIDIA.items():
        part = name.removeprefix("nvidia-").removesuffix("-cu12").replace("-", "_")
        write_wheel(
            folder, name, version,
            {
                "nvidia/__init__.py": b"",
                f"nvidia/{part}/lib/lib{part}.so.12": whole + os.urandom(4_000_000),
                f"nvidia/{part}/include/{part}.h": b"#pragma once\n",
            },
        )  # fmt: skip
    nvidia = [f"{name}=={version}" for name, version in NVIDIA.items()]
    write_wheel(folder, "torch", "2.99.0", torch_files("2.99.0", whole), needs=["triton==3.99.0", *nvidia])
    for version in OTHERS.values():
        write_wheel(folder, "torch", version, torch_files(version, whole), needs=nvidia)
    triton = {"triton/__init__.py": b"__version__ = '3.99.0'\n", "triton/_C/libtriton.so": whole}
    write_wheel(folder, "triton", "3.99.0", triton)
    return folder


def torch_files(version: str, whole: bytes) -> dict[str, bytes]:
    """Return the files of a torch wheel. Each file has the same size in all versions."""
    return {
        "torch/__init__.py": f"__version__ = '{version}'\n".encode(),
        "torch/run.py": b"def main():\n    print('run')\n",
        "torch/lib/libtorch.so": whole,
        "torch/include/ATen/ops/add.h": f"#pragma once // {version}\n".encode(),
        f"torch-{version}.dist-info/entry_points.txt": b"[console_scripts]\ntorchrun = torch.run:main\n",
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, wheels: Path, bases: Path) -> "Site":
    return make_site(tmp_path_factory.mktemp("layers"), wheels, bases)


def make_site(folder: Path, wheels: Path, bases: Path, name: str = "layers") -> "Site":
    """Write a project of these wheels, and lock it. Sites that are used at the same time have different names."""
    (folder / ".torchbake").mkdir()
    (folder / ".torchbake/bases").symlink_to(bases)
    head = {
        "repository": f"torchbake-test/{name}/pytorch",
        "source": address_of(name),
        "bases": {"debian12": {"image": "debian:bookworm-slim", "suite": "bookworm", "python": "3.11"}},
        "tags": {"defaults": {"accelerator": "cuda12.8", "base": "debian12"}, "rolling": ["{torch}-{cuda}"]},
    }
    lines = [f"{key}: {json.dumps(value)}" for key, value in head.items()]
    (folder / "matrix.yaml").write_text("\n".join([*lines, MATRIX]))
    site = Site(folder, wheels, name)
    process = torchbake("lock", "all", *site.words, env=site.env)
    assert process.returncode == 0, process.stderr
    return site


def address_of(name: str) -> str:
    """Return the address that labels of a site's images have, so that they are known without a name."""
    return f"https://example.com/torchbake-test/{name}"


class Site:
    """A separate project with a separate store of layers."""

    def __init__(self, folder: Path, wheels: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.store = folder / "cache/torchbake/layers"
        links = " ".join((os.environ.get("PIP_FIND_LINKS", ""), str(wheels))).strip()
        self.env = {"PIP_FIND_LINKS": links, "TORCHBAKE_LAYERS": str(self.store)}

    @property
    def words(self) -> tuple[str, ...]:
        return ("--matrix", str(self.folder / "matrix.yaml"))

    def build(self, *words: str, **env: str) -> Completed:
        return torchbake("build", *words, *self.words, "--format", "json", env={**self.env, **env})

    def built(self, name: str, *words: str) -> dict[str, Any]:
        process = self.build(name, *words)
        assert process.returncode == 0, process.stderr
        return images_of(process)[name]

    def forget(self) -> None:
        """Remove all images of this site from the engine, those without a name too."""
        label = f"label={SOURCE}={address_of(self.name)}"
        command = ["docker", "image", "ls", "--all", "--quiet", "--no-trunc", "--filter", label]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
        for image in {*process.stdout.split()}:
            subprocess.run(["docker", "image", "rm", "--force", image], capture_output=True, check=False)

    def blobs(self) -> list[Path]:
        return list((self.store / "blobs/sha256").iterdir()) if self.store.exists() else []

    def steps(self) -> set[str]:
        """The names of blobs that are layers of steps, and of no wheel."""
        records = [json.loads(path.read_text()) for path in (self.store / "wheels").glob("*.json")]
        matches = [record["layer"]["blob"]["digest"] for record in records if not record["names"]]
        return {digest.removeprefix("sha256:") for digest in matches}

    def keep(self) -> dict[str, int]:
        """The layers of wheels that the store says it has, by their digests, and their sizes."""
        records = [json.loads(path.read_text()) for path in (self.store / "wheels").glob("*.json")]
        records = [record for record in records if record["names"]]  # a step of a Dockerfile has none
        return {record["layer"]["blob"]["digest"]: record["layer"]["blob"]["size"] for record in records}


@pytest.fixture
def empty(site: Site) -> Site:
    """A machine that has packed nothing, and an engine without these images."""
    shutil.rmtree(site.store, ignore_errors=True)
    site.forget()
    return site


def layers_of(engine: docker.DockerClient, image: dict[str, Any]) -> list[str]:
    layers: list[str] = engine.images.get(image["digest"]).attrs["RootFS"]["Layers"]
    return layers


def tree_of(engine: docker.DockerClient, ref: str) -> dict[str, tuple[Any, ...]]:
    """Return type, mode, owner and content or link target of each file in an image's wheel folders and environment."""
    matches: dict[str, tuple[Any, ...]] = {}
    with container_of(engine, ref) as container:
        for place in ("/nvidia", "/pytorch", "/opt/venv"):
            pieces, _ = engine.api.get_archive(container, place)
            with tarfile.open(fileobj=_Pieces(pieces), mode="r|") as archive:  # type: ignore[call-overload]
                for member in archive:
                    file = archive.extractfile(member) if member.isreg() else None
                    content = file.read() if file else member.linkname
                    matches[f"{place}:{member.name}"] = (member.type, member.mode, member.uid, member.gid, content)
    return matches


class _Pieces:
    """The engine's stream of bytes as a readable file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def read(self, size: int) -> bytes:
        while len(self._rest) < size and (piece := next(self._pieces, b"")):
            self._rest += piece
        whole, self._rest = self._rest[:size], self._rest[size:]
        return whole


def steps_of(site: Site, image: dict[str, Any]) -> dict[str, str]:
    """Return the layers of a built image by their diff IDs, each with the step that made it."""
    layout = Layout(folder=site.folder / ".torchbake/layout")
    config = json.loads(layout.path(layout.get(image["digest"]).config.digest).read_text())
    steps = [step["created_by"] for step in config["history"] if not step.get("empty_layer")]
    return dict(zip(config["rootfs"]["diff_ids"], steps, strict=True))


def trees_of(engine: docker.DockerClient, process: Completed) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Return the files of each built image by its id."""
    assert process.returncode == 0, process.stderr
    return {name: tree_of(engine, image["digest"]) for name, image in images_of(process).items()}


def test_files_of_equal_size_and_time_keep_their_own_content(empty: Site, engine: docker.DockerClient) -> None:
    for name, version in OTHERS.items():
        files = tree_of(engine, empty.built(name)["digest"])
        for path in ("torch/__init__.py", "torch/__pycache__/__init__.cpython-311.pyc", "torch/include/ATen/ops/add.h"):
            assert version.encode() in files[f"/pytorch:pytorch/{path}"][-1], path


@pytest.mark.long  # tests/e2e/test_layers_from.py builds such an image of nothing again
def test_it_is_the_same_from_nothing_twice(site: Site) -> None:
    """With all kinds of layers: packages of Debian's, wheels packed here and inside of the build, bytecode."""
    matrix = site.folder / "matrix.yaml"
    text = matrix.read_text()
    matrix.write_text(text.replace("defaults: {", "defaults: {packages: {apt: [tree]}, "))
    process = torchbake("reproduce", RUNTIME, *site.words, "--format", "json", env=site.env)
    matrix.write_text(text)
    assert process.returncode == 0, process.stderr
    (value,) = json.loads(process.stdout)["images"]
    assert value["comparison"]["differences"] == []
    assert value["comparison"]["equal"] == value["comparison"]["layers"] > PACKED + 1


def test_what_images_have_in_common_is_lowest_and_packed_once(empty: Site, engine: docker.DockerClient) -> None:
    first = layers_of(engine, empty.built(RUNTIME))
    steps = empty.steps()  # packed for each flavor if the layers below them differ
    blobs = {path.name: path.stat().st_ino for path in empty.blobs() if path.name not in steps}
    second = layers_of(engine, empty.built(DEVEL))
    shared = len(NVIDIA) + 5  # torch, triton, their bytecode, and the links to NVIDIA's
    assert first[:shared] == second[:shared]
    after = {path.name: path.stat().st_ino for path in empty.blobs()}
    assert {name: after[name] for name in blobs} == blobs


@pytest.mark.long  # test_reproduce.py has such a build
def test_a_run_killed_while_packing_leaves_no_valid_layer(empty: Site) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "torchbake", "build", RUNTIME, *empty.words],
        cwd=ROOT, env={**os.environ, **empty.env}, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    until(lambda: any(empty.store.glob(".work-*")), 60)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)
    for digest, size in empty.keep().items():
        assert (empty.store / "blobs/sha256" / digest.removeprefix("sha256:")).stat().st_size == size
    empty.built(RUNTIME)
    assert len(empty.keep()) == PACKED
    assert not list(empty.store.glob(".work-*"))


@pytest.mark.long  # tests/unit/store/test_blobs.py has processes that want one layer
def test_two_builds_at_once_share_what_they_pack(empty: Site) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        process = list(pool.map(empty.build, (RUNTIME, DEVEL)))
    assert [each.returncode for each in process] == [0, 0], process[0].stderr + process[1].stderr
    assert len(empty.keep()) == PACKED
    assert not list(empty.store.glob(".work-*"))


@pytest.mark.long  # test_reproduce.py has such a build
def test_a_damaged_layer_is_noticed_and_packed_again(empty: Site, engine: docker.DockerClient) -> None:
    before = empty.built(RUNTIME)
    layers = len(layers_of(engine, before))
    # Of a wheel of this test: the engine may have the layer of a step for another image.
    digest = next(digest for digest, size in empty.keep().items() if size > 1_000_000)
    blob = empty.store / "blobs/sha256" / digest.removeprefix("sha256:")
    sound = blob.read_bytes()
    empty.forget()
    damage(blob, is_seen=False)
    process = empty.build(RUNTIME)
    assert process.returncode == 0, process.stdout + process.stderr
    assert f"{RUNTIME}: packing damaged layers again" in process.stderr
    assert blob.read_bytes() == sound
    assert images_of(process)[RUNTIME]["status"] == "built"
    assert len(layers_of(engine, images_of(process)[RUNTIME])) == layers


def test_layers_above_the_limit_are_removed_after_a_build(empty: Site, engine: docker.DockerClient) -> None:
    process = empty.build(RUNTIME, TORCHBAKE_LAYERS_MAX="0")
    assert process.returncode == 0, process.stderr
    assert (empty.keep(), empty.blobs()) == ({}, [])
    assert len(layers_of(engine, images_of(process)[RUNTIME])) > len(NVIDIA)
    refused = empty.build(DEVEL, TORCHBAKE_LAYERS_MAX="much")
    assert refused.returncode == UsageError.exit_code
    assert "TORCHBAKE_LAYERS_MAX" in refused.stderr


# The tests of templates come last. Their images are based on composed ones, whose layers BuildKit keeps in the engine,
# so that the engine would not read a damaged layer of the store.

# A template with a step that needs torch's program. It copies a file of the project.
TEMPLATE = """\
{% extends "pytorch.Dockerfile.j2" %}
{% block before_user %}COPY src /opt/acme
ENV PATH=/opt/acme:$PATH
RUN command -v torchrun && echo {{ spec.id }} > /opt/acme/id{% endblock %}
"""


@pytest.fixture
def own(empty: Site) -> Iterator[Site]:
    """The project with a template, which the test writes."""
    yield empty
    for name in ("templates", "src"):
        shutil.rmtree(empty.folder / name, ignore_errors=True)


def test_the_files_of_an_own_template_are_packed(
    own: Site, engine: docker.DockerClient, run: Callable[..., str]
) -> None:
    ours = trees_of(engine, own.build(DEVEL))
    for name, content in (
        ("templates/pytorch.Dockerfile.j2", TEMPLATE),
        ("src/acme-info", "#!/bin/sh\ncat /opt/acme/id\n"),
    ):
        (own.folder / name).parent.mkdir()
        (own.folder / name).write_text(content)
    (own.folder / "src/acme-info").chmod(0o755)
    process = own.build(DEVEL)
    theirs = trees_of(engine, process)
    assert theirs.keys() == ours.keys() == {DEVEL}
    for name, files in ours.items():
        assert sorted(files) == sorted(theirs[name]), name
        assert [path for path in files if files[path] != theirs[name][path]] == [], name
        for file in ("libcublas", "libtriton", "run.cpython-311.pyc", "bin/torchrun"):
            assert any(file in path for path in files), (name, file)
        assert run(images_of(process)[name]["ref"], "acme-info") == name
    for text, status in (("#!/bin/sh\ncat /opt/acme/id\n", "up-to-date"), ("#!/bin/sh\n", "planned")):
        (own.folder / "src/acme-info").write_text(text)
        again = images_of(own.build(DEVEL, "--dry-run"))
        assert {image["status"] for image in again.values()} == {status}


def test_a_change_makes_only_layers_that_depend_on_it(own: Site) -> None:
    """Another user, a setting or a block of a template installs no Debian package and packs no wheel again."""
    matrix, template = own.folder / "matrix.yaml", own.folder / "templates/pytorch.Dockerfile.j2"
    text = matrix.read_text()

    def changed(defaults: str = "", block: str = "") -> dict[str, str]:
        """Build the image with these keys and this block, and return its layers with their steps."""
        matrix.write_text(text.replace("defaults: {", f"defaults: {{packages: {{apt: [tree]}}, {defaults}"))
        template.parent.mkdir(exist_ok=True)
        content = f'{{% extends "pytorch.Dockerfile.j2" %}}{{% block before_user %}}\n{block}\n{{% endblock %}}'
        template.write_text(content) if block else shutil.rmtree(template.parent)
        return steps_of(own, own.built(RUNTIME))

    try:
        before, packed = changed(), own.keep()
        assert [step for step in before.values() if "apt-install tree" in step]
        for defaults, block, words in (
            ("user: {uid: 2000}, ", "", "2000"),
            ("env: {A: b}, labels: {com.acme.a: b}, ", "", ""),
            ("labels: {com.acme.a: b}, ", "ENV A=b\nRUN command -v torchrun > /torchrun", "torchrun"),
        ):
            after = changed(defaults, block)
            new = [step for layer, step in after.items() if layer not in before]
            assert len(new) == bool(words), (defaults, block, new)
            assert words in "".join(new)
            assert "apt-install" not in "".join(new)
            assert own.keep() == packed, "a wheel was packed again"
    finally:
        matrix.write_text(text)
