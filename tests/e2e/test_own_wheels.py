"""Packages of a project's lock that no index has as wheels: real repositories, archives, builds and addresses."""

import io
import shutil
import subprocess
import tarfile
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from tests.e2e.serving import serving
from tests.wheels import write_wheel
from torchbake.core.digest import file_digest
from torchbake.errors import LockError, StorageError, TorchbakeError
from torchbake.hostconfig.pip_config import PipConfig, read_pip_config
from torchbake.lock.lockfile import Pin
from torchbake.projects.own_wheels import pins_of_own_wheels
from torchbake.projects.packages import Archive, GitSource, ProjectLock, ProjectPackage, Sdist, Source

pytestmark = pytest.mark.projects

PYTHON = "3.11"
# A build backend in the source itself: it needs no index.
BACKEND = """\
import pathlib, sys, zipfile
NAME, VERSION, TAG = {name!r}, {version!r}, {tag!r}
def build_wheel(folder, config_settings=None, metadata_directory=None):
    {before}
    stem = f"{{NAME}}-{{VERSION}}"
    with zipfile.ZipFile(pathlib.Path(folder, f"{{stem}}-{{TAG}}.whl"), "w") as wheel:
        wheel.writestr(f"{{NAME}}.py", pathlib.Path("code.py").read_text())
        metadata = f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: {{VERSION}}\\n"
        wheel.writestr(f"{{stem}}.dist-info/METADATA", metadata)
        wheel.writestr(f"{{stem}}.dist-info/WHEEL", f"Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: {{TAG}}\\n")
        wheel.writestr(f"{{stem}}.dist-info/RECORD", "")
    return f"{{stem}}-{{TAG}}.whl"
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def source_files(
    name: str = "tools", version: str = "1.0", tag: str = "py3-none-any", before: str = "pass"
) -> dict[str, str]:
    return {
        "pyproject.toml": PYPROJECT,
        "backend.py": BACKEND.format(name=name, version=version, tag=tag, before=before),
        "code.py": "ANSWER = 42\n",
    }


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def git(folder: Path, *words: str) -> str:
    names = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
    process = subprocess.run(["git", *names, *words], cwd=folder, capture_output=True, text=True, check=True)
    return process.stdout.strip()


class Repository:
    """A git repository on disk with a package in its folder ``python``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        git(folder, "init", "--quiet")

    def commit(self, files: Mapping[str, str]) -> GitSource:
        write(self.folder / "python", files)
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "--quiet", "--message", "Change")
        commit = git(self.folder, "rev-parse", "HEAD")
        return GitSource(url=self.folder.as_uri(), commit=commit, subdirectory="python")


class Desk:
    """A matrix's folder with a project ``trainer`` below it, and a folder of files that a server has."""

    def __init__(self, root: Path, url: str, files: Path) -> None:
        self.root, self.url, self.files = root, url, files
        self.config = read_pip_config()
        (root / "trainer").mkdir(parents=True)

    @property
    def wheels(self) -> list[str]:
        return sorted(path.name for path in (self.root / "wheels").glob("*"))

    def sdist(self, files: Mapping[str, str], name: str = "tools-1.0.tar.gz") -> ProjectPackage:
        """Put a source archive on the server, and return its package."""
        with tarfile.open(self.files / name, "w:gz") as archive:
            for path, text in {**files, "PKG-INFO": "Metadata-Version: 2.1\nName: tools\nVersion: 1.0\n"}.items():
                member = tarfile.TarInfo(f"{name.removesuffix('.tar.gz')}/{path}")
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
        return package(Sdist(url=f"{self.url}/{name}"), file_digest(self.files / name))

    def pin(self, one: ProjectPackage, config: PipConfig | None = None) -> Pin:
        lock = ProjectLock(path="trainer/uv.lock", packages=(one,), lines={one.name: 12})
        [(name, pin)] = pins_of_own_wheels([one], lock, self.root, PYTHON, config or self.config).items()
        wheels = [path.name for path in (self.root / "wheels").glob("*.whl") if file_digest(path) in pin.hashes]
        assert wheels == [name], "the pin's wheel is in the folder"
        return pin

    def refusal(self, one: ProjectPackage, kind: type[TorchbakeError] = LockError) -> TorchbakeError:
        before = self.wheels
        with pytest.raises(kind) as caught:
            self.pin(one)
        assert self.wheels == before, "nothing half-written"
        assert caught.value.hint
        return caught.value


