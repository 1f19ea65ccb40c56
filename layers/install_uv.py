"""Install uv into a folder, from a wheel of the host or by pip, and link pip next to it.

    python install_uv.py LOCK WHEELS TARGET

pip is run from the wheel that Python's ``ensurepip`` contains. Source of its folders:
https://docs.python.org/3/using/configure.html#cmdoption-with-wheel-pkg-dir
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
    """Install uv. Raises SystemExit if the wheel has no program uv, or if there is neither a wheel nor a pip."""
    for path in pips()[:1]:
        Path(target).with_name("pip.whl").symlink_to(path)  # `python -m wheels layers` downloads with it
    wheel = handed_over(Path(lock).read_text(), Path(wheels))
    if wheel:
        unpack(wheel, Path(target, "bin/uv"))
    else:
        pip("install", "--require-hashes", "-r", lock, "--no-cache-dir", "--no-compile", "--target", target)


def handed_over(lock: str, wheels: Path) -> "Path | None":
    """Return the host's wheel whose hash is in the lock; None if there is none, as for another platform."""
    for wheel in sorted(wheels.glob("uv-*.whl")):
        if f"--hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}" in lock:
            return wheel
    return None


def unpack(wheel: Path, program: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next((name for name in archive.namelist() if name.endswith(PROGRAM)), None)
        if name is None:
            sys.exit(f"{wheel.name} has no program uv.")
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_bytes(archive.read(name))
    program.chmod(0o755)


def pips() -> "list[Path]":
    """List the wheels of pip in this Python's ``ensurepip``."""
    return [wheel for folder in FOLDERS if folder for wheel in sorted(Path(folder).glob("pip-*.whl"))]


def pip(*words: str) -> None:
    """Run pip in this process, and exit."""
    pathes = pips()
    if not pathes:
        sys.exit(f"{sys.executable} has no pip: its ensurepip has no wheel of it. Install the package that has one.")
    os.environ["PIP_ROOT_USER_ACTION"] = "ignore"
    sys.path.insert(0, str(pathes[0]))
    sys.argv = ["pip", *words]
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
