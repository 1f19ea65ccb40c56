"""``python -m torchbake VERB`` is the same front door as ``nox -s VERB``."""

import sys

from torchbake.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
