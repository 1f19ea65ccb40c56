"""Every file of the container, its accounts, and its processes; as root. One JSON document on stdout."""

import json
import os
import stat
import sys

MADE_BY_THE_ENGINE = {"/.dockerenv", "/run/.containerenv"}


def mounts() -> set[str]:
    """Where something is mounted: not of the image."""
    with open("/proc/self/mountinfo") as lines:
        return {line.split()[4] for line in lines} - {"/"}


def row(path: str, status: os.stat_result) -> list[object]:
    """An Entry's fields, in its order."""
    mode = status.st_mode
    kind = "link" if stat.S_ISLNK(mode) else "dir" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"
    target, broken, capable = "", False, False
    if kind == "link":
        target, broken = os.readlink(path), not os.path.exists(path)
    if kind == "file" and mode & 0o111:
        capable = "security.capability" in os.listxattr(path)
    size = status.st_size if kind == "file" else 0
    return [path, kind, stat.S_IMODE(mode), status.st_uid, status.st_gid, size, target, broken, capable]


def walk() -> list[list[object]]:
    away = mounts() | MADE_BY_THE_ENGINE
    rows, folders = [], ["/"]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.path not in away:
                    rows.append(row(entry.path, entry.stat(follow_symlinks=False)))
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
    return rows


def text(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def process(pid: str) -> dict[str, object]:
    fields = text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    try:
        program = os.readlink(f"/proc/{pid}/exe")
        with open(f"/proc/{pid}/exe", "rb") as file:
            machine_code = file.read(4) == b"\x7fELF"
    except OSError:
        program, machine_code = "", False
    words = [word for word in text(f"/proc/{pid}/cmdline").split("\0") if word]
    parent = int(fields[1]) if fields else 0
    return {"pid": int(pid), "parent": parent, "program": program, "machine_code": machine_code, "words": words}


if __name__ == "__main__":
    accounts = {name: text(f"/etc/{name}").splitlines() for name in ("passwd", "group", "shadow", "gshadow")}
    processes = [process(pid) for pid in os.listdir("/proc") if pid.isdigit()]
    json.dump({"entries": walk(), "accounts": accounts, "processes": processes}, sys.stdout)
