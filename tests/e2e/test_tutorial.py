"""The tutorial, typed to the letter on a bare Debian that has the package alone, within the time that it promises.

The system gets this host's engine, certificates, proxies and package mirrors. `pip install torchbake` installs the
working tree's wheel, by a constraint. The folder of the tutorial has the same path on the host, since the engine mounts
a file of it.
"""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from tests.e2e.handed import SOCKET, options, package_mirrors
from tests.e2e.roots import bare_root
from tests.packages import build
from tests.unit.tutorial import MINUTES, TEXT, typed_blocks

PORT = int(re.findall(r"127\.0\.0\.1:(\d+)", TEXT)[0])
MARK = "@@ block"

pytestmark = [
    pytest.mark.doors,
    pytest.mark.long,  # its time counts only if no other test runs
    pytest.mark.skipif(not shutil.which("mmdebstrap"), reason="not run: mmdebstrap makes the bare system; apt has it"),
    pytest.mark.skipif(not SOCKET.exists(), reason=f"not run: the bare Debian is given the engine at {SOCKET}"),
]


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """The package as a folder: a wheel, and the constraint by which pip takes it."""
    (path,) = (each for each in build(tmp_path / "dist") if each.suffix == ".whl")
    (path.parent / "constraint.txt").write_text(f"torchbake @ file:///dist/{path.name}\n")
    return path.parent


@pytest.fixture
def mirror(gateway: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    (tmp_path / "simple").mkdir()
    with package_mirrors(gateway, tmp_path / "simple") as variables:
        yield variables


@pytest.fixture
def left_images(engine: docker.DockerClient) -> Iterator[Callable[[], list[str]]]:
    """List the tutorial's images in the engine; images of an interrupted run are removed before and after the test."""

    def left() -> list[str]:
        return [tag for image in engine.images.list() for tag in image.tags if "tutorial/pytorch:" in tag]

    for tag in left():
        engine.images.remove(tag, force=True)
    yield left
    for tag in left():
        engine.images.remove(tag, force=True)


def test_the_tutorial_runs_to_the_letter_in_its_time(
    wheel: Path, mirror: dict[str, str], left_images: Callable[[], list[str]], tmp_path: Path
) -> None:
    with socket.socket() as free:
        if not free.connect_ex(("127.0.0.1", PORT)):
            pytest.skip(f"not run: another program has port {PORT}")
    blocks = typed_blocks(TEXT)
    script = "\n".join(f"{block.commands}echo {MARK}" for block in blocks)
    folder, name = tmp_path / "home", f"torchbake-test-tutorial-{os.getpid()}"
    folder.mkdir()
    begin = time.monotonic()
    try:
        process = subprocess.run(
            [
                *("docker", "run", "--rm", "--name", name, "--privileged", "--network", "host"),
                *("--volume", f"{SOCKET}:/var/run/docker.sock", "--volume", f"{wheel}:/dist:ro"),
                *("--volume", f"{folder}:{folder}", "--workdir", folder, "--env", "HOME=/root"),
                *options({**mirror, "PIP_CONSTRAINT": "/dist/constraint.txt"}),
                *(bare_root("bookworm", ()), "bash", "-ec", script),
            ],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=3000, check=False,
        )  # fmt: skip
    finally:
        subprocess.run(["docker", "rm", "-fv", name], capture_output=True, check=False)
    minutes = (time.monotonic() - begin) / 60
    outputs = process.stdout.split(f"{MARK}\n")
    assert process.returncode == 0, f"after {len(outputs) - 1} blocks:\n{process.stdout[-8000:]}"
    missing = [line for block, output in zip(blocks, outputs, strict=False) for line in block.missing_lines(output)]
    assert missing == [], process.stdout
    assert ([*folder.iterdir()], left_images()) == ([], []), "the tutorial leaves files or images"
    assert minutes < MINUTES
