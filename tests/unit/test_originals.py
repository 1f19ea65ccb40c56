"""The image checks that NVIDIA's files are the wheels' own: what they say of a tree, and where the hashes come from."""

import hashlib
import importlib
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.images.entries import Entry, Tree
from tests.unit.conftest import image
from tests.wheels import write_wheel
from torchbake.errors import BuildError
from torchbake.lock.lockfile import Lock, Pin
from torchbake.matrix.spec import ImageSpec

parts = importlib.import_module("tests.images.test_parts")
originals = importlib.import_module("tests.images.originals")

INFO = "/nvidia/nvidia_nvtx_cu12-12.6.77.dist-info"
LIBRARY, LICENSE = "/nvidia/nvidia/nvtx/lib/libnvToolsExt.so.1", f"{INFO}/License.txt"
WHEEL = {"nvidia-nvtx-cu12": {LIBRARY: "aa", LICENSE: "bb", f"{INFO}/METADATA": "cc"}}


def tree(**other: str | None) -> Tree:
    """The files of the wheel; a keyword gives one another hash, or takes it away."""
    names = {"library": LIBRARY, "license": LICENSE}
    hashes = {**WHEEL["nvidia-nvtx-cu12"], **{names[name]: hashed for name, hashed in other.items()}}
    entries = (
        Entry(path, "file", 0o644, 0, 0, 1, sha256=hashed) for path, hashed in hashes.items() if hashed is not None
    )
    return Tree(entries=tuple(entries), hidden={})


def test_files_as_the_wheel_has_them_pass() -> None:
    figures: dict[str, Any] = {}
    parts.test_unaltered(WHEEL, tree(), figures)
    parts.test_licenses(WHEEL, tree())
    assert figures == {"files": 3}


def test_a_whole_file_may_be_missing() -> None:
    parts.test_unaltered(WHEEL, tree(library=None), {})


@pytest.mark.parametrize("hashed", ["dd", ""])  # another file, or none of which the layers know a hash
def test_an_altered_file_fails(hashed: str) -> None:
    with pytest.raises(AssertionError, match=LIBRARY):
        parts.test_unaltered(WHEEL, tree(library=hashed), {})


def test_a_wheel_without_any_file_fails() -> None:
    with pytest.raises(AssertionError, match="nvidia-nvtx-cu12"):
        parts.test_unaltered(WHEEL, Tree(entries=(), hidden={}), {})


def test_a_path_of_two_wheels_may_be_as_in_either() -> None:
    two = {**WHEEL, "nvidia-nccl-cu12": {LIBRARY: "dd", "/nvidia/other": "ee"}}
    entries = (*tree(library="dd").entries, Entry("/nvidia/other", "file", 0o644, 0, 0, 1, sha256="ee"))
    parts.test_unaltered(two, Tree(entries=entries, hidden={}), {})


def test_a_missing_license_text_fails() -> None:
    with pytest.raises(AssertionError, match=LICENSE):
        parts.test_licenses(WHEEL, tree(license=None))
    parts.test_unaltered(WHEEL, tree(license=None), {})


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("/nvidia/a-1.dist-info/License.txt", True),
        ("/nvidia/a-1.dist-info/licenses/License.txt", True),
        ("/nvidia/a-1.dist-info/LICENSE", True),
        ("/nvidia/nvidia/cusparselt/LICENSE.txt", True),
        ("/nvidia/a-1.dist-info/METADATA", False),
        ("/nvidia/nvidia/licenses/a.so", False),
        ("/nvidia/nvidia/cu13/include/license.h", False),
    ],
)
def test_which_files_are_license_texts(name: str, is_one: bool) -> None:
    lost = [*originals.without_license({"a": {name: "aa"}}, Tree(entries=(), hidden={}))]
    assert lost == ([name] if is_one else [])


def row(folder: Path) -> Any:
    """A row whose lock names three wheels in a folder of this host: NVIDIA's, Triton's, and one of nobody's."""
    files = {
        "nvidia-nvtx-cu12": {"nvidia/nvtx/lib/libnvToolsExt.so.1": b"code"},
        "triton": {"triton/backends/nvidia/bin/ptxas": b"ptxas", "triton/_C/libtriton.so": b"Triton's own"},
        "numpy": {"numpy/__init__.py": b""},
        "cuda-bindings": {"cuda/bindings/driver.so": b"driver"},
    }
    pins = {
        name: Pin(name=name, version="1.0", hashes=(write_wheel(folder, name, "1.0", content),))
        for name, content in files.items()
    }
    layers = {"nvidia": ("nvidia-nvtx-cu12",), "torch": ("triton",), "site": ("numpy", "cuda-bindings"), "devel": ()}
    lock = Lock(inputs="", layers={layer: tuple(pins[name] for name in names) for layer, names in layers.items()})  # type: ignore[misc]
    return SimpleNamespace(spec=image(), lock=lock)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose pip has one folder, and no index."""
    monkeypatch.setenv("TORCHBAKE_LAYERS", str(tmp_path / "layers"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return tmp_path


def test_the_hashes_of_nvidias_files_by_their_paths_in_the_image(host: Path) -> None:
    value = originals.find_originals(row(host / "wheels"), threading.Event())
    site = "/opt/venv/lib/python3.11/site-packages"
    assert value.keys() == {"nvidia-nvtx-cu12", "triton", "cuda-bindings"}
    assert value["nvidia-nvtx-cu12"][LIBRARY] == hashlib.sha256(b"code").hexdigest()
    assert [*value["triton"]] == ["/pytorch/triton/backends/nvidia/bin/ptxas"]
    assert f"{site}/cuda/bindings/driver.so" in value["cuda-bindings"]


def test_an_image_without_a_lock_has_none() -> None:
    assert originals.find_originals(SimpleNamespace(spec=image(), lock=None), threading.Event()) == {}
    assert isinstance(image(), ImageSpec)


def test_a_wheel_that_cannot_be_had_is_a_reason_and_no_verdict(host: Path) -> None:
    of = row(host / "wheels")
    for wheel in (host / "wheels").glob("nvidia*"):
        wheel.unlink()
    with pytest.raises(BuildError, match="nvidia-nvtx-cu12"):
        originals.find_originals(of, threading.Event())


def test_without_the_hashes_a_check_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    conftest = importlib.import_module("tests.images.conftest")

    def fail(name: str) -> None:
        raise BuildError(f"{name} cannot be had.", hint="Do this.")

    with pytest.raises(pytest.skip.Exception, match=r"originals cannot be had\. Do this\."):
        conftest.originals.__wrapped__(None, SimpleNamespace(get=fail))
