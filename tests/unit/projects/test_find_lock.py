"""Find the lock of a project, and refuse a project without a lock."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from torchbake.errors import LockError, TorchbakeError, UsageError
from torchbake.projects.find_lock import LOCKS, LockPlace, find_lock

CONDA = "name: x\ndependencies:\n  - python=3.11\n  - pip\n  - pip:\n    - einops\n    - timm==1.0\n"
WORKSPACE = '[tool.uv.workspace]\nmembers = ["packages/*"]\nexclude = ["packages/old"]\n'
MEMBER = '[project]\nname = "My_A"\n[build-system]\nrequires = []\n'


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


# The files below the matrix's folder; the path of --from; the folder and the lock.
PLACES: list[tuple[Mapping[str, str], str, LockPlace]] = [
    *(
        (dict.fromkeys((f"app/{name}" for name in LOCKS[number:]), ""), "app", LockPlace(folder="app", lock=lock))
        for number, lock in enumerate(LOCKS)
    ),
    ({"uv.lock": "", "environment.yml": CONDA}, ".", LockPlace(folder=".", lock="uv.lock")),
    ({"a/b/uv.lock": ""}, "a/b", LockPlace(folder="a/b", lock="uv.lock")),
    ({"uv.lock": "", "pyproject.toml": ""}, "pyproject.toml", LockPlace(folder=".", lock="pyproject.toml")),
    (
        {"app/pylock.gpu.toml": "", "app/uv.lock": ""},
        "app/pylock.gpu.toml",
        LockPlace(folder="app", lock="pylock.gpu.toml"),
    ),
    # A lock in a folder without code belongs to the folder above.
    (
        {"app/requirements/gpu.txt": "", "app/main.py": ""},
        "app/requirements/gpu.txt",
        LockPlace(folder="app", lock="requirements/gpu.txt"),
    ),
    ({"app/gpu.txt": ""}, "app/gpu.txt", LockPlace(folder="app", lock="gpu.txt")),
    (
        {"pyproject.toml": WORKSPACE, "packages/old/pyproject.toml": ""},
        "packages/old",
        LockPlace(folder="packages/old", lock="pyproject.toml"),
    ),
    (
        {"w/pyproject.toml": WORKSPACE, "w/uv.lock": "", "w/packages/a/pyproject.toml": MEMBER},
        "w/packages/a",
        LockPlace(folder="w", lock="uv.lock", member="packages/a", package="my-a"),
    ),
    (
        {"pyproject.toml": "[tool.uv.workspace]\nmembers = [3]\nexclude = 3\n", "a/pyproject.toml": ""},
        "a",
        LockPlace(folder="a", lock="pyproject.toml"),
    ),
]


@pytest.mark.parametrize(
    ("files", "start", "expected"), PLACES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_first_lock_of_a_project_is_found(
    files: Mapping[str, str], start: str, expected: LockPlace, tmp_path: Path
) -> None:
    write(tmp_path, files)
    assert find_lock(tmp_path, tmp_path / start) == expected


# The files; the path of --from; the error and parts of its message.
REFUSED: dict[str, tuple[Mapping[str, str], str, type[TorchbakeError], tuple[str, ...]]] = {
    "missing": ({}, "app", UsageError, ("app: there is no such file or folder",)),
    "outside": ({}, "../", UsageError, ("outside of", "beside or above", "init ")),
    "empty": (
        {"app/x": ""},
        "app",
        UsageError,
        ("uv.lock, pylock.toml, requirements.txt or pyproject.toml", "uv add torch"),
    ),
    "other names": ({"requirements/gpu.txt": ""}, ".", UsageError, ("--from", "requirements/gpu.txt")),
    "conda": ({"environment.yml": CONDA}, ".", LockError, ("environment.yml:5", "pip part (2)", "uv pip compile")),
    "conda file": ({"env.yaml": CONDA, "uv.lock": ""}, "env.yaml", LockError, ("env.yaml:5", "requirements.in")),
    "conda without pip": ({"conda.yml": "dependencies: [pytorch]"}, ".", LockError, ("without pip", "uv pip compile")),
    "other YAML": ({"a.yml": "a: ["}, "a.yml", LockError, ("a.yml", "no conda environment")),
    "poetry": (
        {"poetry.lock": "", "pyproject.toml": ""},
        ".",
        LockError,
        ("poetry.lock", "poetry export", "pyproject.toml"),
    ),
    "pdm": ({"pdm.lock": ""}, "pdm.lock", LockError, ("pdm export -f pylock",)),
    "a member without a lock": (
        {"pyproject.toml": WORKSPACE, "packages/a/pyproject.toml": MEMBER},
        "packages/a",
        UsageError,
        ("member of the uv workspace", "whose uv.lock decides", "uv lock --project"),
    ),
    "a member that is no package": (
        {"pyproject.toml": WORKSPACE, "uv.lock": "", "packages/a/pyproject.toml": '[project]\nname = "a"\n'},
        "packages/a",
        UsageError,
        ("member of the uv workspace", "is no package", "[build-system]"),
    ),
    "a workspace above the matrix": (
        {
            "../pyproject.toml": '[tool.uv.workspace]\nmembers = ["root/*"]\n',
            "../uv.lock": "",
            "a/pyproject.toml": MEMBER,
        },
        "a",
        UsageError,
        ("member of the uv workspace", "Name the workspace's folder", "init "),
    ),
    "a program": ({"main.py": ""}, "main.py", UsageError, ("main.py is no lock",)),
    "no name of a pylock": ({"pylockX.toml": ""}, "pylockX.toml", UsageError, ("'pylockX.toml'", "pylock.NAME.toml")),
    "a pylock with two names": (
        {"pylock.a.b.toml": ""},
        "pylock.a.b.toml",
        UsageError,
        ("'pylock.a.b.toml'", "Rename"),
    ),
    "a name with a space": ({"my app/uv.lock": ""}, "my app", UsageError, ("'my app'", "Rename it")),
    "torchbake's folder": ({"images/uv.lock": ""}, "images", UsageError, ("'images'",)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_project_without_a_lock_is_refused(name: str, tmp_path: Path) -> None:
    files, start, kind, parts = REFUSED[name]
    root = tmp_path / "root"
    root.mkdir()
    write(root, files)
    with pytest.raises(kind) as refused:
        find_lock(root, root / start)
    assert [part for part in parts if part not in refused.value.sentence] == [], refused.value.sentence


def test_an_unreadable_folder_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(UsageError, match="permission denied"):
        find_lock(tmp_path, tmp_path)


def test_a_link_to_another_place_is_outside(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    write(tmp_path, {"other/uv.lock": ""})
    (tmp_path / "root/app").symlink_to(tmp_path / "other")
    with pytest.raises(UsageError, match="outside of"):
        find_lock(tmp_path / "root", tmp_path / "root/app")


def test_paths_in_messages_are_those_of_the_matrix() -> None:
    assert LockPlace(folder=".", lock="uv.lock").path("uv.lock") == "uv.lock"
    member = LockPlace(folder="a", lock="uv.lock", member="b", package="b")
    assert member.own_files("pyproject.toml") == ("b/pyproject.toml", "pyproject.toml")
    assert LockPlace(folder="a", lock="uv.lock").own_files("pyproject.toml") == ("pyproject.toml",)
    assert LockPlace(folder="a/b", lock="uv.lock").path("pyproject.toml") == "a/b/pyproject.toml"
