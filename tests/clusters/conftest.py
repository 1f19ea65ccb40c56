"""The images; a real Kubernetes node for all tests, and a namespace for each."""

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clusters.machine import machine
from tests.clusters.node import Node, start_node
from tests.clusters.space import Space
from tests.e2e.conftest import CPU, INIT, ROOT, images_of, ref_of, torchbake

EXPECTED = ("mmdebstrap", "nsenter", "setpriv", "unshare")
JOBS = (ROOT / "tests/e2e/jobs", ROOT / "tests/clusters/jobs")


@pytest.fixture(scope="session")
def built() -> dict[str, str]:
    """The two images of the jobs by their ids, which the engine has."""
    process = torchbake("build", CPU, INIT, "--format", "json")
    assert process.returncode == 0, process.stderr
    return {name: image["ref"] for name, image in images_of(process).items()}


@pytest.fixture(scope="session")
def image() -> str:
    """Return the one image that machines without Kubernetes need."""
    return ref_of(CPU)


@pytest.fixture(scope="session")
def node(built: dict[str, str]) -> Iterator[Node]:
    """With the two images of its jobs, as the engine has them."""
    if os.geteuid():
        pytest.skip("a Kubernetes node wants root")
    if lacking := [name for name in EXPECTED if not shutil.which(name)]:
        pytest.skip(f"a Kubernetes node wants {', '.join(lacking)}")
    tree = machine(ROOT / ".torchbake/tools/kubernetes")
    began = time.monotonic()
    with start_node(tree) as running:
        start = time.monotonic()
        for ref in built.values():
            running.load(ref)
        loaded = time.monotonic() - start
        print(f"\nThe node was ready after {start - began:.0f} s, and had both images {loaded:.0f} s later.")
        yield running


@pytest.fixture
def space(node: Node) -> Iterator[Space]:
    """A namespace that is deleted, with its objects, at the end of the test."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    process = node.kubectl("create", "namespace", name)
    assert process.returncode == 0, process.stderr
    yield Space(node=node, name=name)
    node.kubectl("delete", "namespace", name, "--wait=false")


def script(name: str) -> Path:
    """Find the script of this name; a name in both folders is an error, as one would hide the other."""
    (source,) = (each / name for each in JOBS if (each / name).exists())
    return source


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., str]:
    """Puts scripts of these names into a folder of the test's, and returns where that is."""

    def put(*names: str) -> str:
        folder = tmp_path / "files"
        folder.mkdir()
        for name in names:
            shutil.copy(script(name), folder / name)
        return str(folder)

    return put
