"""`images/bases.lock`: the bases of a fleet replace those of the matrix."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.builds import DEVEL, INIT, RUNTIME, small_project, spec_of
from tests.unit.conftest import edited
from torchbake.errors import LockError, MatrixError
from torchbake.matrix.base_lock import base_lock_path, format_base_lock, pushed_base, read_base_lock
from torchbake.matrix.project import Project, load_project
from torchbake.oci.reference import parse_reference

DIGEST = f"sha256:{'1' * 64}"
IMAGE = f"ghcr.io/acme/debian12:bookworm-111111111111@{DIGEST}"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose base is locked."""
    project = small_project(tmp_path)
    base = spec_of(project, RUNTIME).base
    base_lock_path(tmp_path).write_text(format_base_lock({base.name: pushed_base(base, parse_reference(IMAGE))}))
    return project


def test_a_lock_is_read_as_it_was_written(project: Project) -> None:
    base = spec_of(project, RUNTIME).base
    (name, pushed), *others = read_base_lock(project.root).items()
    assert (name, pushed, others) == (base.name, pushed_base(base, parse_reference(IMAGE)), [])
    assert pushed.reference.digest == DIGEST
    path = base_lock_path(project.root)
    path.write_text(format_base_lock({"ubuntu24.04": pushed, "debian12": pushed}))
    assert read_base_lock(project.root) == {"debian12": pushed, "ubuntu24.04": pushed}


def test_all_images_take_the_locked_base(project: Project) -> None:
    matrix = project.root / "matrix.yaml"
    loaded = load_project(matrix)
    names = (RUNTIME, DEVEL, INIT)
    assert {spec_of(loaded, name).base.image for name in names if spec_of(loaded, name).base.name == "debian12"} == {
        IMAGE
    }
    base = spec_of(loaded, RUNTIME).base
    assert (base.digest, base.image_name) == (DIGEST, IMAGE.partition("@")[0])
    assert load_project(matrix, locked_bases=False).expansion == project.expansion
    assert base == replace(spec_of(project, RUNTIME).base, image=IMAGE)


@pytest.mark.parametrize(
    ("old", "new"),
    [("debian:bookworm-slim", "debian:12"), ("suite: bookworm", "suite: oldstable"), ('"3.11"', '"3.12"')],
)
def test_a_lock_of_another_matrix_is_an_error(project: Project, old: str, new: str) -> None:
    matrix = project.root / "matrix.yaml"
    text = matrix.read_text()
    assert old in text
    matrix.write_text(text.replace(old, new))
    with pytest.raises(LockError, match="debian12 is of") as caught:
        load_project(matrix)
    assert "--push" in (caught.value.hint or "")
    assert load_project(matrix, locked_bases=False)


@pytest.mark.parametrize(("name", "header"), [("debian21", "[debian21]"), ("ubuntu24.04", '["ubuntu24.04"]')])
def test_a_base_that_the_matrix_lacks_has_its_line(project: Project, name: str, header: str) -> None:
    path, pushed = base_lock_path(project.root), read_base_lock(project.root)["debian12"]
    path.write_text(format_base_lock({"debian12": pushed, "debian13-arm64": pushed, name: pushed}))
    line = 1 + path.read_text().splitlines().index(header)
    with pytest.raises(LockError) as caught:
        load_project(project.root / "matrix.yaml")
    assert f"{path}:{line}: the matrix has no base {name!r}; " in caught.value.message
    assert f"[{name}]" in (caught.value.hint or "")
    assert load_project(project.root / "matrix.yaml", locked_bases=False)


def test_the_remedy_names_the_platform_of_the_base(project: Project) -> None:
    """`debian12` alone would choose no image for arm64."""
    matrix = project.root / "matrix.yaml"
    matrix.write_text(edited("defaults:\n", "defaults:\n  platforms: [linux/amd64, linux/arm64]\n"))
    base = next(spec.base for spec in load_project(matrix, locked_bases=False).expansion.specs if "arm" in spec.id)
    other = replace(pushed_base(base, parse_reference(IMAGE)), python="3.1")
    base_lock_path(project.root).write_text(format_base_lock({base.id: other}))
    with pytest.raises(LockError) as caught:
        load_project(matrix)
    assert "base -- debian12 arm64 --push" in (caught.value.hint or "")


DAMAGES = {
    "no TOML": "[debian12\n",
    "no table": 'debian12 = "x"\n',
    "a key is missing": f'[debian12]\nimage = "{IMAGE}"\n',
    "no digest": '[debian12]\nimage = "debian:12"\nmatrix_image = "debian"\nsystem = "debian x"\npython = "3.11"\n',
    "no text": f'[debian12]\nimage = "{IMAGE}"\nmatrix_image = 1\nsystem = "debian x"\npython = "3.11"\n',
    "no format": 'format = "one"\n',
    "no number of a format": "format = 0\n",
    "no reference": '[debian12]\nimage = "A b@c"\nmatrix_image = "debian"\nsystem = "debian x"\npython = "3.11"\n',
}


def test_a_base_may_have_the_name_of_a_key(project: Project) -> None:
    pushed = pushed_base(spec_of(project, RUNTIME).base, parse_reference(IMAGE))
    base_lock_path(project.root).write_text(format_base_lock({"format": pushed}))
    assert read_base_lock(project.root) == {"format": pushed}


@pytest.mark.parametrize("text", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_lock_names_its_file(project: Project, text: str) -> None:
    path = base_lock_path(project.root)
    path.write_text(text)
    with pytest.raises(LockError) as caught:
        load_project(project.root / "matrix.yaml")
    assert str(path) in caught.value.message


def test_no_base_has_the_name_of_another_lock(project: Project) -> None:
    matrix = project.root / "matrix.yaml"
    for name, match in (("bases", r"bases\.lock"), ("builder", r"builder\.lock"), ("debian12-arm64", "for a platform")):
        text = matrix.read_text().replace(
            "bases:\n", f"bases:\n  {name}: {{image: debian, suite: sid, python: '3.13'}}\n"
        )
        (project.root / "other.yaml").write_text(text)
        with pytest.raises(MatrixError, match=match):
            load_project(project.root / "other.yaml")
