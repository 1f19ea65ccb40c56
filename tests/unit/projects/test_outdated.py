"""The lock of an image is out of date when its project's lock or its requirements change, and the error says how."""

import re
import shutil
from pathlib import Path

import pytest

from tests.unit.projects.broken import added, replaced
from tests.unit.projects.projects import TRAINER, copy_projects, make_index, trainer_image, write_lock
from torchbake.errors import LockError
from torchbake.lock.image_lock import OutdatedLockError, read_lock
from torchbake.projects.outdated import read_or_explain


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_index(tmp_path)
    return copy_projects(tmp_path)


def test_a_changed_project_makes_the_lock_out_of_date_by_name(root: Path) -> None:
    spec = trainer_image()
    write_lock(root, spec)
    lock = "trainer/uv.lock"
    cases = {
        "trainer/uv.lock: numpy 2.2.0 → 2.2.1": [replaced(lock, "2\\.2\\.0", "2.2.1")],
        "trainer/uv.lock: + tqdm 4.67.0, - six": [
            replaced("trainer/packages/core/pyproject.toml", "six", "tqdm"),
            replaced(lock, r'\[\n    { name = "six" },', '[\n    { name = "tqdm" },'),
            replaced(lock, r'\[{ name = "six" }\]', '[{ name = "tqdm" }]'),
        ],
        "pyproject.toml has the new requirement einops": [
            replaced("trainer/pyproject.toml", '"numpy<3"', '"numpy<3", "einops"')
        ],
        "trainer/uv.lock: changed, with the same packages": [
            replaced("trainer/pyproject.toml", 'hatchling"', 'hatchling>=1"')
        ],
        "trainer/uv.lock: there is no such file": [lambda root: (root / lock).unlink()],
    }
    for says, edits in cases.items():
        for edit in edits:
            edit(root)
        with pytest.raises(LockError) as caught:
            read_or_explain(root, spec)
        assert says in caught.value.message
        assert ("uv lock" in str(caught.value.hint)) == ("pyproject.toml" in says or "no such file" in says)
        shutil.rmtree(root / "trainer")
        shutil.copytree(TRAINER, root / "trainer")
    assert read_or_explain(root, spec)
    for changed, says in (
        (trainer_image(groups=("track",)), "groups: none → track"),
        (trainer_image("pylock.toml"), "pylock.toml"),
    ):
        with pytest.raises(LockError, match=re.escape(says)):
            read_or_explain(root, changed)


def test_changed_groups_are_named(root: Path) -> None:
    plain, tracked = trainer_image(), trainer_image(groups=("track",))
    for before, after, says in ((plain, tracked, "groups: none → track"), (tracked, plain, "groups: track → none")):
        write_lock(root, before)
        with pytest.raises(LockError, match=says):
            read_or_explain(root, after)


def test_other_text_of_pyproject_toml_keeps_the_lock(root: Path) -> None:
    spec = trainer_image()
    write_lock(root, spec)
    replaced("trainer/pyproject.toml", 'version = "0.1.0"', 'version = "0.2.0"\ndescription = "Trains"')(root)
    added("trainer/pyproject.toml", "[tool.ruff]\nline-length = 100")(root)
    assert read_or_explain(root, spec)
    added("trainer/pyproject.toml", '[tool.uv]\ndefault-groups = ["track"]')(root)
    with pytest.raises(OutdatedLockError):
        read_lock(root, spec)


def test_a_changed_lock_of_another_kind_names_its_packages(root: Path) -> None:
    for name in ("pylock.toml", "bare.txt"):
        text = (root / "trainer/requirements.txt").read_text()
        (root / "trainer/bare.txt").write_text(re.sub(r" \\\n +--hash=\S+", "", text))
        spec = trainer_image(name)
        write_lock(root, spec)
        replaced(f"trainer/{name}", "1\\.17\\.0", "1.18.0")(root)
        with pytest.raises(LockError, match=re.escape(f"trainer/{name}: six 1.17.0 → 1.18.0;")):
            read_or_explain(root, spec)
