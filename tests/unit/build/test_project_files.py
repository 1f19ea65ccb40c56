"""The user's own files as texts for the digest: whatever is copied of them makes another image, nothing else does."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.certificates import AUTHORITY
from tests.unit.build.test_prepare import job
from tests.unit.builds import RUNTIME, small_project
from torchbake.build.project_files import own_inputs
from torchbake.errors import RenderError
from torchbake.matrix.project import load_project


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "conf/sub").mkdir(parents=True)
    (tmp_path / "conf/a.yaml").write_text("a")
    (tmp_path / "conf/sub/b.yaml").write_text("b")
    (tmp_path / "job.py").write_text("job")
    return tmp_path


CHANGES: list[Callable[[Path], object]] = [
    lambda root: (root / "conf/a.yaml").write_text("A"),
    lambda root: (root / "conf/sub/b.yaml").rename(root / "conf/sub/c.yaml"),
    lambda root: (root / "job.py").chmod(0o755),
    lambda root: (root / "conf/empty").mkdir(),
    lambda root: (root / "conf/link").symlink_to("a.yaml"),
]


@pytest.mark.parametrize("modes", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_file_is_another_text(change: Callable[[Path], object], modes: bool, root: Path) -> None:
    before = own_inputs(root, dict.fromkeys(("conf", "job.py"), modes))
    change(root)
    assert own_inputs(root, dict.fromkeys(("conf", "job.py"), modes)) != before


@pytest.mark.parametrize("modes", [True, False])
def test_times_bytecode_and_other_files_change_nothing(modes: bool, root: Path) -> None:
    before = own_inputs(root, dict.fromkeys(("conf", "job.py"), modes))
    (root / "other.txt").write_text("x")
    (root / "conf/__pycache__").mkdir()
    (root / "conf/__pycache__/a.pyc").write_text("x")
    (root / "conf/a.yaml").touch()
    assert own_inputs(root, dict.fromkeys(("conf", "job.py"), modes)) == before


@pytest.mark.parametrize(("modes", "matters"), [(True, True), (False, False)])
@pytest.mark.parametrize(
    ("name", "mode"), [("job.py", 0o600), ("job.py", 0o4644), ("conf", 0o750), ("conf/sub", 0o700)]
)
def test_a_mode_counts_where_the_image_has_it(name: str, mode: int, modes: bool, matters: bool, root: Path) -> None:
    sources = dict.fromkeys(("conf", "job.py"), modes)
    before = own_inputs(root, sources)
    (root / name).chmod(mode)
    assert (own_inputs(root, sources) != before) is matters


@pytest.mark.parametrize("sources", [("conf", "job.py"), ("con?", "job.py"), ("conf/*", "job.py")])
def test_what_the_dockerignore_leaves_out_counts_for_nothing(sources: tuple[str, ...], root: Path) -> None:
    (root / ".dockerignore").write_text("conf/sub/*.log\n**/.env\n")
    before = own_inputs(root, dict.fromkeys(sources, False))
    for name in ("conf/.env", "conf/sub/a.log"):
        (root / name).write_text("x")
    assert own_inputs(root, dict.fromkeys(sources, False)) == before
    (root / ".dockerignore").write_text("")
    assert own_inputs(root, dict.fromkeys(sources, False)) != before


def test_a_named_file_counts_whatever_the_dockerignore_says(root: Path) -> None:
    before = own_inputs(root, {"conf": True, "job.py": True, "*.py": True})
    (root / ".dockerignore").write_text("*\n")
    assert own_inputs(root, {"conf": True, "job.py": True, "*.py": True}) == before


def test_a_glob_means_what_fits_it(root: Path) -> None:
    assert [text.partition("\n")[0] for text in own_inputs(root, {"conf/*.yaml": False})] == ["conf/a.yaml"]


@pytest.mark.parametrize("source", ["nothing.txt", "conf/*.json"])
def test_what_is_not_there_is_an_error(source: str, root: Path) -> None:
    with pytest.raises(RenderError, match="no such file, which a Dockerfile copies"):
        own_inputs(root, {source: False})


def test_a_certificate_is_in_the_digest_and_its_build_sees_it(tmp_path: Path) -> None:
    root = small_project(tmp_path / "project").root
    matrix = root / "matrix.yaml"
    before = job(load_project(matrix)).inputs
    ignore = root / "images" / RUNTIME / "Dockerfile.dockerignore"
    assert not ignore.exists()
    (root / "acme.pem").write_text(AUTHORITY)
    plain = matrix.read_text()
    matrix.write_text(plain.replace("    accelerator: cpu\n", "    accelerator: cpu\n    certificates: [acme.pem]\n"))
    first = job(load_project(matrix)).inputs
    assert "!acme.pem\n" in ignore.read_text()
    (root / "acme.pem").write_text(f"# of 2026\n{AUTHORITY}")
    assert len({before, first, job(load_project(matrix)).inputs}) == 3
    matrix.write_text(plain)
    assert job(load_project(matrix)).inputs == before
    assert not ignore.exists()


def with_template(folder: Path, line: str) -> Path:
    """A project whose template adds a line; its matrix."""
    root = small_project(folder / "project").root
    (root / "templates").mkdir()
    text = f'{{% extends "toolkit/pytorch.Dockerfile.j2" %}}{{% block end %}}{line}{{% endblock %}}'
    (root / "templates/pytorch.Dockerfile.j2").write_text(text)
    return root / "matrix.yaml"


@pytest.mark.parametrize("name", ["entrypoints/mine", "layers/mine/a.sh", "images/mine.txt"])
@pytest.mark.parametrize("line", ["COPY {} /x", "RUN --network=none --mount=type=bind,source={},target=/x true"])
def test_an_own_file_counts_whatever_its_folder_is_called(name: str, line: str, tmp_path: Path) -> None:
    matrix = with_template(tmp_path, line.format(name))
    file = matrix.parent / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("a")
    before = job(load_project(matrix)).inputs
    file.write_text("b")
    assert job(load_project(matrix)).inputs != before


def test_the_dockerignore_of_an_image_has_the_projects_own_in_it(tmp_path: Path) -> None:
    matrix = with_template(tmp_path, "COPY src /x")
    for name, text in {"src/.env": "secret", "src/a": "a", ".dockerignore": "**/.env\n"}.items():
        (matrix.parent / name).parent.mkdir(exist_ok=True)
        (matrix.parent / name).write_text(text)
    before = job(load_project(matrix)).inputs
    assert "\n**/.env\n" in (matrix.parent / "images" / RUNTIME / "Dockerfile.dockerignore").read_text()
    (matrix.parent / "src/.env").write_text("another")
    assert job(load_project(matrix)).inputs == before


def test_what_a_template_cannot_copy_is_told_with_the_image(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match=r"j2:[0-9]+: copies it's"):
        job(load_project(with_template(tmp_path, "COPY it's /x")))
