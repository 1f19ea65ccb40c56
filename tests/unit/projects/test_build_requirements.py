"""The wheels that build a project's packages: which requirements they have, and when they are resolved again."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Pin
from torchbake.lock.uv import UvRequest
from torchbake.matrix.spec import ProjectSpec
from torchbake.projects import build_requirements
from torchbake.projects.build_requirements import are_enough, pins_of_build

PROJECT = ProjectSpec(folder="trainer", lock="uv.lock")
HASH = "sha256:" + "0" * 64
PINS = (
    Pin(name="hatchling", version="1.27.0", hashes=(HASH,)),
    Pin(name="packaging", version="25.0", hashes=(HASH,), via=("hatchling",)),
)
PREVIOUS = f"""\
# Locked by torchbake.
# inputs: project trainer/uv.lock sha256:0; python 3.11; x86_64-manylinux_2_28
#
# --- layer site
numpy==2.0 \\
    --hash={HASH}
#
# --- layer build
hatchling==1.27.0 \\
    --hash={HASH}
packaging==25.0 \\
    --hash={HASH}
    # via hatchling
"""


class Uv:
    """In place of uv: the questions, and one answer to all of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.questions: list[UvRequest] = []
        monkeypatch.setattr(build_requirements, "resolve", self)

    def __call__(self, question: UvRequest, config: PipConfig) -> tuple[Pin, ...]:
        self.questions.append(question)
        if "none" in question.requirements:
            raise LockError("uv found no versions that fit: none")
        return PINS


@pytest.fixture
def uv(monkeypatch: pytest.MonkeyPatch) -> Uv:
    return Uv(monkeypatch)


def package(root: Path, folder: str, table: str) -> None:
    (root / "trainer" / folder).mkdir(parents=True, exist_ok=True)
    (root / "trainer" / folder / "pyproject.toml").write_text(f'[project]\nname = "a"\n\n[build-system]\n{table}')


def pins(
    root: Path, *folders: str, python: str = "3.11", previous: str = PREVIOUS, project: ProjectSpec = PROJECT
) -> Sequence[Pin]:
    return pins_of_build(root, project, folders or (".",), python, PipConfig(), previous=previous)


def test_pins_that_fit_are_kept_without_a_question(tmp_path: Path, uv: Uv) -> None:
    package(tmp_path, ".", 'requires = ["Hatchling>=1.20"]')
    assert pins(tmp_path) == PINS
    assert not uv.questions


def test_pins_that_may_not_fit_are_resolved_as_preferences(tmp_path: Path, uv: Uv) -> None:
    package(tmp_path, ".", 'requires = ["hatchling"]')
    for previous, python in (
        ("", "3.11"),
        (PREVIOUS, "3.12"),
        (PREVIOUS.replace(f" \\\n    --hash={HASH}", ""), "3.11"),
    ):
        uv.questions.clear()
        pins(tmp_path, previous=previous, python=python)
        (question,) = uv.questions
        assert (question.requirements, question.python) == (("hatchling",), python)
        assert question.preferred == ("hatchling==1.27.0\npackaging==25.0\n" if previous else "")


def test_which_requirements_pins_are_enough_for() -> None:
    for texts, expected in (
        (["hatchling"], True),
        (["hatchling", "packaging<26"], True),
        (["hatchling>=2"], False),
        (["hatchling", "hatch-vcs"], False),
        (["packaging"], False),  # hatchling is required no more
        (["hatchling[toml]"], False),
        (["hatchling; python_version < '3.12'"], False),
        ([], False),
    ):
        assert are_enough(map(Requirement, texts), PINS) is expected, texts


def test_packages_without_a_build_system_are_built_by_setuptools(tmp_path: Path, uv: Uv) -> None:
    package(tmp_path, "one", 'requires = ["hatchling"]')
    (tmp_path / "trainer/setup").mkdir()
    (tmp_path / "trainer/bare").mkdir()
    (tmp_path / "trainer/bare/pyproject.toml").write_text('[project]\nname = "a"\n')
    pins(tmp_path, "one", "setup", "bare")
    assert uv.questions[0].requirements == ("hatchling", "setuptools>=40.8.0")


def test_a_package_may_build_itself_without_requirements(tmp_path: Path, uv: Uv) -> None:
    package(tmp_path, ".", 'requires = []\nbuild-backend = "backend"\nbackend-path = ["."]')
    assert pins(tmp_path) == ()
    assert not uv.questions


def test_invalid_requirements_are_reported_with_their_line(tmp_path: Path, uv: Uv) -> None:
    for table, place, words in (
        ("", "trainer/pyproject.toml:4", "requires"),
        ('requires = "hatchling"', "trainer/pyproject.toml:5", "requires"),
        ('build-backend = "b"\nrequires = ["hatchling=1"]', "trainer/pyproject.toml:6", "hatchling=1"),
        ("requires = [1]", "trainer/pyproject.toml:5", "1"),
        ('requires = ["a @ git+https://git.example/a"]', "trainer/pyproject.toml:5", "requirement a"),
        ('requires = ["none"]', "trainer/pyproject.toml", "none"),
    ):
        package(tmp_path, ".", table)
        with pytest.raises(LockError) as caught:
            pins(tmp_path)
        assert caught.value.message.startswith(f"{place}: "), table
        assert words in caught.value.message, table
        assert caught.value.hint, table
