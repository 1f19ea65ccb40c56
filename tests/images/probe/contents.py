"""Print the content, owner and mode of files by path, as root. One JSON document on stdout."""

# Probes look at thousands of paths, and as text they are several times as fast.
# ruff: noqa: PTH123

import hashlib
import json
import os
import stat
import sys


def look(path: str) -> dict[str, object] | None:
    """None where there is no such file."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            return None
        with open(path, "rb") as file:
            total = hashlib.sha256()
            for block in iter(lambda: file.read(1 << 20), b""):
                total.update(block)
    except OSError:
        return None
    mode = stat.S_IMODE(status.st_mode)
    return {"sha256": total.hexdigest(), "uid": status.st_uid, "gid": status.st_gid, "mode": mode}


if __name__ == "__main__":
    json.dump({path: look(path) for path in json.loads(sys.argv[1])}, sys.stdout)
