"""Resolve requirements to pinned and hashed wheels by uv."""

import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchbake.core.files import in_memory
from torchbake.core.plain_text import last_lines
from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.hostconfig.uv_config import uv_toml
from torchbake.lock.lockfile import Pin, parse_pins
from torchbake.matrix.spec import AMD64, ARM64
from torchbake.ui.tool_environment import environment_of

MACHINES = {AMD64: "x86_64", ARM64: "aarch64"}  # as the kernel and wheels name them
OLDEST_GLIBC = 28  # 2.28, the oldest C library that torch's wheels accept: such a lock fits every base
NEWEST_GLIBC = 40  # 2.40, the newest one that uv knows as a platform
_NO_WHEEL = re.compile(r"^\s*hint: Wheels are required for `([^`]+)`", flags=re.MULTILINE)  # uv's message
_OWN_INDEXES = (
    *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX"),
    *("UV_INDEX_STRATEGY", "UV_INSECURE_HOST"),
)


class MissingWheelError(LockError):
    """The requirements need a package that has no wheel for the row's Python."""


@dataclass(frozen=True, kw_only=True)
class UvRequest:
    """Requirements to resolve for a Python on a platform. ``preferred`` are pins, a line each, that uv keeps."""

    requirements: tuple[str, ...]
    python: str
    platform: str = AMD64
    preferred: str = ""


def resolve(question: UvRequest, config: PipConfig, *, exclude: Sequence[str] = ()) -> tuple[Pin, ...]:
    """Return every wheel that the requirements need, with hashes.

    ``exclude`` are requirements such as ``torch!=2.13.0+cpu``. Raises LockError with uv's message, which is a
    MissingWheelError if a package has no wheel.
    """
    # A source distribution would run its author's code on the builder; wheels are only unpacked.
    words = ["--generate-hashes", "--only-binary", ":all:"]
    return _compile(question, config, words, exclude=exclude)


def uv_platform(platform: str, glibc: int = OLDEST_GLIBC) -> str:
    """Return uv's name of a platform with the C library 2.N: ``x86_64-manylinux_2_28``."""
    return f"{MACHINES[platform]}-manylinux_2_{glibc}"


def newest(
    names: Sequence[str], python: str, config: PipConfig, *, wheels: bool, platform: str = AMD64
) -> dict[str, str]:
    """Return the newest stable version of each package for a Python, with ``wheels`` only of its wheels.

    Dependencies do not count, and no source is built. Raises LockError if a package has no version.
    """
    words = ["--no-deps", *(["--only-binary", ":all:"] if wheels else [])]
    pins = _compile(UvRequest(requirements=tuple(names), python=python, platform=platform), config, words)
    return {pin.name: pin.version for pin in pins}


def why_not_installable(requirement: str, python: str, config: PipConfig, platform: str = AMD64) -> str:
    """Return the reason why wheels alone cannot install a release and its dependencies; empty if they can.

    Source distributions are not resolved: uv would run their authors' code to read their dependencies.
    """
    try:
        resolve(UvRequest(requirements=(requirement,), python=python, platform=platform), config)
    except LockError as error:
        names = ", ".join(dict.fromkeys(_NO_WHEEL.findall(error.message)))
        if names:
            return f"the version of {names} that it needs has no wheel for Python {python}, and locks hold no sources"
        return f"its dependencies do not resolve:\n  {error.message}"
    return ""


def _compile(
    question: UvRequest, config: PipConfig, words: Sequence[str], exclude: Sequence[str] = ()
) -> tuple[Pin, ...]:
    """Run uv, first with all preferred pins as constraints.

    An output file with pins is where uv looks for preferred versions. Of these it takes the wheels of the first index
    that has the version, even if none of them fits and another index has one that does. Constraints have no such rule.
    """
    with tempfile.TemporaryDirectory(prefix="torchbake-lock-") as folder, in_memory(uv_toml(config)) as settings:
        output, pins = Path(folder) / "requirements.lock", Path(folder) / "pins.txt"
        command = ["pip", "compile", "--quiet", "--no-header", *words]
        command += ["--python-version", question.python, "--python-platform", uv_platform(question.platform)]
        command += ["--config-file", str(settings), "--output-file", str(output), "-"]
        lines = (*question.requirements, *exclude)
        if question.preferred:
            pins.write_text(question.preferred)
            if run_uv([*command, "--constraints", str(pins)], config, lines=lines).returncode == 0:
                return parse_pins(output.read_text())
            output.write_text(question.preferred)
        process = run_uv(command, config, lines=lines)
        if process.returncode:
            if missing := ", ".join(dict.fromkeys(_NO_WHEEL.findall(process.stderr))):
                raise _missing_wheel(missing, question.python, process.stderr)
            raise LockError(
                f"uv found no versions that fit: {last_lines(process.stderr)}",
                hint=config.refusal_hint(process.stderr) or "Correct the row's versions or packages, or the index.",
            )
        return parse_pins(output.read_text())


def _missing_wheel(names: str, python: str, output: str) -> MissingWheelError:
    return MissingWheelError(
        f"uv found no versions that fit: {last_lines(output)}",
        hint=f"No wheel of {names} fits Python {python}, and locks hold no sources. Make it with that Python: `pip "
        f"wheel --wheel-dir FOLDER {names.replace(',', '')}`, and add FOLDER to pip's find-links; or take others.",
    )


def run_uv(
    words: Sequence[str], config: PipConfig, *, lines: Iterable[str] = (), folder: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command of uv with this host's variables, in ``folder``. It reads ``lines`` from its standard input."""
    import uv  # noqa: PLC0415 - only a run that locks needs it

    return subprocess.run(
        [str(uv.find_uv_bin()), *words],
        cwd=folder, env=uv_environment(config), input="".join(f"{line}\n" for line in lines),
        capture_output=True, text=True, check=False, close_fds=False,
    )  # fmt: skip


def uv_environment(config: PipConfig) -> dict[str, str]:
    """Return uv's environment: the host's variables, but none that would change its result or override the uv.toml.

    A message on stderr names the ignored variables once.
    """
    environment = {**environment_of("uv"), "UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1"}
    if uv_toml(config):
        for name in _OWN_INDEXES:
            environment.pop(name, None)  # uv prefers it to the file
    if config.cert:
        environment["SSL_CERT_FILE"] = config.cert
    if config.proxy:
        environment |= {"HTTP_PROXY": config.proxy, "HTTPS_PROXY": config.proxy}
    return environment
