"""Where an image's Python finds what its user installed."""

import os
import site
import sys
from pathlib import Path

import pytest

from layers.wheels import torchbake_user_site


@pytest.fixture(autouse=True)
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python of an image at its start, as uid 1001; the folder of its user's packages."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TORCHBAKE_ID", "an-image")
    monkeypatch.setenv("PYTHONUSERBASE", "")  # so that what the module sets is taken back
    monkeypatch.delenv("PYTHONUSERBASE")
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name in ("ENABLE_USER_SITE", "USER_BASE", "USER_SITE"):
        monkeypatch.setattr(site, name, None)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return tmp_path / ".local/share/torchbake/an-image/lib" / version / "site-packages"


def test_pip_is_told_of_a_user_site_that_is_empty_yet(image: Path) -> None:
    torchbake_user_site.enable()
    assert site.ENABLE_USER_SITE
    assert site.getusersitepackages() == str(image)
    assert str(image) not in sys.path


def test_packages_come_after_the_images_own(image: Path) -> None:
    image.mkdir(parents=True)
    (image / "more.pth").write_text("import sys; sys.path.append('more')\n")
    before = sys.path.copy()
    torchbake_user_site.enable()
    torchbake_user_site.enable()  # Python reads torchbake.pth twice
    assert sys.path == [*before, str(image), "more"]


def test_a_variable_names_another_folder(image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path / "other"))
    torchbake_user_site.enable()
    assert site.getusersitepackages().startswith(str(tmp_path / "other/lib"))


@pytest.mark.parametrize("missing", ["HOME", "TORCHBAKE_ID", None])
def test_root_and_a_python_outside_of_an_image_have_none(
    missing: str | None, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image.mkdir(parents=True)
    if missing:
        monkeypatch.delenv(missing)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    torchbake_user_site.enable()
    assert not site.ENABLE_USER_SITE
    assert str(image) not in sys.path
    assert "PYTHONUSERBASE" not in os.environ
