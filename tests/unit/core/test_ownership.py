"""Links and folders of another user are not followed."""

import errno
import os
import pwd
from pathlib import Path

import pytest

from tests.unit.conftest import DEBIAN12
from torchbake.build.base_image import make_base
from torchbake.core import paths
from torchbake.core.files import write_text
from torchbake.core.ownership import check_links, is_own, swappable
from torchbake.errors import SetupError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.setup.dockerd import only_one
from torchbake.setup.paths import EnginePaths
from torchbake.store.layout import Layout

OTHER = 54321


def of_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a path another user's: root gives it away; any other user becomes another one."""
    if os.geteuid() == 0:
        os.lchown(path, OTHER, OTHER)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: OTHER)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root")
    return tmp_path / "etc/passwd"


def test_nothing_is_written_through_a_link_of_another_user(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, folder = tmp_path / "summary.json", tmp_path / "reports"
    link.symlink_to(victim)
    folder.symlink_to(victim.parent)
    (tmp_path / "indirect").symlink_to("reports/..")
    write_text(link, "root")  # of this user
    of_another(link, monkeypatch)
    of_another(folder, monkeypatch)
    for path in (link, folder / "passwd", folder / "new/file", tmp_path / "indirect/etc/passwd"):
        with pytest.raises(PermissionError, match="is not followed"):
            write_text(path, "alice")
    assert victim.read_text() == "root"
    assert [path.name for path in victim.parent.iterdir()] == ["passwd"]


def test_locks_and_logs_of_a_state_folder_follow_no_link(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "export/blobs/sha256").mkdir(parents=True)
    for name in ("layout/.index.lock", "bases/debian12.lock"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        Layout(folder=tmp_path / "layout").take(tmp_path / "export", "sha256:1")
    of_another(tmp_path / "bases/debian12.lock", monkeypatch)
    with pytest.raises(PermissionError, match="is not followed"):
        make_base(DEBIAN12, tmp_path, AptConfig(), source="auto", say=print)
    assert victim.read_text() == "root"


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        check_links(tmp_path / "a")


def test_code_of_another_users_home_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "CHECKOUT", False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.cache_folder() == tmp_path / ".cache/torchbake"
    of_another(tmp_path, monkeypatch)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: pwd.struct_passwd(("me", "x", uid, 0, "", "/own", "/bin/sh")))
    assert paths.cache_folder() == Path("/own/.cache/torchbake")


@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root starts an engine, and can make another user's folder")
def test_a_folder_that_may_not_be_entered_is_not_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "lstat", refuse)
    assert not is_own(tmp_path / "cache")


def test_an_engine_of_root_is_in_no_folder_of_another_user(tmp_path: Path, victim: Path) -> None:
    folder = tmp_path / "engine"
    (folder / "run").mkdir(parents=True)
    engine = EnginePaths.under(folder)
    assert swappable(folder) is None
    with only_one(engine):
        pass
    (folder / "run/setup.lock").unlink()
    (folder / "run/setup.lock").symlink_to(victim)
    for place in (folder / "run", folder, folder / "run/setup.lock"):
        os.lchown(place, OTHER, OTHER)
        with pytest.raises(SetupError, match="could replace it"), only_one(engine):
            pass
        os.lchown(place, 0, 0)
    (folder / "run").chmod(0o777)
    assert swappable(folder / "run/setup.lock") == folder / "run"
    assert victim.read_text() == "root"
