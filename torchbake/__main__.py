"""The program: ``torchbake COMMAND`` or ``python -m torchbake COMMAND``, which ``nox -s COMMAND`` starts."""

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn

from torchbake.commands import COMMANDS
from torchbake.errors import InstallError


def main() -> int:
    """Run a command and return its exit code. A missing package is reported as an error."""
    try:
        from torchbake import cli  # noqa: PLC0415 - it imports packages, which may be missing

        if "_ARGCOMPLETE" in os.environ:
            from torchbake import completion  # noqa: PLC0415 - only for a shell that completes a line

            completion.answer(list(COMMANDS))
        return cli.main(sys.argv[1:])
    except ModuleNotFoundError as error:
        missing = InstallError(
            f"The toolkit needs the Python package {error.name!r}, which {sys.executable} does not have.",
            hint="Use nox, which installs the packages (nox -s COMMAND), or install them: pip install -e .",
        )
        print(missing.text, file=sys.stderr)
        return missing.exit_code


def run() -> NoReturn:
    """Run a command, and end the process without Python's own clean-up.

    To free the objects of some 500 modules takes a tenth of the time of a build that has nothing to do.
    """
    code = 1  # if there is a traceback

    def end() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    atexit.register(end)  # what is registered first runs last
    code = main()
    sys.exit(code)


if __name__ == "__main__":
    run()
