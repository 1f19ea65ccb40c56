"""The errors of commands, each with its own exit code.

An error says what is wrong, where, and what to do next. ``torchbake.cli.main`` alone catches and shows errors. A test
compares ``docs/reference/exit-codes.md`` with this module.
"""

import errno
import traceback
from pathlib import Path
from typing import ClassVar


class TorchbakeError(Exception):
    """A failure that the user can act on.

    ``message`` is one sentence with the problem and its place, ``hint`` is the next step. Each class has its own
    ``exit_code``.
    """

    exit_code: ClassVar[int] = 1
    meaning: ClassVar[str] = "an unexpected failure; the message names it"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def sentence(self) -> str:
        """The message and the hint on one line, for a row of a table."""
        return " ".join(filter(None, (self.message, self.hint)))

    @property
    def text(self) -> str:
        """The error as plain text, for a Python without rich."""
        return f"error: {self.message}" + (f"\n  next: {self.hint}" if self.hint else "")


class UsageError(TorchbakeError):
    exit_code = 2
    meaning = "wrong command line: unknown option, no selector, or an impossible value"


class MatrixError(TorchbakeError):
    exit_code = 19  # 3 is nox's own, for a session that it does not know
    meaning = "matrix.yaml is not valid; each problem is shown with file, line and key"


class SelectorError(TorchbakeError):
    exit_code = 4
    meaning = "a selector matches nothing; the nearest names are shown"


class LockError(TorchbakeError):
    exit_code = 5
    meaning = "a lock could not be made, is missing or is out of date, or its wheels disagree with the row"


class RenderError(TorchbakeError):
    exit_code = 6
    meaning = "a template is broken, or `render --check` found drift"


class EngineError(TorchbakeError):
    exit_code = 7
    meaning = "no container engine answers, or it cannot do what is asked (no buildx, too old)"


class BaseError(TorchbakeError):
    exit_code = 8
    meaning = "a base could be neither pulled nor bootstrapped from packages, or is not what the matrix says"


class BuildError(TorchbakeError):
    exit_code = 9
    meaning = "one or more images failed to build, or for different reasons; the others are finished"


class SetupError(TorchbakeError):
    exit_code = 10
    meaning = "the host cannot be made ready, or `setup --check` found it not ready"


class StorageError(TorchbakeError):
    exit_code = 11
    meaning = "a folder cannot be written: read-only, no permission, or the disk is full"


class HostConfigError(TorchbakeError):
    exit_code = 12
    meaning = "the host's own pip or apt configuration, or a page of a package index, cannot be read"


class CheckError(TorchbakeError):
    exit_code = 13
    meaning = "an image failed a check, or a check that must run did not; or a file is not a verdict"


class RegistryError(TorchbakeError):
    exit_code = 14
    meaning = "a registry does not answer, refuses, or holds something else than it says"


class ValidateError(TorchbakeError):
    exit_code = 15
    meaning = "a registry serves something else than the matrix, or --expect, promises"


class PublishError(TorchbakeError):
    exit_code = 16
    meaning = "an image was not released, or a rolling tag not moved; the others are finished"


class ReproduceError(TorchbakeError):
    exit_code = 17
    meaning = "two builds of one image differ, or could not be made"


class SignatureError(TorchbakeError):
    exit_code = 18
    meaning = "a signature that must be there was not made, or does not verify"


class InstallError(TorchbakeError):
    exit_code = 20
    meaning = "the toolkit's own Python packages are missing, or could not be installed"


class JobError(TorchbakeError):
    exit_code = 21
    meaning = (
        "a job file is not valid, or asks for what the launcher cannot do, with line and key; or no launcher takes it"
    )


class HostError(TorchbakeError):
    exit_code = 22
    meaning = "a host was not reached, failed, or is not as it should be; or an inventory is not valid; each is named"


class PlanError(TorchbakeError):
    exit_code = 23
    meaning = "a benchmark's plan is not valid; each problem is shown with file, line and key"


class BenchmarkError(TorchbakeError):
    exit_code = 24
    meaning = "an experiment of a benchmark failed, or could not be run with `--gpu require`; the others are kept"


class SlowerError(TorchbakeError):
    exit_code = 25
    meaning = "`benchmark compare`: the second image is slower than the first by the threshold or more"


class NoisyError(TorchbakeError):
    exit_code = 26
    meaning = "`benchmark compare`: this machine is too noisy to tell the two images apart at the threshold"


class DamagedError(TorchbakeError):
    exit_code = 27
    meaning = "`store verify`: blobs of the store are damaged or missing; each is named"


class WasteError(TorchbakeError):
    exit_code = 28
    meaning = "`waste --fail-over`: more of the image could go than the option allows"


class AdvisoryError(TorchbakeError):
    exit_code = 29
    meaning = "advisories cannot be read, are none, or do not cover the packages of an image that must be judged"


class GateError(TorchbakeError):
    exit_code = 30
    meaning = "a gate's file is not valid; each problem is shown with file, line and key"


class VulnerableError(TorchbakeError):
    exit_code = 31
    meaning = "`advisories --fail-on`: an image has a known vulnerability of that severity, or of a higher one"


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# These are errors of storage only if they name a file: EACCES can also refuse a connection.
_FORBIDDEN = {
    *(errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
}


def sentence_of(error: Exception) -> str:
    """Return any error on one line, for a row of a table: the failure of one image does not end the run."""
    if isinstance(error, TorchbakeError):
        return error.sentence
    where = traceback.extract_tb(error.__traceback__)[-1:]
    at = "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in where)
    return f"An unexpected failure: {type(error).__name__}: {' '.join(str(error).split())}{at}"


INTERRUPTED = 130  # 128 + SIGINT, the shell's own convention


def all_errors() -> list[type[TorchbakeError]]:
    """Every error class, lowest exit code first."""
    return sorted([TorchbakeError, *TorchbakeError.__subclasses__()], key=lambda error: error.exit_code)


def of_os_error(error: OSError) -> TorchbakeError:
    """Convert an error of the system: StorageError for files and disks, else TorchbakeError with the system's name.

    Network errors are OSErrors too, among them all errors of requests.
    """
    where = f": {error.filename}" if error.filename else ""
    if error.errno in _FULL:
        return StorageError(f"{error.strerror}{where}", hint="Free some space, then run again.")
    if error.errno in _FORBIDDEN and where:
        return StorageError(f"{error.strerror}{where}", hint="Make it writable, or name another place; then run again.")
    words = f"{error.strerror}{where}" if error.strerror else " ".join(str(error).split()) or "no details"
    return TorchbakeError(f"{type(error).__name__}: {words}")
