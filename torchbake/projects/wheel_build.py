"""Build the wheel of a package's source by uv, and check wheels. The build runs the package's own code on this host."""

import re
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from packaging.tags import compatible_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from torchbake.core.files import in_memory
from torchbake.core.plain_text import clean, last_lines
from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig, without_logins
from torchbake.hostconfig.uv_config import uv_toml
from torchbake.lock.uv import uv_environment

_EPOCH = "315532800"  # 1980-01-01, the oldest time that a zip file can have
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_UMASK = 0o022  # a wheel has the modes of its files, which must not depend on the user who builds it


def build_wheel(source: Path, folder: Path, config: PipConfig, *, version: str = "") -> Path:
    """Build the wheel of a source folder or archive into an empty ``folder``, and return its path.

    The requirements of the build come from the host's indexes. ``version`` is for sources whose version is in git's
    tags. Raises LockError with the last lines of a build that fails.
    """
    import uv  # noqa: PLC0415 - only a run that builds a wheel needs it

    environment = {**uv_environment(config), "SOURCE_DATE_EPOCH": _EPOCH, "PYTHONHASHSEED": "0"}
    if version:
        environment |= {"SETUPTOOLS_SCM_PRETEND_VERSION": version, "PDM_BUILD_SCM_VERSION": version}
    with in_memory(uv_toml(config)) as settings:
        command = [str(uv.find_uv_bin()), "build", "--wheel", "--no-progress", "--config-file", str(settings)]
        command += ["--python", sys.executable, "--out-dir", str(folder), str(source)]
        process = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", check=False, close_fds=False, umask=_UMASK,
        )  # fmt: skip
    wheels = sorted(folder.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        output = last_lines(clean(process.stdout))
        raise LockError(f"its wheel cannot be built:\n  {without_logins(output)}")
    return wheels[0]


def is_pure(wheel: str, python: str) -> bool:
    """Return whether a wheel fits a Python on every platform, by its file name."""
    version = [int(part) for part in python.split(".")]
    return bool(set(compatible_tags(version, platforms=["any"])) & parse_wheel_filename(wheel)[3])


def check_wheel(wheel: Path, name: str, version: str, title: str, *, sums: bool = True) -> str:
    """Return the version of a wheel, which must be ``version`` unless that is empty.

    Raises LockError if the archive is damaged, or has the metadata of another package. With ``sums`` the sum of each
    file is checked.
    """
    actual_name, actual = _name_and_version(wheel, sums=sums)
    if actual_name != name or (version and actual != Version(version)):
        raise LockError(
            f"{title}: the metadata of its wheel {wheel.name} names {actual_name} {actual}.",
            hint="Correct the name or the version in the package's source, then lock the project again: uv lock",
        )
    return str(actual)


def _name_and_version(wheel: Path, *, sums: bool) -> tuple[str, Version]:
    try:
        parse_wheel_filename(wheel.name)
        with zipfile.ZipFile(wheel) as archive:
            if broken := archive.testzip() if sums else None:
                raise zipfile.BadZipFile(f"the sum of {broken} is wrong")
            (path,) = filter(_METADATA.fullmatch, archive.namelist())
            headers = HeaderParser().parsestr(archive.read(path).decode())
        return canonicalize_name(headers["Name"] or ""), Version(headers["Version"] or "")
    except (zipfile.BadZipFile, zipfile.LargeZipFile, ValueError, EOFError, NotImplementedError) as error:
        odd = isinstance(error, ValueError) and not isinstance(error, InvalidVersion | InvalidWheelFilename)
        reason = "it has no readable metadata" if odd else str(error)
        raise LockError(
            f"{wheel}: this wheel is damaged: {reason}.", hint="Remove it, or restore it from git; then lock again."
        ) from None
