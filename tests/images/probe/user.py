"""Who a container runs as and where it may write, as seen by the command. One JSON document on stdout.

The argument is a JSON object: `folders`, to write in; `inductor`, whether to ask torch for its compiler's cache.
"""

# Probes look at thousands of paths, and as text they are several times as fast.
# ruff: noqa: PTH103, PTH108, PTH116, PTH123

import contextlib
import getpass
import json
import os
import stat
import sys
import tempfile


def writing(folder: str) -> dict[str, object]:
    """Make the folder if need be, and a file in it; what became of that."""
    try:
        os.makedirs(folder, exist_ok=True)
        file, path = tempfile.mkstemp(dir=folder)
        os.close(file)
        os.unlink(path)
        with open(path, "w") as plain:  # with the mode that the umask leaves, unlike mkstemp's
            plain.write("x")
        status = os.stat(path)
        os.unlink(path)
    except OSError as error:
        return {"ok": False, "reason": f"{folder}: {error.strerror}"}
    return {"ok": True, "gid": status.st_gid, "mode": stat.S_IMODE(status.st_mode)}


def name() -> dict[str, object]:
    try:
        return {"ok": True, "name": getpass.getuser()}
    except Exception as error:
        return {"ok": False, "reason": f"{type(error).__name__}: {error}"}


def variable(key: str) -> dict[str, object]:
    """Whether the folder that a variable names can be written."""
    value = os.environ.get(key)
    return writing(value) | {"path": value} if value else {"ok": False, "reason": f"{key} is not set"}


def inductor() -> dict[str, object]:
    """Where torch itself would put what it compiles."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            from torch._inductor.runtime.cache_dir_utils import cache_dir  # noqa: PLC0415

            folder = str(cache_dir())
    except Exception as error:
        return {"ok": False, "reason": f"{type(error).__name__}: {error}"}
    return writing(folder) | {"path": folder}


def status() -> dict[str, str]:
    with open("/proc/self/status") as lines:
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def mounted_read_only() -> bool:
    return bool(os.statvfs("/").f_flag & os.ST_RDONLY)


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    said = status()
    facts = {
        "uid": os.getuid(),
        "gid": os.getgid(),
        "groups": os.getgroups(),
        "capabilities": said["CapEff"],
        "no_new_privileges": said["NoNewPrivs"],
        "seccomp": said["Seccomp"],
        "read_only": mounted_read_only(),
        "name": name(),
        "home": variable("HOME"),
        "caches": {key: variable(key) for key in ("XDG_CACHE_HOME", "TRITON_CACHE_DIR")},
        "folders": {folder: writing(folder) for folder in wanted["folders"]},
        "inductor": inductor() if wanted["inductor"] else None,
    }
    json.dump(facts, sys.stdout)
