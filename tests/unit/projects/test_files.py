"""The files of a project that its image is made of."""

from collections.abc import Mapping

import pytest

from torchbake.lock.project_inputs import is_package
from torchbake.projects.files import choose_files

BUILD = {"build-system": {"requires": ["hatchling"]}}
PACKAGE = {**BUILD, "project": {"name": "trainer"}}


def sizes(*paths: str) -> dict[str, int]:
    return dict.fromkeys(paths, 10)


def test_only_a_project_with_a_build_system_is_a_package() -> None:
    assert is_package(BUILD)
    assert not is_package({})
    assert not is_package({**BUILD, "tool": {"uv": {"package": False}}})
    assert is_package({"tool": {"uv": {"package": True}}})


def test_a_package_is_its_metadata_and_its_source() -> None:
    files = sizes("pyproject.toml", "README.md", "LICENSE", "src/trainer/a.py", "tests/b.py", "data/c.bin", "uv.lock")
    choice = choose_files({".": PACKAGE}, files, ["."])
    assert choice.files == ("pyproject.toml", "README.md", "LICENSE", "src/")
    assert not choice.left_out


def test_a_program_is_copied_without_tests_documents_and_data() -> None:
    files = {
        **sizes("train.py", "run.sh", "config.yaml", "models/unet.py", "data/loader.py", "prompts/a.txt"),
        **sizes(
            "pyproject.toml", "uv.lock", "README.md", "noxfile.py", "matrix.yaml", "matrix.schema.json", "conftest.py"
        ),
        **sizes(
            "tests/test_a.py", "docs/a.md", "notebooks/a.ipynb", "outputs/a.log", ".github/a.yml", "images/x/Dockerfile"
        ),
        "wheels/docopt-0.6.2-py2.py3-none-any.whl": 10,
        "pictures/a.bin": 200_000_000,
    }
    choice = choose_files({".": {}}, files, [])
    assert set(choice.files) == {*("train.py", "run.sh", "config.yaml", "models/", "data/", "prompts/")}
    assert choice.left_out == {
        "tests/": "tests",
        "docs/": "documents",
        "notebooks/": "documents",
        "outputs/": "data",
        **dict.fromkeys(("images/", "wheels/"), "torchbake's own"),
        "pictures/": "200 MB, more than 100 MB",
    }


def test_a_folder_of_data_alone_is_left_out() -> None:
    assert choose_files({".": {}}, sizes("a.py", "data/x.csv"), []).left_out == {"data/": "data"}


def test_paths_that_no_matrix_can_name_are_left_out() -> None:
    choice = choose_files({".": {}}, sizes("a.py", "my code/b.py", "layers/c.py"), [])
    assert choice.files == ("a.py",)
    assert choice.left_out.keys() == {"my code/", "layers/"}
    assert "toolkit" in choice.left_out["layers/"]


def test_members_of_a_workspace_are_packages_too() -> None:
    files = sizes("pyproject.toml", "app.py", "packages/core/pyproject.toml", "packages/core/src/core/a.py")
    files |= sizes("packages/core/tests/t.py", "packages/other/pyproject.toml", "packages/other/other/a.py")
    pyprojects: dict[str, Mapping[str, object]] = {".": {}, "packages/core": PACKAGE, "packages/other": BUILD}
    core = ("packages/core/pyproject.toml", "packages/core/src/")
    assert choose_files(pyprojects, files, ["packages/core"]).files == ("app.py", *core)
    # The root is a package as well.
    pyprojects["."] = {**PACKAGE, "project": {"name": "app"}}
    assert choose_files(pyprojects, files, [".", "packages/core"]).files == ("pyproject.toml", "app.py", *core)


HATCH = {"tool": {"hatch": {"build": {"targets": {"wheel": {"packages": ["lib/trainer"]}}}}}}
FIND = {"tool": {"setuptools": {"packages": {"find": {"where": ["python"]}}}}}
INCLUDE = {"tool": {"setuptools": {"packages": {"find": {"include": ["trainer*"]}}}}}
LISTED = {"tool": {"setuptools": {"packages": ["core", "core.ops"], "package-dir": {"": "lib"}, "py-modules": ["cli"]}}}
POETRY = {"tool": {"poetry": {"name": "t", "packages": [{"include": "trainer", "from": "lib"}], "include": ["a.json"]}}}
FLIT = {"tool": {"flit": {"module": {"name": "core"}}}}
UV = {"tool": {"uv": {"build-backend": {"module-root": "", "module-name": "core"}}}}
PDM = {"tool": {"pdm": {"build": {"package-dir": "lib", "includes": ["lib/core/**/*.py"]}}}}
TEXTS = {"project": {"readme": "docs/index.md", "license": {"file": "legal/MIT"}, "license-files": ["legal/*.txt"]}}
DYNAMIC = {"tool": {"setuptools": {"dynamic": {"dependencies": {"file": ["requirements/base.txt"]}}}}}
# A pyproject.toml, the files besides it, and the paths of the build.
BACKENDS: list[tuple[Mapping[str, object], tuple[str, ...], set[str]]] = [
    (HATCH, ("lib/trainer/a.py", "lib/other/b.py", "tools/c.py"), {"lib/trainer/"}),
    (FIND, ("python/a/b.py", "docs/c.py"), {"python/"}),
    (INCLUDE, ("trainer/a.py", "trainer_ops/b.py", "x/c.py"), {"trainer/", "trainer_ops/"}),
    (LISTED, ("lib/core/a.py", "lib/cli.py", "x/c.py"), {"lib/"}),
    (POETRY, ("lib/trainer/a.py", "a.json", "x/c.py"), {"lib/trainer/", "a.json"}),
    (FLIT, ("core/a.py", "x/c.py"), {"core/"}),
    (FLIT, ("core.py", "x/c.py"), {"core.py"}),
    (FLIT, ("src/core/a.py", "x/c.py"), {"src/core/"}),
    (UV, ("core/a.py", "x/c.py"), {"core/"}),
    (PDM, ("lib/core/a.py", "x/c.py"), {"lib/"}),
    (TEXTS, ("docs/index.md", "docs/b.md", "legal/MIT", "a/b.py"), {"docs/index.md", "legal/", "a/"}),
    (DYNAMIC, ("requirements/base.txt", "requirements/dev.txt", "a/b.py"), {"requirements/base.txt", "a/"}),
    ({"project": {"name": "My-Trainer"}}, ("my_trainer/a.py", "scripts/b.py", "other/c.py"), {"my_trainer/"}),
    ({"project": {"name": "one"}}, ("one.py", "two.py", "setup.py"), {"one.py", "setup.py"}),
    ({"project": {"name": "x"}}, ("a/b.py", "tests/c.py", "utils/d.py", "b/c.py"), {"a/", "b/"}),
    ({}, ("setup.py", "requirements.txt", "VERSION", "a/b.py"), {"setup.py", "requirements.txt", "VERSION", "a/"}),
    ({"project": "odd", "tool": {"setuptools": [], "poetry": {"packages": "x"}}}, ("src/a.py",), {"src/"}),
]


@pytest.mark.parametrize(("pyproject", "files", "expected"), BACKENDS)
def test_a_build_backend_says_where_the_source_is(
    pyproject: Mapping[str, object], files: tuple[str, ...], expected: set[str]
) -> None:
    choice = choose_files({".": {**BUILD, **pyproject}}, sizes("pyproject.toml", *files), [])
    assert set(choice.files) == {"pyproject.toml", *expected}
    assert not choice.left_out
