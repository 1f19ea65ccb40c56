"""The command line of `smoke` and `bench`: a wrong one ends with code 64 and a sentence on stderr."""

import argparse
import sys
from typing import Any, NoReturn

USAGE_CODE = 64


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence."""

    def __init__(self, prog: str, description: str, epilog: str, default: Any = None) -> None:
        kind = argparse.RawDescriptionHelpFormatter
        super().__init__(
            prog, description=description, epilog=epilog, formatter_class=kind, allow_abbrev=False,
            argument_default=default,
        )  # fmt: skip

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; see `{self.prog} --help`.", file=sys.stderr)
        raise SystemExit(USAGE_CODE)
