"""Print the user of a container's command and the folders that it can write to. One JSON document on stdout.

The argument is a JSON list of folders to write in.
"""

# Probes look at thousands of paths, and as text they are several times as fast.
# ruff: noqa: PTH118, PTH103, PTH108, PTH116, PTH123

import getpass
import importlib.util
import json
import os
import stat
import sys
import tempfile
import types


def writing(folder: str) -> dict[str, object]:
    """Make the folder if it does not exist, write a file in it, and return the result."""
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
    """Try to write to the folder in a variable."""
    value = os.environ.get(key)
    return writing(value) | {"path": value} if value else {"ok": False, "reason": f"{key} is not set"}


def inductor() -> dict[str, object]:
    """Try to write to torch's own cache of compiled code; the folder is ``None`` without torch."""
    value = importlib.util.find_spec("torch")
    if value is None or not value.submodule_search_locations:
        return {"ok": True, "path": None}
    for name in ("torch", "torch._inductor", "torch._inductor.runtime"):
        # Empty packages with torch's paths: the function is imported without the rest of torch.
        empty = types.ModuleType(name)
        empty.__path__ = [os.path.join(value.submodule_search_locations[0], *name.split(".")[1:])]
        sys.modules[name] = empty
    try:
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
        "folders": {folder: writing(folder) for folder in json.loads(sys.argv[1])},
        "inductor": inductor(),
    }
    json.dump(facts, sys.stdout)
