"""Every way a verb can end badly, each with its own exit code.

An error says what is wrong, where, and what to do next. It is raised anywhere and caught once, in
``torchbake.cli.main``. ``docs/exit-codes.md`` is checked against this module by a test.
"""

from typing import ClassVar


class TorchbakeError(Exception):
    """A failure that the user can act on.

    ``message`` is one sentence: what and where. ``hint`` is the next step. ``exit_code`` is unique to
    the class.
    """

    exit_code: ClassVar[int] = 1
    meaning: ClassVar[str] = "an unexpected failure; the message names it"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def sentence(self) -> str:
        """All of it on one line, for a row of a table."""
        return " ".join(filter(None, (self.message, self.hint)))


class UsageError(TorchbakeError):
    exit_code = 2
    meaning = "wrong command line: unknown option, no selector, or a value that cannot be"


class MatrixError(TorchbakeError):
    exit_code = 3
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
    meaning = "a base could be neither pulled from a registry nor bootstrapped from Debian packages"


class BuildError(TorchbakeError):
    exit_code = 9
    meaning = "one or more images failed to build; the others are finished"


class SetupError(TorchbakeError):
    exit_code = 10
    meaning = "the host cannot be made ready, or `setup --check` found it not ready"


class StorageError(TorchbakeError):
    exit_code = 11
    meaning = "a folder cannot be written: read-only, no permission, or the disk is full"


class HostConfigError(TorchbakeError):
    exit_code = 12
    meaning = "the host's own pip or apt configuration cannot be read"


class CheckError(TorchbakeError):
    exit_code = 13
    meaning = "an image failed a check, or a check that must run did not"


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


INTERRUPTED = 130  # 128 + SIGINT, the shell's own convention


def all_errors() -> list[type[TorchbakeError]]:
    """Every error class, lowest exit code first."""
    return sorted([TorchbakeError, *TorchbakeError.__subclasses__()], key=lambda error: error.exit_code)
