"""Print the libraries that the loader finds for every ELF file, with and without LD_LIBRARY_PATH, as one JSON document.

The probe calls the loader directly. `ldd` gives the same answers, but is a shell script that takes ten times as long:
https://man7.org/linux/man-pages/man1/ldd.1.html
"""

# Probes look at thousands of paths, and as text they are several times as fast.
# ruff: noqa: PTH110, PTH112, PTH118, PTH123, PTH208

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

NOT_OF_THE_IMAGE = ("/proc", "/sys", "/dev")
LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
# The loader says in one run what it misses, and its exit code says whether it can load the file at all.
ASK = """
loader=$1; shift
for file do
    echo "== $file"
    LD_TRACE_LOADED_OBJECTS=1 "$loader" "$file" 2>&1
done
"""
MISSING = re.compile(r"^\s*(\S+) => not found|version [`'](\S+)' not found \(required by (\S+)\)", re.MULTILINE)
USED = re.compile(r"^\s*(\S+) => ", re.MULTILINE)


def elf_files() -> list[str]:
    """One path for each file, however many names it has."""
    matches: dict[tuple[int, int], str] = {}
    for folder, folders, names in os.walk("/"):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in NOT_OF_THE_IMAGE]
        for name in names:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            if status.st_mode & 0o170000 == 0o100000 and (status.st_mode & 0o111 or ".so" in name) and is_elf(path):
                matches.setdefault((status.st_dev, status.st_ino), path)
    return sorted(matches.values())


def is_elf(path: str) -> bool:
    """Dynamic or not; not an object file or a core."""
    try:
        with open(path, "rb") as file:
            head = file.read(18)
    except OSError:
        return False
    return head[:4] == b"\x7fELF" and head[16:18] in (b"\x02\x00", b"\x03\x00")


def static(loader: str, path: str) -> bool:
    """Return True if a file is linked statically: the loader's `--verify` exits with 1 for it."""
    return subprocess.run([loader, "--verify", path], capture_output=True, check=False).returncode == 1


def ask(loader: str, files: list[str], library_path: str | None) -> dict[str, str]:
    """Return the loader's output for each file."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    if library_path is not None:
        environment["LD_LIBRARY_PATH"] = library_path
    command = ["/bin/sh", "-c", ASK, "sh", loader, *files]
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False).stdout.decode(
        errors="replace"
    )
    blocks = [block.partition("\n") for block in re.split(r"^== ", output, flags=re.MULTILINE)[1:]]
    return {path: text for path, _, text in blocks}


def ask_side_by_side(loader: str, files: list[str], library_path: str | None) -> dict[str, str]:
    workers = max(2, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        parts = list(pool.map(lambda start: ask(loader, files[start::workers], library_path), range(workers)))
    return {path: text for part in parts for path, text in part.items()}


def missing(loader: str, lines: dict[str, str]) -> dict[str, list[str]]:
    """Return each file that lacks a library or a version, with the missing names."""
    answers = {}
    for path, text in lines.items():
        names = sorted({name or f"{version} of {owner}" for name, version, owner in MISSING.findall(text)})
        if "error while loading" in text and not names:
            names = [text.strip().rpartition(": ")[2]]
        if names and not static(loader, path):
            answers[path] = names
    return answers


def swayed(lines: dict[str, str], folders: list[str]) -> list[str]:
    """Return the files that LD_LIBRARY_PATH can affect: they use a name in its folders."""
    names = {name for folder in folders for name in os.listdir(folder)}
    return [path for path, text in lines.items() if names & set(USED.findall(text))]


def folders_of_packages() -> Iterator[str]:
    """Every folder on Python's path that holds a plain library: what people put in LD_LIBRARY_PATH."""
    for top in dict.fromkeys(os.path.realpath(path) for path in sys.path if "packages" in path or path.count("/") == 1):
        for folder, _, names in os.walk(top):
            if any(name.startswith("lib") and ".so" in name for name in names):
                yield folder


if __name__ == "__main__":
    loader = next(path for path in LOADERS if os.path.exists(path))
    files, folders = elf_files(), sorted(set(folders_of_packages()))
    without = ask_side_by_side(loader, files, None)
    own = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if os.path.isdir(path)]
    with_path = ask_side_by_side(loader, swayed(without, own + folders), ":".join(own + folders))
    facts = {
        "paths": files,
        "folders": own + folders,
        "without": missing(loader, without),
        "with": missing(loader, with_path),
        "path": [path for path in sys.path if path],
    }
    json.dump(facts, sys.stdout)
