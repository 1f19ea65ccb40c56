"""``python -m torchbake VERB`` is the same front door as ``nox -s VERB``."""

import os
import sys

from torchbake.errors import InstallError


def main() -> int:
    """Run a verb; its exit code. A package that is missing is no traceback."""
    try:
        from torchbake import cli  # noqa: PLC0415 - it needs packages

        if "_ARGCOMPLETE" in os.environ:
            from torchbake import completion  # noqa: PLC0415 - for a shell that asks alone

            completion.answer(cli.VERBS, cli.make_parser)
        return cli.main(sys.argv[1:])
    except ModuleNotFoundError as error:
        missing = InstallError(
            f"The toolkit needs the Python package {error.name!r}, which {sys.executable} does not have.",
            hint="Run `nox -s VERB -- …`, which installs what is needed, or once: pip install -e .",
        )
        print(missing.text, file=sys.stderr)
        return missing.exit_code


if __name__ == "__main__":
    sys.exit(main())
