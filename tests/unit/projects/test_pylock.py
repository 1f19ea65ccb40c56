"""The packages of a pylock.toml for one Python: markers, files, sources, and the lines of messages."""

import pytest

from torchbake.errors import LockError
from torchbake.projects.packages import Archive, Folder, GitSource, ProjectPackage, Sdist, WheelSource
from torchbake.projects.pylock import lines_of, parse_pylock, select_packages

HASH = "1" * 64
HEAD = 'lock-version = "1.0"\ncreated-by = "x"\nextras = ["fast"]\ndependency-groups = ["serve"]\n'


def select(
    packages: str, python: str = "3.11", head: str = "", **choices: tuple[str, ...]
) -> dict[str, ProjectPackage]:
    text = HEAD + head + packages
    lock, lines = parse_pylock(text, "pylock.toml"), lines_of(text, "pylock.toml")
    return {each.name: each for each in select_packages(lock, lines, python, **choices)}


def package(name: str, rest: str) -> str:
    return f'[[packages]]\nname = "{name}"\nversion = "1"\n{rest}\n'


def file(name: str, size: int = 5) -> str:
    return f'{{ url = "https://me:secret@x.example/{name}", size = {size}, hashes = {{ sha256 = "{HASH}" }} }}'


def test_each_source_has_its_kind() -> None:
    wheels = f"[{file('a-1-cp311-cp311-manylinux_2_28_x86_64.whl', 7)}, {file('a-1-py3-none-any.whl')}]"
    cases = {
        f'index = "https://me:secret@x.example/simple"\nwheels = {wheels}': (WheelSource, 7),
        f"sdist = {file('a-1.tar.gz')}\nwheels = [{file('a-1-cp311-cp311-win_amd64.whl')}]": (Sdist, 0),
        'vcs = { type = "git", url = "https://x.example/a", commit-id = "0123", subdirectory = "py" }': (GitSource, 0),
        'directory = { path = "packages", subdirectory = "a" }': (Folder, 0),
        f"archive = {file('a-1.zip', 9)}": (Archive, 9),
    }
    for rest, (kind, size) in cases.items():
        one = select(package("a", rest))["a"]
        assert isinstance(one.source, kind), rest
        assert (one.version, one.size) == ("1", size)
        assert "secret" not in one.index
    assert select(package("a", 'directory = { path = "packages", subdirectory = "a" }'))["a"].source == Folder(
        path="packages/a"
    )


def test_markers_extras_and_groups_choose() -> None:
    markers = {
        "a": "python_version < '3.12'",
        "b": "sys_platform == 'darwin' or platform_machine == 'aarch64'",
        "c": "'fast' in extras",
        "d": "'serve' in dependency_groups",
        "e": "platform_system == 'Linux' and implementation_name == 'cpython'",
    }
    text = "".join(
        package(name, f'marker = "{marker}"\nwheels = [{file(name + "-1-py3-none-any.whl")}]')
        for name, marker in markers.items()
    )
    assert {*select(text)} == {"a", "e"}
    assert {*select(text, "3.13", extras=("fast",), groups=("serve",))} == {"c", "d", "e"}


def test_the_patch_release_of_the_base_is_free() -> None:
    wheel = package("a", f"wheels = [{file('a-1-py3-none-any.whl')}]\nmarker = \"python_full_version < '3.11.5'\"")
    assert {*select(wheel, head='requires-python = ">=3.11.4"\n')} == {"a"}
    assert {*select(wheel, head='requires-python = ">=3.11.6"\n')} == set()
    with pytest.raises(LockError, match=r"pylock\.toml:5: requires Python"):
        select(wheel, "3.12", head='requires-python = ">=3.9,<3.12"\n')


def test_a_missing_wheel_is_reported_with_other_platforms() -> None:
    wheels = f"wheels = [{file('a-1-cp39-cp39-manylinux_2_28_x86_64.whl')}, {file('a-1-cp311-cp311-win_amd64.whl')}]"
    with pytest.raises(LockError, match=r"pylock\.toml:6: a 1 .*cp311-cp311-win_amd64, cp39-cp39-manylinux"):
        select(package("a", wheels))
