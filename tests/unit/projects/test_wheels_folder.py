"""The wheels of the folder `wheels/` for the packages of a project's lock."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.wheels import write_wheel
from torchbake.core.digest import file_digest
from torchbake.projects.packages import Archive, Folder, GitSource, ProjectPackage, Sdist
from torchbake.projects.wheels_folder import build_tag, find_own_wheel, fits, is_wheel, tagged, unused_wheels

HASH = "sha256:" + "0" * 64
GIT = ProjectPackage(
    name="my-tools",
    version="1.0",
    hashes=(),
    source=GitSource(url="https://git.example/tools", commit="a" * 40, subdirectory="python"),
)
SDIST = replace(GIT, hashes=(HASH,), source=Sdist(url="https://files.example/my_tools-1.0.tar.gz"))
ARCHIVE = replace(SDIST, source=Archive(url="https://files.example/my_tools-1.0.tar.gz"))
WHEEL = replace(SDIST, source=Archive(url="https://files.example/my_tools-1.0-py3-none-any.whl?raw=1"))


def put(root: Path, *names: str) -> None:
    (root / "wheels").mkdir(exist_ok=True)
    for name in names:
        (root / "wheels" / name).touch()


def name_of(root: Path, package: ProjectPackage, python: str = "3.11") -> str:
    path = find_own_wheel(root, package, python)
    return path.name if path else ""


def test_each_source_has_a_build_tag_of_its_own() -> None:
    assert isinstance(GIT.source, GitSource)
    packages = [
        GIT,
        replace(GIT, source=replace(GIT.source, commit="b" * 40)),
        replace(GIT, source=replace(GIT.source, subdirectory="")),
        replace(GIT, source=replace(GIT.source, url="https://git.example/other")),
        ARCHIVE,
        replace(ARCHIVE, hashes=("sha256:" + "1" * 64,)),
    ]
    tags = [build_tag(package) for package in packages]
    assert len(set(tags)) == len(tags)
    assert all(tag[0].isdigit() and tag.isalnum() for tag in tags)
    login = replace(GIT.source, url="https://me:secret@git.example/tools")
    assert build_tag(replace(GIT, source=login)) == build_tag(GIT)
    # a mirror has other addresses
    assert build_tag(replace(SDIST, source=Sdist(url="https://mirror.example/x.tar.gz"))) == build_tag(SDIST)
    with pytest.raises(TypeError):
        build_tag(replace(GIT, source=Folder(path=".")))


def test_a_wheel_is_found_by_its_source_alone(tmp_path: Path) -> None:
    for package in (GIT, ARCHIVE, SDIST):
        own = tagged("my_tools-1.0-py3-none-any.whl", build_tag(package))
        root = tmp_path / type(package.source).__name__
        root.mkdir()
        assert not name_of(root, package)
        put(root, "my_tools-1.0-0s000000000000-py3-none-any.whl", "my_tools-2.0-py3-none-any.whl", "no-wheel.whl")
        put(root, tagged("my_tools-1.0-cp312-cp312-linux_x86_64.whl", build_tag(package)))
        assert not name_of(root, package)
        assert name_of(root, package, "3.12")
        put(root, own)
        assert name_of(root, package) == own
        other = replace(package, name="other")
        assert not name_of(root, other)
        assert name_of(root, replace(package, version=""))  # a lock need not know the version of a commit


def test_a_wheel_without_a_build_tag_serves_only_index_sdists(tmp_path: Path) -> None:
    by_hand = "my_tools-1.0-cp311-cp311-linux_x86_64.whl"
    put(tmp_path, by_hand)
    assert name_of(tmp_path, SDIST) == by_hand
    assert not name_of(tmp_path, SDIST, "3.12")
    assert not name_of(tmp_path, GIT)  # a newer commit may have the same version
    own = tagged("my_tools-1.0-py3-none-any.whl", build_tag(SDIST))
    put(tmp_path, own)
    assert name_of(tmp_path, SDIST) == own


def test_wheels_by_address_are_found_by_their_names(tmp_path: Path) -> None:
    assert is_wheel(WHEEL)
    assert not any(map(is_wheel, (GIT, SDIST, ARCHIVE)))
    put(tmp_path, "my_tools-1.0-0s000000000000-py3-none-any.whl")
    assert not name_of(tmp_path, WHEEL)
    put(tmp_path, "my_tools-1.0-py3-none-any.whl")
    (tmp_path / "other-1.0-py3-none-any.whl").touch()
    assert not name_of(tmp_path, replace(WHEEL, source=Archive(url="https://a/..%2Fother-1.0-py3-none-any.whl")))
    assert name_of(tmp_path, WHEEL) == "my_tools-1.0-py3-none-any.whl"


def test_wheels_for_other_machines_do_not_fit() -> None:
    stem = "https://files.example/flash_attn-2.8.0%2Bcu12-"
    for tags, python, expected in (
        ("cp311-cp311-linux_x86_64", "3.11", True),
        ("cp311-cp311-manylinux_2_28_x86_64", "3.11", True),
        ("cp311-cp311-manylinux_2_99_x86_64", "3.11", False),
        ("cp311-cp311-linux_aarch64", "3.11", False),
        ("cp312-cp312-linux_x86_64", "3.11", False),
        ("cp39-abi3-linux_x86_64", "3.11", True),
        ("py3-none-win_amd64", "3.11", False),
        ("nonsense", "3.11", False),
    ):
        assert fits(Archive(url=f"{stem}{tags}.whl"), python) is expected, tags


def test_a_build_tag_replaces_another() -> None:
    assert tagged("a_b-1.0-py3-none-any.whl", "0sx") == "a_b-1.0-0sx-py3-none-any.whl"
    assert tagged("a_b-1.0-7-py2.py3-none-any.whl", "0sx") == "a_b-1.0-0sx-py2.py3-none-any.whl"


def test_wheels_that_no_lock_names_are_listed(tmp_path: Path) -> None:
    assert unused_wheels(tmp_path, []) == []
    for name in ("one", "two"):
        write_wheel(tmp_path / "wheels", name, "1.0", {f"{name}.py": b""}, tag="py3-none-any")
    one, two = sorted((tmp_path / "wheels").glob("*.whl"))
    assert unused_wheels(tmp_path, ["", f"a==1 --hash={file_digest(one)}", ""]) == [two.name]
    assert unused_wheels(tmp_path, [file_digest(one), file_digest(two)]) == []
