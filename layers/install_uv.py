"""Install uv into a folder: from the wheel that the host handed over, else by pip. Put a link to pip next to it.

    python install_uv.py LOCK WHEELS TARGET

pip is the one that Python brings for its ``ensurepip``; it is run from its wheel, without being installed. Source of
its folders: https://docs.python.org/3/using/configure.html#cmdoption-with-wheel-pkg-dir
"""

import hashlib
import os
import runpy
import sys
import sysconfig
import zipfile
from pathlib import Path

FOLDERS = (sysconfig.get_config_var("WHEEL_PKG_DIR"), Path(sysconfig.get_path("stdlib"), "ensurepip/_bundled"))
PROGRAM = ".data/scripts/uv"  # https://packaging.python.org/en/latest/specifications/binary-distribution-format/


def main(lock: str, wheels: str, target: str) -> None:
    """Raises SystemExit where a locked wheel has no program, or where there is neither a wheel nor a pip."""
    for found in pips()[:1]:
        Path(target).with_name("pip.whl").symlink_to(found)  # by which `python -m wheels layers` fetches
    wheel = handed_over(Path(lock).read_text(), Path(wheels))
    if wheel:
        unpack(wheel, Path(target, "bin/uv"))
    else:
        pip("install", "--require-hashes", "-r", lock, "--no-cache-dir", "--no-compile", "--target", target)


def handed_over(lock: str, wheels: Path) -> "Path | None":
    """The wheel whose hash the lock has. The host hands over none for another platform."""
    locked = (wheel for wheel in sorted(wheels.glob("uv-*.whl")) if f"--hash=sha256:{digest(wheel)}" in lock)
    return next(locked, None)


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def unpack(wheel: Path, program: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next((name for name in archive.namelist() if name.endswith(PROGRAM)), None)
        if name is None:
            sys.exit(f"{wheel.name} has no program uv.")
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_bytes(archive.read(name))
    program.chmod(0o755)


def pips() -> "list[Path]":
    """The wheels of pip that this Python brings."""
    return [wheel for folder in FOLDERS if folder for wheel in sorted(Path(folder).glob("pip-*.whl"))]


def pip(*words: str) -> None:
    """Run it in this process, which it ends."""
    found = pips()
    if not found:
        sys.exit(f"{sys.executable} brings no pip: ensurepip has no wheel of it. Install the package that has.")
    os.environ["PIP_ROOT_USER_ACTION"] = "ignore"
    sys.path.insert(0, str(found[0]))
    sys.argv = ["pip", *words]
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
