"""What preparing images depends on: each of its files, Python and the packages, and nothing else."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.builds import BASE, small_project
from torchbake.build import sources
from torchbake.build.sources import source_files, sources_digest
from torchbake.core.files import write_text
from torchbake.core.paths import PACKAGE, TOOLKIT
from torchbake.oci.rootfs_image import write_layout

FILES = {
    "toolkit/torchbake/build/prepare.py": "code",
    "toolkit/templates/pytorch.Dockerfile.j2": "template",
    "toolkit/layers/trim.toml": "rules",
    "toolkit/entrypoints/pytorch/launch/run.py": "launcher",
    "matrix.yaml": "rows",
    "images/builder.lock": "uv",
    "images/a/requirements.lock": "torch",
    "images/a/Dockerfile": "FROM",
    ".torchbake/bases/debian12.json": "{}",
    ".torchbake/bases/debian12/index.json": "{}",
}
every_file = pytest.mark.parametrize("name", FILES)


@pytest.fixture
def matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a toolkit of its own."""
    for name, text in FILES.items():
        write_text(tmp_path / name, text)
    monkeypatch.setattr(sources, "TOOLKIT", tmp_path / "toolkit")
    monkeypatch.setattr(sources, "PACKAGE", tmp_path / "toolkit/torchbake")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    (tmp_path / "packages/jinja2-3.1.6.dist-info").mkdir(parents=True)
    return tmp_path / "matrix.yaml"


def another_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def gone(path: Path) -> None:
    path.unlink()


def renamed(path: Path) -> None:
    path.rename(path.with_name(f"x{path.name}"))


def beside(path: Path) -> None:
    path.with_name(f"x{path.name}").touch()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@every_file
@pytest.mark.parametrize("change", [another_byte, emptied, gone, renamed, folder])
def test_a_change_of_any_file_is_seen(name: str, change: Callable[[Path], None], matrix: Path) -> None:
    before = sources_digest(matrix)
    change(matrix.parent / name)
    assert sources_digest(matrix) != before


@pytest.mark.parametrize(
    "name", [name for name in FILES if not name.startswith(("matrix", ".torchbake/bases/debian12/"))]
)
def test_a_new_file_beside_them_is_seen(name: str, matrix: Path) -> None:
    before = sources_digest(matrix)
    beside(matrix.parent / name)
    assert sources_digest(matrix) != before


def test_two_files_that_change_places_are_seen(matrix: Path) -> None:
    one, other = (matrix.parent / "images/a" / name for name in ("Dockerfile", "requirements.lock"))
    before = sources_digest(matrix)
    one.write_text(FILES["images/a/requirements.lock"])
    other.write_text(FILES["images/a/Dockerfile"])
    assert sources_digest(matrix) != before


