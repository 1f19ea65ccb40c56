"""Run commands through the image's ENTRYPOINT, and print their exit codes and times. One JSON document on stdout.

The arguments are a JSON list, the ENTRYPOINT, and a JSON object of commands by name. The commands share one container,
because under load the engine takes far more time to start and remove a container than the image takes to run a command.
"""

import json
import subprocess
import sys
import time

LIMIT = 30  # seconds that a command gets


def ending(words: list[str]) -> dict[str, float]:
    """The exit code, 128 and more for a signal as an engine counts, and seconds from start to end."""
    start = time.monotonic()
    code = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, check=False).returncode
    return {"code": code if code >= 0 else 128 - code, "seconds": time.monotonic() - start}


if __name__ == "__main__":
    entrypoint, commands = map(json.loads, sys.argv[1:])
    json.dump({name: ending([*entrypoint, *command]) for name, command in commands.items()}, sys.stdout)
