"""``python -m torchbake COMMAND`` is the same front door as ``nox -s COMMAND``."""

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn

from torchbake.commands import COMMANDS
from torchbake.errors import InstallError


def main() -> int:
    """Run a command; its exit code. A package that is missing is no traceback."""
    try:
        from torchbake import cli  # noqa: PLC0415 - it needs packages

        if "_ARGCOMPLETE" in os.environ:
            from torchbake import completion  # noqa: PLC0415 - for a shell that asks alone

            completion.answer(list(COMMANDS), cli.make_parser)
        return cli.main(sys.argv[1:])
    except ModuleNotFoundError as error:
        missing = InstallError(
            f"The toolkit needs the Python package {error.name!r}, which {sys.executable} does not have.",
            hint="Run `nox -s COMMAND -- …`, which installs what is needed, or once: pip install -e .",
        )
        print(missing.text, file=sys.stderr)
        return missing.exit_code


def run() -> NoReturn:
    """Run a command, and end the process as soon as it has.

    Python would take some 500 modules apart first, which is a tenth of a build with nothing to do.
    """
    code = 1  # of a traceback

    def end() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    atexit.register(end)  # the first that is registered is the last that runs
    code = main()
    sys.exit(code)


if __name__ == "__main__":
    run()
