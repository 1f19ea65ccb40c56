"""The differences of an image from an earlier commit; tests/e2e/test_list.py runs git itself."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.builds import RUNTIME, small_project
from tests.unit.conftest import SMALL, edited, image, init_image
from torchbake.build.changes import Earlier, Files, _specs, changed_below, files_of, read_earlier, why_changed
from torchbake.core.files import write_text
from torchbake.core.paths import TOOLKIT
from torchbake.errors import UsageError
from torchbake.matrix.project import load_project

OURS = image()
FOLDER = Path("/work/images") / OURS.id
PATHS = (FOLDER / "Dockerfile", FOLDER / "requirements.lock", Path("/work/images/builder.lock"), TOOLKIT / "layers/a")
NOW = dict.fromkeys(PATHS, b"the same")
THEN = Earlier(ref="main", commit="c0ffee", files=NOW, specs={OURS.id: OURS})


def test_nothing_has_changed_where_row_and_files_are_the_same() -> None:
    specs = {OURS.id: replace(OURS, line=99)}
    assert why_changed(OURS, PATHS, NOW, THEN) == why_changed(OURS, PATHS, NOW, replace(THEN, specs=specs)) == ""


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        (replace(THEN, specs={}), "not in the matrix of main"),
        (replace(THEN, problem="it is empty"), "the matrix of main cannot be read: it is empty"),
        (replace(THEN, specs={OURS.id: image(pip=("numpy", "einops"))}), "its row changed: pip"),
        (replace(THEN, specs={OURS.id: init_image(OURS.id)}), "its row changed: kind"),
        (replace(THEN, files={}), "changed: Dockerfile, requirements.lock, builder.lock +1"),
        (replace(THEN, files={PATHS[3]: b"the same"}), "changed: Dockerfile, requirements.lock, builder.lock"),
    ],
)
def test_the_reason_says_what_has_changed(then: Earlier, reason: str) -> None:
    assert why_changed(OURS, PATHS, NOW, then) == reason


@pytest.mark.parametrize(
    ("path", "name"), list(zip(PATHS, ("Dockerfile", "requirements.lock", "builder.lock", "layers/a"), strict=True))
)
@pytest.mark.parametrize("data", [b"another", None])
def test_any_file_counts_also_one_that_is_gone_or_new(path: Path, name: str, data: bytes | None) -> None:
    other: Files = {**NOW, path: data} if data else {key: value for key, value in NOW.items() if key != path}
    assert why_changed(OURS, PATHS, other, THEN) == f"changed: {name}"
    assert why_changed(OURS, PATHS, NOW, replace(THEN, files=other)) == f"changed: {name}"


def test_a_matrix_of_then_is_read_by_the_rules_of_now() -> None:
    path = Path("/work/matrix.yaml")
    specs, problem = _specs(SMALL.encode(), path)
    assert "volume-permissions" in specs
    assert not problem
    for data in (edited("rows:", "rowz:").encode(), b"\xff"):
        specs, problem = _specs(data, path)
        assert not specs
        assert problem
    assert _specs(None, path) == ({}, "")


def commit_all(folder: Path) -> None:
    """Make a repository of a folder, with a commit of all its files."""
    git = ("git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)


@pytest.mark.usefixtures("own_processes")
def test_files_of_a_commit_are_read_from_git(tmp_path: Path) -> None:
    """In a project below the repository's root, with files that git does not have, and one outside the repository."""
    project = small_project(tmp_path / "repository/project")
    inside = [project.root / name for name in ("empty", "of lines", "binary", "untracked", "folder")]
    contents = (b"", b"a\nb blob 3\n", bytes(range(256)))
    for path, data in zip(inside, contents, strict=False):
        path.write_bytes(data)
    commit_all(tmp_path / "repository")
    for path in inside[:4]:
        path.write_bytes(b"changed since")
    outside = tmp_path / "outside"
    outside.write_bytes(b"as it is now")
    then = read_earlier(project, "HEAD", [*reversed(inside), outside])
    assert {**then.files} == {
        **dict(zip(inside, contents, strict=False)),
        outside: b"as it is now",
        project.document.path: project.document.path.read_bytes(),
    }
    assert {*then.specs} == {spec.id for spec in project.expansion.specs}
    assert (then.ref, len(then.commit), then.problem) == ("HEAD", 40, "")
    assert read_earlier(project, "0" * 40, inside) == Earlier(ref="no commit", commit="", files={}, specs={})
    with pytest.raises(UsageError, match="git knows no commit 'gone' here"):
        read_earlier(project, "gone", inside)
    with pytest.raises(UsageError, match="is in no git repository"):
        read_earlier(small_project(tmp_path / "alone"), "HEAD", [])


