"""A row for two platforms: real builds of both on this machine, and containers of both.

The wheels of torch are small ones of this test's own. All else is real: bases, apt, and MarkupSafe's wheels from PyPI.
"""

import json
import os
from pathlib import Path

import docker
import pytest

from tests.e2e.conftest import images_of, torchbake
from tests.e2e.containers import output_of
from tests.wheels import write_wheel
from torchbake.engine.emulation import runs
from torchbake.store.layout import Layout

pytestmark = [
    pytest.mark.build,
    pytest.mark.long,
    pytest.mark.skipif(not runs("linux/arm64"), reason="not run: no qemu: torchbake setup --platform linux/arm64"),
]

REPOSITORY = "torchbake-test/arm64/pytorch"
AMD64 = "2.99.0-cpu-runtime-debian12"
ARM64 = f"{AMD64}-arm64"
MATRIX = f"""\
repository: {REPOSITORY}
defaults:
  {{constraints: false, compiler: false, packages: {{pip: [markupsafe]}}, platforms: [linux/amd64, linux/arm64]}}
bases: {{debian12: {{image: "debian:bookworm-slim", suite: bookworm, python: "3.11"}}}}
flavors: {{runtime: {{}}}}
rows: [{{torch: 2.99.0, accelerator: cpu, base: debian12}}]
tags: {{defaults: {{accelerator: cpu, base: debian12}}, rolling: [latest]}}
"""
# Bytecode of torch; entries of the wheels; the user; the toolbox.
SHARED = 4
LOOK = """\
import importlib.metadata, platform, sys, torch, markupsafe._speedups
print(platform.machine(), torch.__version__, torch.__cached__, importlib.metadata.version("torch"))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, bases: Path) -> tuple[Layout, dict[str, str]]:
    """The layout of both images, and the name of each in the engine by its id."""
    folder, wheels = tmp_path_factory.mktemp("arm64"), tmp_path_factory.mktemp("wheels")
    (folder / ".torchbake").mkdir()
    (folder / ".torchbake/bases").symlink_to(bases)
    (folder / "matrix.yaml").write_text(MATRIX)
    files = {"torch/__init__.py": b"__version__ = '2.99.0'\n", "torch/nn/__init__.py": b"class Module: pass\n"}
    write_wheel(wheels, "torch", "2.99.0+cpu", files, tag="cp311-cp311-manylinux_2_28_x86_64")
    write_wheel(wheels, "torch", "2.99.0", files, tag="cp311-cp311-manylinux_2_28_aarch64")
    links = " ".join((os.environ.get("PIP_FIND_LINKS", ""), str(wheels))).strip()
    env = {"PIP_FIND_LINKS": links, "TORCHBAKE_LAYERS": str(folder / "layers")}
    process = torchbake("build", "all", "--matrix", str(folder / "matrix.yaml"), "--format", "json", env=env)
    assert process.returncode == 0, process.stderr
    return Layout(folder=folder / ".torchbake/layout"), {name: one["ref"] for name, one in images_of(process).items()}


def test_an_image_for_arm64_runs_here(built: tuple[Layout, dict[str, str]], engine: docker.DockerClient) -> None:
    names = built[1]
    assert names == {AMD64: f"{REPOSITORY}:{AMD64}", ARM64: f"{REPOSITORY}:{ARM64}"}
    for name, machine in ((AMD64, "x86_64"), (ARM64, "aarch64")):
        platform = "linux/arm64" if name == ARM64 else "linux/amd64"
        output = output_of(engine, names[name], ["python", "-c", LOOK], platform=platform)
        version = "2.99.0" if name == ARM64 else "2.99.0+cpu"
        assert output.split() == [machine, "2.99.0", "/pytorch/torch/__pycache__/__init__.cpython-311.pyc", version]
    tags = {tag for name in names.values() for tag in engine.images.get(name).tags}
    assert tags == {f"{REPOSITORY}:{tag}" for tag in (AMD64, ARM64, "latest", "latest-arm64")}


def test_two_platforms_share_layers_without_machine_code(built: tuple[Layout, dict[str, str]]) -> None:
    layout, names = built
    layers = dict[str, dict[str, str]]()
    index = json.loads((layout.folder / "index.json").read_text())["manifests"]
    for manifest in (layout.get(entry["digest"]) for entry in index):
        config = json.loads(layout.path(manifest.config.digest).read_bytes())
        steps = [step["created_by"] for step in config["history"] if not step.get("empty_layer")]
        layers[config["architecture"]] = dict(zip((blob.digest for blob in manifest.layers), steps, strict=True))
    assert layers.keys() == {"amd64", "arm64"}
    common = layers["amd64"].keys() & layers["arm64"].keys()
    print("shared:", *sorted(layers["amd64"][digest] for digest in common), sep="\n  ")
    assert len(common) >= SHARED
    assert any("/bytecode/torch" in layers["amd64"][digest] for digest in common)
    assert len(names) == 2
