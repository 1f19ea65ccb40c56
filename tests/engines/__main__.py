"""`python -m tests.engines KIND FOLDER`: start an engine, print its address, and keep it until SIGTERM or Ctrl-C."""

import argparse
import signal
import sys
from pathlib import Path

from tests.engines.kinds import KINDS
from tests.engines.running import running
from tests.engines.system import NotRunError

TOOLS = Path(__file__).resolve().parents[2] / ".torchbake/tools"


def main() -> None:
    kinds = {kind.name: kind for kind in KINDS}
    parser = argparse.ArgumentParser(prog="python -m tests.engines", description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("folder", type=Path, help="where the engine keeps its data; the path is at most 80 bytes long")
    parser.add_argument("--systems", type=Path, default=TOOLS, help="where the systems of Debian's packages are kept")
    parser.add_argument("--registry", default="127.0.0.1:5000", help="HOST:PORT of a registry that speaks plain HTTP")
    argument = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with running(kinds[argument.kind], argument.folder.resolve(), argument.systems, argument.registry) as engine:
            print("export", *(f"{name}={value}" for name, value in engine.variables.items()), flush=True)
            signal.pause()
    except NotRunError as error:
        raise SystemExit(f"not-run: {error}") from None
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