def test_each_image_depends_on_its_own_locks(tmp_path: Path) -> None:
    """Wheels and their builder belong to PyTorch images, Debian packages to all images on a base."""
    project = small_project(tmp_path)
    images = project.root / "images"
    debian = images / "debian12.lock"
    for name, locks in (
        (RUNTIME, {images / RUNTIME / "requirements.lock", images / "builder.lock", debian}),
        ("volume-permissions", {debian}),
    ):
        paths = files_of(project)[name]
        assert images / name / "Dockerfile" in paths
        assert {path for path in paths if path.suffix == ".lock"} == locks


def test_only_images_with_own_files_depend_on_their_script(tmp_path: Path) -> None:
    matrix = small_project(tmp_path / "project").root / "matrix.yaml"
    (matrix.parent / "a.txt").write_text("a")
    script = TOOLKIT / "layers/own-files"
    assert script not in files_of(load_project(matrix))[RUNTIME]
    own = "    files: [{source: a.txt, target: /etc/a.txt}]\n"
    matrix.write_text(matrix.read_text().replace("    accelerator: cpu\n", f"    accelerator: cpu\n{own}"))
    assert script in files_of(load_project(matrix))[RUNTIME]


@pytest.mark.usefixtures("own_processes")
def test_of_own_files_those_count_that_images_get(tmp_path: Path) -> None:
    project = small_project(tmp_path / "project")
    commit_all(project.root)
    then = read_earlier(project, "HEAD", [])
    assert changed_below(project, then, ("src",)) == []
    for name in ("src/a", "src/.env", "src/__pycache__/a.pyc", "other/a"):
        write_text(project.root / name, "a")
    assert changed_below(project, then, ("src",)) == changed_below(project, then, ("sr?",)) == ["src/.env", "src/a"]
    (project.root / ".dockerignore").write_text("*\n!src\n**/.env\n")
    assert changed_below(project, then, ("src",)) == [".dockerignore", "src/a"]
    assert changed_below(project, then, ()) == changed_below(project, replace(then, commit=""), ("src",)) == []


@pytest.mark.usefixtures("own_processes")
def test_an_untracked_toolkit_is_like_an_installed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = small_project(tmp_path)
    tracked, untracked = (tmp_path / "toolkit" / name for name in ("tracked", "untracked"))
    write_text(tracked, "then")
    commit_all(tmp_path)
    for path in (tracked, untracked):
        write_text(path, "now")
    monkeypatch.setattr("torchbake.build.changes.TOOLKIT", tmp_path / "toolkit")
    files = read_earlier(project, "HEAD", [tracked, untracked]).files
    assert (files[tracked], files[untracked]) == (b"then", b"now")


def test_a_changed_lock_names_its_packages() -> None:
    old, new = (f"numpy=={numpy} \\\n    --hash=sha256:{'a' * 64}\n".encode() for numpy in ("2.1.0", "2.2.0"))
    then = replace(THEN, files={**NOW, PATHS[1]: old})
    assert why_changed(OURS, PATHS, {**NOW, PATHS[1]: new}, then) == f"changed: {PATHS[1].name}: numpy 2.1.0 → 2.2.0"
    for now in ({**NOW, PATHS[1]: b"no pins"}, {path: data for path, data in NOW.items() if path != PATHS[1]}):
        assert why_changed(OURS, PATHS, now, then) == f"changed: {PATHS[1].name}"
        assert why_changed(OURS, PATHS, then.files, replace(then, files=now)) == f"changed: {PATHS[1].name}"
