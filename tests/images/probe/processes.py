"""The processes of the container; as the user that they run as. One JSON list on stdout.

The argument is a JSON list, the words of the container's command: it may come some time after the container's start.
"""

# Probes look at thousands of paths, and as text they are several times as fast.
# ruff: noqa: PTH115, PTH123, PTH208

import json
import os
import sys
import time
from typing import Any

PATIENCE = 15  # seconds


def text(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read()


def process(pid: str) -> dict[str, Any]:
    program = os.readlink(f"/proc/{pid}/exe")
    with open(f"/proc/{pid}/exe", "rb") as file:
        machine_code = file.read(4) == b"\x7fELF"
    return {
        "pid": int(pid),
        "parent": int(text(f"/proc/{pid}/stat").rpartition(")")[2].split()[1]),
        "program": program,
        "machine_code": machine_code,
        "words": [word for word in text(f"/proc/{pid}/cmdline").split("\0") if word],
    }


def processes() -> list[dict[str, Any]]:
    matches = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            matches.append(process(pid))
        except OSError:  # the process has ended, or belongs to another probe
            continue
    return matches


if __name__ == "__main__":
    command, end = json.loads(sys.argv[1]), time.monotonic() + PATIENCE
    found = processes()
    while time.monotonic() < end and not any(one["words"] == command for one in found):
        time.sleep(0.1)
        found = processes()
    json.dump(found, sys.stdout)
