"""`docker build` of a rendered Dockerfile gives the same files as torchbake."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import CPU, ROOT, images_of, torchbake
from torchbake.build.wheelhouse import stage_wheels
from torchbake.hostconfig.apt_config import read_apt_config
from torchbake.hostconfig.build_secrets import secret_files
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.hostconfig.proxies import proxy_variables
from torchbake.lock.image_lock import read_lock
from torchbake.lock.needs import wheels_by_stage
from torchbake.matrix.project import load_project
from torchbake.matrix.spec import ImageSpec

pytestmark = pytest.mark.build

BY_HAND = "torchbake-test/by-hand/pytorch"
# Type, mode, owner, time, link and name of each entry, and the hash of each file. A build by hand gives other times to
# the toolbox, and to folders.
LIST = """
wheels=$(ls -d /packages /pytorch 2>/dev/null)
find $wheels /opt/venv ! -type d -printf '%y %m %U:%G %T@ %l %p\\n' | sort -k 6
find $wheels /opt/venv -type d -printf '%y %m %U:%G %p\\n' | sort -k 4
find /app /opt/torchbake -printf '%y %m %U:%G %l %p\\n' | sort -k 5
find $wheels /app /opt -type f -print0 | sort -z | xargs -0 sha256sum
"""


@contextmanager
def words_of_this_host(folder: Path, name: str = CPU, root: Path = ROOT) -> Iterator[list[str]]:
    """Yield the options of `docker build` for an image on this host, as docs/how-to/air-gapped.md names them."""
    spec = next(spec for spec in load_project(root / "matrix.yaml").expansion.specs if spec.id == name)
    assert isinstance(spec, ImageSpec)
    bases = (root / ".torchbake/bases").resolve()
    pip, base = read_pip_config(), json.loads((bases / "debian12.json").read_text())
    contexts = {} if root == ROOT else {"toolkit": str(ROOT)}
    if base["source"] != "registry":
        contexts[base["image"]] = f"oci-layout://{bases}/debian12@{base['digest']}"
    stages = {"builder": (), **wheels_by_stage(spec, read_lock(root, spec))}
    if wheels := stage_wheels(stages, pip.local_folders, spec.base.python, folder):
        contexts["wheels"] = str(wheels)
    with secret_files(pip, read_apt_config(), [spec]) as files:
        yield [
            *(f"--secret=id={name},src={path}" for name, path in files[spec.id].items()),
            *(f"--build-context={name}={context}" for name, context in contexts.items()),
            *(f"--build-arg={name}" for name in proxy_variables()),
        ]


def build_by_hand(folder: Path, tag: str, name: str = CPU, root: Path = ROOT) -> None:
    """Build the rendered Dockerfile of an image by `docker build`."""
    with words_of_this_host(folder, name, root) as words:
        command = ["docker", "build", "-f", f"images/{name}/Dockerfile", "-t", tag, *words, "."]
        process = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, close_fds=False)
    assert process.returncode == 0, process.stderr


def differences(run: Callable[..., str], *refs: str) -> list[str]:
    """Return the entries that only one of two images has."""
    ours, theirs = (run(ref, "sh", "-c", LIST).splitlines() for ref in refs)
    return sorted({*ours} ^ {*theirs})


@pytest.mark.long  # test_project_images.py compares an image with a small torch
def test_an_image_built_by_hand_has_the_same_files(run: Callable[..., str], tmp_path: Path) -> None:
    process = torchbake("build", CPU, "--format", "json")
    assert process.returncode == 0, process.stderr
    build_by_hand(tmp_path, BY_HAND)
    ref = images_of(process)[CPU]["ref"]
    assert differences(run, ref, BY_HAND) == []
    ours = run(ref, "sh", "-c", LIST).splitlines()
    for name in ("/pytorch/torch/lib/libtorch_cpu.so", "/pytorch/bin/torchrun", "/pytorch/torch/nn/__init__.py"):
        assert any(line.endswith(f" {name}") for line in ours), name
