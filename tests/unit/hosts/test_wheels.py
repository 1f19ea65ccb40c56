"""Wheels for hosts: found in folders, or requested from pip."""

from pathlib import Path

from torchbake.core.paths import TOOLKIT
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.hosts.wheels import download_words, missing_of, pip_environment, requirements
from torchbake.lock.image_lock import read_lock
from torchbake.matrix.project import load_project
from torchbake.matrix.spec import pytorch_of

PROJECT = load_project(TOOLKIT / "matrix.yaml")
SPEC = next(spec for spec in pytorch_of(PROJECT.expansion.specs) if spec.family == "cpu")
LOCK = read_lock(TOOLKIT, SPEC)


def test_a_wheel_is_known_by_its_name_however_it_is_written(tmp_path: Path) -> None:
    assert missing_of(LOCK, None) == tuple(sorted(LOCK.pins))
    (tmp_path / "MarkupSafe-3.0.2-cp311-cp311-manylinux_2_17_x86_64.whl").touch()
    (tmp_path / "typing_extensions-4.15.0-py3-none-any.whl").touch()
    assert {*LOCK.pins} - {*missing_of(LOCK, tmp_path)} == {"markupsafe", "typing-extensions"}


def test_pip_downloads_exactly_the_lock_for_the_images_python() -> None:
    words = download_words(SPEC, Path("r.txt"), Path("w"))
    assert words[words.index("--python-version") + 1] == SPEC.base.python
    assert {"--no-deps", "--require-hashes"} <= {*words}
    text = requirements([LOCK.pins["torch"]])
    assert text == f"torch=={LOCK.pins['torch'].version} --hash={LOCK.pins['torch'].hashes[0]}\n"


def test_an_index_with_a_password_is_in_no_argument() -> None:
    pip = PipConfig(extra_index_urls=("https://u:pw@a",))
    assert pip_environment(SPEC, pip, {})["PIP_EXTRA_INDEX_URL"] == " ".join(("https://u:pw@a", *SPEC.indexes))
    assert pip_environment(SPEC, PipConfig(no_index=True), {})["PIP_EXTRA_INDEX_URL"] == ""
    assert "pw" not in " ".join(download_words(SPEC, Path("r"), Path("w")))
