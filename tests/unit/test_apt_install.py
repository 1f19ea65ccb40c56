"""`layers/apt-install`: with a lock apt has the locked packages alone, and asks no mirror."""

import subprocess
from pathlib import Path

import pytest

from torchbake.core.paths import TOOLKIT

pytestmark = pytest.mark.usefixtures("own_processes")

# The script until apt's first command, with another folder of packages, and then apt's sources.
_SCRIPT, _, _ = (TOOLKIT / "layers/apt-install").read_text().partition("\n# Without translated descriptions")
_DPKG_DEB = """\
#!/bin/sh
case $1 in
--show) cat "$4" ;;
*) echo "Package: $(basename "$2" .deb)" ;;
esac
"""


@pytest.fixture
def debs(tmp_path: Path) -> Path:
    folder = tmp_path / "debs"
    folder.mkdir()
    return folder


def sources(debs: Path, *words: str) -> dict[str, str]:
    """Run the script, and return the files of the archive; none if apt has the mirrors of the image."""
    tools, work = debs.parent / "tools", debs.parent / "tmp"
    for folder in (tools, work):
        folder.mkdir()
    (tools / "dpkg-deb").write_text(_DPKG_DEB)
    (tools / "dpkg-deb").chmod(0o755)
    script = _SCRIPT.replace("/run/debs", str(debs)) + '\necho "${APT_CONFIG:-}"\n'
    env = {"PATH": f"{tools}:/usr/bin:/bin", "TMPDIR": str(work)}
    process = subprocess.run(["sh", "-c", script, "sh", *words], env=env, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    place = process.stdout.strip()
    return {file.name: file.read_text() for file in Path(place).parent.glob("[Pla]*")} if place else {}


def test_without_a_lock_apt_has_its_mirrors(debs: Path) -> None:
    assert sources(debs, "tini") == {}


def test_locked_packages_are_apts_only_archive(debs: Path) -> None:
    (debs / "locked").touch()
    (debs / "tini_1_0.19-1_amd64.deb").write_text("tini_1:0.19-1_amd64.deb")
    files = sources(debs, "tini")
    assert "Package: tini" in files["Packages"]
    assert files["locked.list"].startswith("deb [trusted=yes] file:")
    assert 'Dir::Etc::SourceParts "/dev/null";' in files["apt.conf"]


def test_a_step_without_a_locked_package_asks_no_mirror(debs: Path) -> None:
    """The layers below may have all its packages, and a mirror has newer ones."""
    (debs / "locked").touch()
    files = sources(debs, "tini")
    assert files["locked.list"] == files["Packages"] == ""
    assert "locked.list" in files["apt.conf"]


def test_a_package_that_is_not_of_its_line_is_refused(debs: Path) -> None:
    (debs / "locked").touch()
    (debs / "tini_0.19-2_amd64.deb").write_text("tini_0.19-1_amd64.deb")
    with pytest.raises(AssertionError, match=r"tini_0\.19-2_amd64\.deb in the lock is tini_0\.19-1_amd64\.deb"):
        sources(debs, "tini")