def test_another_package_another_python_and_another_project_are_seen(
    matrix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sources_digest(matrix)
    assert sources_digest(matrix.with_name("other.yaml")) != before
    with monkeypatch.context() as changed:
        changed.setattr(sys, "version", "3.99.0")
        assert sources_digest(matrix) != before
    with monkeypatch.context() as changed:
        changed.setattr(sys, "path", [str(tmp_path), *sys.path])
        assert sources_digest(matrix) != before
    (tmp_path / "packages/jinja2-3.1.6.dist-info").rename(tmp_path / "packages/jinja2-3.1.7.dist-info")
    assert sources_digest(matrix) != before


def test_what_is_derived_or_of_no_account_is_not_in_it(matrix: Path) -> None:
    before = sources_digest(matrix)
    for name in (
        "toolkit/torchbake/build/__pycache__/prepare.pyc", "toolkit/entrypoints/pytorch/__pycache__/x.pyc",
        ".torchbake/sizes.json", ".torchbake/bases/debian12/blobs/sha256/x", "README.md", "packages/jinja2/x.py",
    ):  # fmt: skip
        write_text(matrix.parent / name, "x")
    os.utime(matrix, (1, 1))
    assert sources_digest(matrix) == before


def test_a_pipe_is_not_read(matrix: Path) -> None:
    matrix.unlink()
    os.mkfifo(matrix)
    with pytest.raises(OSError, match="no regular file"):
        sources_digest(matrix)


def test_a_linked_folder_of_an_image_counts_as_one_and_one_of_the_toolkit_is_none_of_ours(matrix: Path) -> None:
    folder, elsewhere = matrix.parent / "images/a", matrix.parent / "elsewhere"
    before = sources_digest(matrix)
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    assert sources_digest(matrix) == before
    another_byte(elsewhere / "Dockerfile")
    assert sources_digest(matrix) != before
    (matrix.parent / "toolkit/templates/more").symlink_to(elsewhere)
    with pytest.raises(OSError, match="is a link"):
        sources_digest(matrix)


_WATCHED = """
import json, os, sys
opened = []
def watch(event, given):
    if event == "open" and not given[2] & (os.O_WRONLY | os.O_RDWR):
        opened.append(str(given[0]))
sys.addaudithook(watch)
from torchbake import cli
from torchbake.engine import ahead
from torchbake.engine.address import DEFAULT
from torchbake.engine.capability import Capabilities
from torchbake.errors import EngineError

class NoImages:
    capabilities = Capabilities(
        address=DEFAULT, version="26.1", store="containerd", driver="overlayfs", docker="/usr/bin/docker", buildx="0.13"
    )
    def images(self):
        raise EngineError("it is asked for its images when all are prepared")

ahead.connect = NoImages
words = ["build", "cpu", "volume-permissions", "--locked", "--matrix", sys.argv[1]]
code = [cli.main(words) for _ in range(2)][-1]  # the second one finds the first one's Dockerfiles
modules = [getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith("torchbake")]
print(json.dumps([code, opened, [name for name in modules if name]]))
"""


def test_all_that_a_build_reads_before_it_decides_is_in_it(
    tmp_path: Path, python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """A new input of images that `source_files` does not list fails here: a build would not see that it changed."""
    project = small_project(tmp_path / "project")
    layout = project.state / "bases/debian12"
    layout.parent.mkdir(parents=True)
    tarfile.open(tmp_path / "rootfs.tar", "w").close()
    digest = write_layout(tmp_path / "rootfs.tar", layout, created="2025-01-01T00:00:00Z", created_by="test")
    record = {**BASE.__dict__, "source": "bootstrap", "digest": digest}
    write_text(project.state / "bases/debian12.json", json.dumps(record))
    done = python("-c", _WATCHED, str(project.document.path))
    code, opened, modules = json.loads(done.stdout)
    assert code == 7, done.stderr  # all is prepared when the engine's images are looked at
    listed = set(source_files(project.document.path))
    own = {name for name in map(os.path.abspath, opened) if _is_ours(Path(name), tmp_path)}
    assert {Path(name).parent for name in own - listed} == {project.state / "unchanged"}  # this build's own record
    assert set(modules) <= listed
    inputs = (
        "matrix.yaml",
        "builder.lock",
        "requirements.lock",
        "Dockerfile",
        "debian12.json",
        "index.json",
        "trim.toml",
    )
    assert all(any(name.endswith(f"/{one}") for name in own & listed) for one in inputs), own


def _is_ours(path: Path, project: Path) -> bool:
    """What is derived of ours under its digest counts by what it was made from, and packages by their versions.

    nox keeps the environment of these tests, with its packages, in the toolkit's own folder.
    """
    derived = path.suffix == ".pyc" or path.is_relative_to(TOOLKIT / ".torchbake/templates") or "blobs" in path.parts
    inside = any(path.is_relative_to(folder) for folder in (project, TOOLKIT, PACKAGE))
    return inside and not derived and not path.is_relative_to(sys.prefix)
