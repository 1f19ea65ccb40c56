"""The packages of this tree as they would be released: built twice, the same to the byte, and sound.

`python -m tests.packages FOLDER` leaves them there.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def build(folder: Path) -> list[Path]:
    """A wheel and a source distribution in ``folder``, which holds nothing else."""
    _run("build", "--outdir", str(folder), str(ROOT))
    return sorted(folder.iterdir())


def check(packages: Sequence[Path]) -> None:
    """Raise AssertionError unless an index would take them and show their page, and the wheel holds what it should."""
    (wheel,) = (path for path in packages if path.suffix == ".whl")
    _run("twine", "check", "--strict", *map(str, packages))
    _run("check_wheel_contents", str(wheel))
    assert not (dead := relative_links(wheel)), f"on an index these lead nowhere: {', '.join(dead)}"


def relative_links(wheel: Path) -> list[str]:
    """Where the links and pictures of a wheel's page lead that hold no address of their own."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        page = files.read(name).decode()
    assert "](https://" in page
    return re.findall(r"\]\((?!https?:|#)([^)]*)\)", page)


def check_same(packages: Sequence[Path]) -> None:
    """Raise AssertionError unless another build has the same bytes."""
    with tempfile.TemporaryDirectory() as folder:
        again = build(Path(folder))
        assert [path.name for path in packages] == [path.name for path in again]
        for one, other in zip(packages, again, strict=True):
            assert one.read_bytes() == other.read_bytes(), f"{one.name} has other bytes when it is built again"


def _run(module: str, *words: str) -> None:
    process = subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True, check=False)
    assert process.returncode == 0, f"{module} {' '.join(words)}\n{process.stdout}{process.stderr}"


def main(folder: Path) -> None:
    """Build and check the packages, and replace the packages in ``folder`` by them."""
    with tempfile.TemporaryDirectory() as fresh:
        packages = build(Path(fresh))
        check(packages)
        check_same(packages)
        folder.mkdir(exist_ok=True)
        for old in (*folder.glob("*.whl"), *folder.glob("*.tar.gz")):
            old.unlink()
        for package in packages:
            print(shutil.copy(package, folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