@pytest.fixture
def desk(tmp_path: Path) -> Desk:  # type: ignore[misc]
    files = tmp_path / "files"
    files.mkdir()
    with serving(partial(SimpleHTTPRequestHandler, directory=str(files))) as server:
        yield Desk(tmp_path / "project", f"http://127.0.0.1:{server.server_port}", files)


def package(source: Source, *hashes: str, name: str = "tools", version: str = "1.0") -> ProjectPackage:
    return ProjectPackage(name=name, version=version, hashes=hashes, via=("other",), source=source)


def test_a_commit_becomes_one_wheel_that_is_found_again(desk: Desk, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    first = repository.commit(source_files())
    second = repository.commit({"code.py": "ANSWER = 43\n"})
    one, other = desk.pin(package(first)), desk.pin(package(second))
    assert (one.name, one.version, one.via) == ("tools", "1.0", ("other",))
    assert one.hashes != other.hashes, "two commits with one version are two wheels"
    shutil.rmtree(repository.folder)
    assert desk.pin(package(first)) == one
    assert desk.pin(package(first, version="")) == one
    assert len(desk.wheels) == 2


def test_a_commit_that_no_branch_has_is_found(desk: Desk, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(source_files())
    orphan = repository.commit({"code.py": "ANSWER = 0\n"})
    git(repository.folder, "reset", "--hard", "--quiet", "HEAD~1")
    assert desk.pin(package(orphan)).version == "1.0"


def test_a_real_backend_builds_the_same_wheel_each_time(desk: Desk) -> None:
    pyproject = (
        '[build-system]\nrequires = ["setuptools>=77"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "tools"\nversion = "1.0"\n[project.scripts]\ntools = "tools:main"\n'
    )
    one = desk.sdist({"pyproject.toml": pyproject, "tools.py": "def main(): print(42)\n"})
    pin = desk.pin(one)
    (wheel,) = desk.wheels
    assert wheel.endswith("-py3-none-any.whl")
    (desk.root / "wheels" / wheel).unlink()
    time.sleep(2)  # the resolution of times in a zip file
    assert desk.pin(one) == pin


def test_an_index_serves_the_sdist_if_its_locked_url_is_gone(desk: Desk) -> None:
    one = desk.sdist(source_files())
    page = desk.files / "simple/tools/index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="../../tools-1.0.tar.gz#{one.hashes[0].replace(":", "=")}">tools-1.0.tar.gz</a>')
    mirror = PipConfig(index_url=f"{desk.url}/simple")
    moved = replace(one, source=Sdist(url="http://127.0.0.1:1/tools-1.0.tar.gz"))
    assert desk.pin(moved, mirror).version == "1.0"


def test_wheels_by_address_and_by_path_are_kept(desk: Desk) -> None:
    own = write_wheel(desk.files, "tools", "1.0", {"tools.py": b""}, tag="py3-none-any")
    beside = write_wheel(desk.root / "trainer/vendor", "other", "2.0", {"other.py": b""}, tag="py3-none-any")
    by_address = package(Archive(url=f"{desk.url}/tools-1.0-py3-none-any.whl"), own)
    by_path = package(Archive(url="vendor/other-2.0-py3-none-any.whl"), beside, name="other", version="2.0")
    assert desk.pin(by_address).hashes == (own,)
    assert desk.pin(by_path).hashes == (beside,)
    assert desk.wheels == ["other-2.0-py3-none-any.whl", "tools-1.0-py3-none-any.whl"]
    (desk.files / "tools-1.0-py3-none-any.whl").unlink()
    shutil.rmtree(desk.root / "trainer/vendor")
    assert desk.pin(by_address).hashes == (own,)
    assert desk.pin(by_path).hashes == (beside,)


def test_a_wheel_by_hand_stands_for_compiled_code(desk: Desk) -> None:
    one = desk.sdist(source_files(tag="cp311-cp311-linux_x86_64"))
    error = desk.refusal(one)
    name = "tools-1.0-cp311-cp311-linux_x86_64.whl"
    assert name in str(error.hint)
    own = write_wheel(desk.root / "wheels", "tools", "1.0", {}, tag="cp311-cp311-linux_x86_64")
    assert desk.wheels == [name]
    assert desk.pin(one).hashes == (own,)


def test_broken_sources_are_refused_in_one_sentence(desk: Desk, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    commit = repository.commit(source_files())
    good = desk.sdist(source_files())
    own = write_wheel(desk.files, "tools", "1.0", {}, tag="py3-none-any")
    arm = write_wheel(desk.files, "tools", "1.0", {}, tag="cp311-cp311-manylinux2014_aarch64")
    foreign = write_wheel(desk.files, "foreign", "1.0", {}, tag="py3-none-any")
    (desk.files / "foreign-1.0-py3-none-any.whl").rename(desk.files / "tools-1.0-py2.py3-none-any.whl")
    (desk.files / "tools-3.0-py3-none-any.whl").write_bytes(b"PK, but no archive")
    damaged = file_digest(desk.files / "tools-3.0-py3-none-any.whl")
    failing = source_files(before="print('one two three'); sys.exit('no header file Python.h')")
    cases: dict[str, tuple[ProjectPackage, str]] = {
        "commit": (package(replace(commit, commit="0" * 40)), "0" * 40),
        "branch": (package(replace(commit, commit="main")), "'main'"),
        "option": (package(replace(commit, commit="--upload-pack=touch x")), "--upload-pack"),
        "repository": (package(replace(commit, url=(tmp_path / "none").as_uri())), "cannot be cloned"),
        "subdirectory": (package(replace(commit, subdirectory="nowhere")), "nowhere"),
        "hash": (replace(good, hashes=("sha256:" + "0" * 64,)), "sha256:" + "0" * 64),
        "no hash": (replace(good, hashes=()), "no hash"),
        "wheels for others": (replace(good, hashes=(*good.hashes, own)), "no wheel of the lock fits"),
        "gone": (replace(good, source=Sdist(url=f"{desk.url}/none.tar.gz")), "404"),
        "no answer": (replace(good, source=Sdist(url="http://127.0.0.1:1/x.tar.gz")), "http://127.0.0.1:1/x.tar.gz"),
        "no project": (desk.sdist({"README": ""}, "empty-1.0.tar.gz"), "pyproject.toml"),
        "no archive": (package(Sdist(url=f"{desk.url}/tools-3.0-py3-none-any.whl"), damaged), "cannot be built"),
        "backend": (desk.sdist(failing, "failing-1.0.tar.gz"), "no header file Python.h"),
        "name": (package(repository.commit(source_files(name="others"))), "others 1.0"),
        "version": (package(repository.commit(source_files(version="1.1"))), "tools 1.1"),
        "folder of an archive": (package(Archive(url=f"{desk.url}/a.zip", subdirectory="b"), own), "'b'"),
        "platform": (
            package(Archive(url=f"{desk.url}/tools-1.0-cp311-cp311-manylinux2014_aarch64.whl"), arm),
            "x86_64",
        ),
        "path": (package(Archive(url="vendor/tools-1.0-py3-none-any.whl"), own), "No such file"),
        "hash of a wheel": (package(Archive(url=f"{desk.url}/tools-1.0-py3-none-any.whl"), arm), arm),
    }
    for name, (one, words) in cases.items():
        message = desk.refusal(one).message
        assert "trainer/uv.lock:12" in message, name
        assert words in message, (name, message)
    other = package(Archive(url=f"{desk.url}/tools-1.0-py2.py3-none-any.whl"), foreign)
    assert "foreign 1.0" in desk.refusal(other).message


def test_a_damaged_wheel_of_the_folder_is_named(desk: Desk) -> None:
    one = desk.sdist(source_files())
    own = write_wheel(desk.files, "tools", "1.0", {"tools.py": b"x" * 1000}, tag="py3-none-any")
    by_address = package(Archive(url=f"{desk.url}/tools-1.0-py3-none-any.whl"), own)
    for each in (one, by_address):
        desk.pin(each)
    for each in (one, by_address):
        (path,) = (desk.root / "wheels" / name for name in desk.wheels if ("-0s" in name) == (each is one))
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 1
        path.write_bytes(data)
        assert str(path) in desk.refusal(each).message
        path.unlink()
        desk.pin(each)


def test_a_folder_that_cannot_be_written_is_named(desk: Desk) -> None:
    (desk.root / "wheels").write_text("a file")
    error = desk.refusal(desk.sdist(source_files()), StorageError)
    assert str(desk.root / "wheels") in error.message


def test_a_missing_git_is_named(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Repository(tmp_path / "repository").commit(source_files())
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "git is not installed" in desk.refusal(package(commit)).message
