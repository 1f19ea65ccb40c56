"""The indexes of a project's lock, and their names."""

from pathlib import Path

from torchbake.hostconfig.project_index import ProjectIndex
from torchbake.matrix.spec import ProjectSpec
from torchbake.projects.package_sources import indexes_of

PYPROJECT = """\
[[tool.uv.index]]
name = "acme"
url = "https://pypi.acme.example/simple/"
[[tool.uv.index]]
name = "unused"
url = "https://unused.example/simple"
[[tool.uv.index]]
name = "pytorch-cpu"
url = "https://download.pytorch.org/whl/cpu"
"""
LOCKS = {
    "uv.lock": """\
[[package]]
name = "a"
source = { registry = "https://pypi.acme.example/simple" }
[[package]]
name = "b"
source = { registry = "https://pypi.org/simple" }
[[package]]
name = "c"
source = { registry = "https://other.example/simple" }
[[package]]
name = "torch"
source = { registry = "https://download.pytorch.org/whl/cpu" }
[[package]]
name = "d"
source = { registry = "vendor" }
""",
    "pylock.toml": """\
[[packages]]
name = "a"
index = "https://pypi.acme.example/simple/"
[[packages]]
name = "b"
index = "https://other.example/simple"
""",
    "requirements.txt": """\
--index-url https://pypi.acme.example/simple
--extra-index-url=https://other.example/simple
a==1
""",
}
ACME = ProjectIndex(name="acme", url="https://pypi.acme.example/simple/")
OTHER = ProjectIndex(name="", url="https://other.example/simple")


def indexes(root: Path, lock: str) -> tuple[ProjectIndex, ...]:
    return indexes_of(root, ProjectSpec(folder="trainer", lock=lock))


def test_the_indexes_of_each_kind_of_lock_have_their_names(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    for name, text in LOCKS.items():
        (tmp_path / "trainer" / name).write_text(text)
    assert indexes(tmp_path, "uv.lock")[0] == ProjectIndex(name="", url="https://pypi.acme.example/simple")
    (tmp_path / "trainer/pyproject.toml").write_text(PYPROJECT)
    for name in LOCKS:
        assert indexes(tmp_path, name) == (ACME, OTHER), name
    unused = ProjectIndex(name="unused", url="https://unused.example/simple")
    assert indexes(tmp_path, "pyproject.toml") == (ACME, unused)


def test_files_that_cannot_be_read_have_no_indexes(tmp_path: Path) -> None:
    assert indexes(tmp_path, "uv.lock") == ()
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/uv.lock").write_bytes(b"\xff")
    for text in ("no toml", "[tool]\nuv = 1\n", "[tool.uv]\nindex = [1]\n", '[[tool.uv.index]]\nname = "a"\n'):
        (tmp_path / "trainer/pyproject.toml").write_text(text)
        assert indexes(tmp_path, "uv.lock") == (), text
        assert indexes(tmp_path, "pyproject.toml") == (), text


def test_variables_in_requirements_are_expanded_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    addresses = (
        "https://${USER_1}:${TOKEN}@a.example/simple",
        "https://b.example/${TOKEN}",
        "https://${OTHER}@c.example",
    )
    (tmp_path / "trainer/requirements.txt").write_text("".join(f"--extra-index-url {each}\n" for each in addresses))
    project = ProjectSpec(folder="trainer", lock="requirements.txt")
    first, second = indexes_of(tmp_path, project, {"USER_1": "me", "TOKEN": "secret"})
    assert (first.url, first.public_url) == ("https://me:secret@a.example/simple", "https://a.example/simple")
    assert (second.url, second.public_url) == ("https://b.example/secret", "https://b.example/${TOKEN}")
