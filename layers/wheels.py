#!/usr/bin/env python3
"""Runs inside a build: installs locked wheels, trims them, and lays them out as layers.

Standard library only, because the builder has nothing else. uv does the installing.

    wheels.py split LOCK FOLDER                    one list for each layer of a lock
    wheels.py layers LOCK ROOT [--trim FILE]       /layers/<wheel> each, to be copied to ROOT; /headers
    wheels.py site LOCK VENV [--path FOLDER]...    into a virtual environment
        --start PROGRAM                            which runs where Python starts without the entrypoint
        both: [--index VARIABLE URL...]            where wheels are that the host's indexes and folders lack
    wheels.py beside FOLDER FINAL TREE...          links that put the packages of wheels beside torch
    wheels.py cuda-home FOLDER FINAL TREE...       a CUDA_HOME of links into the wheels

Everything gets the same times, owners and modes, so that the same wheels give the same layer digest.
"""

import argparse
import base64
import compileall
import csv
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

EPOCH = 315532800  # 1980-01-01, the oldest time that a zip file can say
LAYERS = Path("/layers")
LOCK_LINE = re.compile(r"(?:[a-z0-9-]+==[0-9][0-9A-Za-z.!+]*|    --hash=sha256:[0-9a-f]{64})(?: \\)?")
HEADERS = Path("/headers")
# The entrypoint sets this variable, and a matrix may not; a Python without it was started by none.
START = "import os; 'LOGNAME' in os.environ or __import__('runpy').run_path({!r})"
CA_SECRET = Path("/run/secrets/ca")
UV_TOML = Path("/etc/uv/uv.toml")
PYPI = "https://pypi.org/simple"
INDEXES_SECRET = Path("/run/secrets/indexes")  # the host's, in place of --index
# What `strip` is told, by a rule's `to`. The names of data are vtables, type information and guards of statics.
STRIP = {
    "strip": ["--strip-unneeded"],
    "functions": ["--strip-debug", "--wildcard", "--strip-symbol=_ZT[ISTV]*", "--strip-symbol=_ZGV*"],
}


@dataclass(frozen=True, kw_only=True)
class Drop:
    """One rule of trim.toml. ``to`` is ``headers`` or a way to strip for files that are not dropped whole."""

    name: str
    pattern: re.Pattern[str]
    to: str = ""


# The time at which a wheel's file was changed, where it came from a folder: the same wheel would be another layer.
UV_CACHE = Drop(name="uv's cache", pattern=re.compile(r"[^/]+\.dist-info/uv_cache\.json"))


def read_trim(path: Path | None) -> tuple[Drop, ...]:
    """The rules in the file's order; without a file only what holds always."""
    rules = tomllib.loads(path.read_text())["drop"] if path else []
    given = (Drop(name=rule["name"], pattern=_any_of(rule["paths"]), to=rule.get("to", "")) for rule in rules)
    return (UV_CACHE, *given)


def _any_of(globs: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(glob_pattern, globs)))


def glob_pattern(glob: str) -> str:
    """A glob as a regular expression: ``*`` stays in a folder, ``**`` crosses folders."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    names = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "(?:" + "".join(names.get(part, re.escape(part)) for part in parts) + r")\Z"


def split_lock(text: str) -> dict[str, str]:
    """Layer name to its part of the lock, without comments: a reworded comment builds nothing anew.

    Raises ValueError for a line that is no pin and no hash, such as an option, which the installer would obey.
    """
    sections = re.split(r"^# --- layer (\w+)\n", text, flags=re.MULTILINE)[1:]
    parts: dict[str, str] = {}
    for name, body in zip(sections[::2], sections[1::2], strict=True):
        lines = [line for line in body.splitlines() if not line.lstrip().startswith("#")]
        strange = next((line for line in lines if not LOCK_LINE.fullmatch(line)), None)
        if strange is not None:
            raise ValueError(f"a lock holds no such line: {strange!r}")
        parts[name] = "".join(f"{line}\n" for line in lines)
    return parts


def install(lock: Path, index: Sequence[str], *target: str) -> None:
    """Install a list by uv, with hashes, from the host's indexes and wheel folders.

    ``index`` is where wheels are that those lack: a variable, by which the host can name others, and addresses.
    """
    if not lock.read_text().strip():
        return
    environment = dict(os.environ, UV_LINK_MODE="copy", UV_NO_PROGRESS="1", UV_PYTHON_DOWNLOADS="never")
    environment["UV_FIND_LINKS"] = "/run/wheels"
    if CA_SECRET.exists():
        environment["SSL_CERT_FILE"] = str(CA_SECRET)
    command = ["/opt/uv/bin/uv", "pip", "install", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += [*target, "-r", str(lock)]
    if not index:
        subprocess.run(command, check=True, env=environment)
        return
    first = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    if first.returncode:
        _install_from(index[0], indexes_of(index[1:]), command, environment, first.stderr)


def indexes_of(rendered: Sequence[str]) -> list[str]:
    """The host's own in place of those that the Dockerfile names."""
    return INDEXES_SECRET.read_text().split() if INDEXES_SECRET.exists() else list(rendered)


def asked_last(indexes: Sequence[str]) -> dict[str, str]:
    """uv's variables for all of the host's indexes and these after them.

    uv takes a version from the first index that has it and goes to no other when the hash is wrong. Variables, since an
    address may hold a password and arguments are everybody's to read.
    """
    host = tomllib.loads(UV_TOML.read_text()) if UV_TOML.exists() else {}
    *first, last = indexes
    before = [*host.get("extra-index-url", []), host.get("index-url", PYPI), *first]
    return {"UV_INDEX": " ".join(before), "UV_DEFAULT_INDEX": last, "UV_INDEX_STRATEGY": "unsafe-best-match"}


def _install_from(
    variable: str, indexes: Sequence[str], command: Sequence[str], environment: Mapping[str, str], before: str
) -> None:
    if subprocess.run(command, env={**environment, **asked_last(indexes)}, check=False).returncode:
        names = " ".join(re.sub(r"//.*@", "//", index) for index in indexes)
        sys.exit(
            f"Before that, without {names}:\n{before}"
            f"error: neither the host's own indexes and folders nor {names} gave every wheel of the lock. If it cannot "
            f"be reached, set {variable} to a mirror of it, or name a folder that holds the wheels in pip's find-links."
        )


def records(root: Path) -> Iterator[tuple[str, Path, list[list[str]]]]:
    """Each installed wheel: its normalised name, its RECORD and the rows of that."""
    for record in sorted(root.glob("*.dist-info/RECORD")):
        name = re.sub(r"[-_.]+", "-", record.parent.name.split("-")[0]).lower()
        with record.open(newline="") as file:
            yield name, record, list(csv.reader(file))


def trim_rows(rows: list[list[str]], rules: Iterable[Drop]) -> tuple[list[list[str]], list[tuple[str, Drop]]]:
    """The rows of a RECORD that stay, and each file that goes with its rule."""
    stay, go = [], []
    for row in rows:
        rule = next((rule for rule in rules if rule.pattern.match(row[0])), None)
        if rule is None:
            stay.append(row)
        else:
            go.append((row[0], rule))
    return stay, go


def trim(root: Path, rules: tuple[Drop, ...], aside: Path) -> None:
    """Trim the files below ``root``, and the RECORDs with them, so that those stay true."""
    saved: dict[str, list[int]] = {}
    for _, record, rows in records(root):
        stay, go = trim_rows(rows, rules)
        # A RECORD may name a file twice, and one of two wheels is gone with the first.
        there = [(name, rule) for name, rule in dict.fromkeys(go) if (root / name).exists()]
        sizes = [(root / name).stat().st_size for name, _ in there]
        stay += _strip(root, [(name, STRIP[rule.to]) for name, rule in there if rule.to in STRIP])
        for (name, rule), size in zip(there, sizes, strict=True):
            if rule.to not in STRIP:
                _remove(root, name, aside if rule.to == "headers" else None)
            count = saved.setdefault(rule.name, [0, 0])
            count[0] += size - ((root / name).stat().st_size if rule.to in STRIP else 0)
            count[1] += 1
        if go:
            with record.open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(sorted(stay))
    for rule_name, (size, files) in saved.items():
        print(f"trim: {rule_name}: {size / 1e6:.1f} MB in {files} files")


def _strip(root: Path, libraries: Iterable[tuple[str, list[str]]]) -> list[list[str]]:
    """Strip libraries, each with its options, some side by side; returns their new rows of the RECORD."""

    def strip(library: tuple[str, list[str]]) -> list[str]:
        name, options = library
        subprocess.run(["strip", *options, str(root / name)], check=True)
        return record_row(root, name)

    # `strip` holds a whole library in memory, which for torch's is more than a gigabyte.
    with ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), 4)) as pool:
        return list(pool.map(strip, libraries))


def record_row(root: Path, name: str) -> list[str]:
    """A file's row of a RECORD: https://packaging.python.org/en/latest/specifications/recording-installed-packages/"""
    with (root / name).open("rb") as file:
        digest = base64.urlsafe_b64encode(hashlib.file_digest(file, "sha256").digest()).rstrip(b"=")
    return [name, f"sha256={digest.decode()}", str((root / name).stat().st_size)]


def _remove(root: Path, name: str, aside: Path | None) -> None:
    source = root / name
    if aside:
        (aside / name).parent.mkdir(parents=True, exist_ok=True)
        source.rename(aside / name)
    else:
        source.unlink()
    for folder in source.parents:
        if folder == root:
            break
        try:
            folder.rmdir()
        except OSError:  # not empty; to look for what is in it would take long, as headers are thousands
            break


def separate(root: Path, layers: Path) -> None:
    """Move each wheel's files into a folder of its own. A file of two wheels goes to both."""
    for name, _, rows in records(root):
        for row in rows:
            source, target = root / row[0], layers / name / row[0]
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_file():
                shutil.copy2(source, target) if source.name == "__init__.py" else source.rename(target)


def compile_bytecode(root: Path, final: Path) -> None:
    """Bytecode as it will stand below ``final``; not checked against times, so the same on every build."""
    compileall.compile_dir(
        root, stripdir=str(root), prependdir=str(final), quiet=2, workers=0,
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )  # fmt: skip


def normalise(root: Path) -> None:
    """Constant times; root's; readable by all and writable by the owner alone."""
    for folder, folders, files in os.walk(root, topdown=False):
        for name in (*files, *folders):
            _normalise_entry(Path(folder, name))
    _normalise_entry(root)


def _normalise_entry(path: Path) -> None:
    if not path.is_symlink():
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    os.utime(path, (EPOCH, EPOCH), follow_symlinks=False)


def cuda_links(trees: Iterable[Path], final: Path, home: Path) -> dict[Path, Path]:
    """Links, where to what, that make the wheels look like an installed CUDA toolkit.

    ``trees`` hold ``nvidia/<part>/{include,lib,bin,nvvm}`` and will stand, merged, below ``final``.
    """
    names = {"include": "include", "lib": "lib64", "bin": "bin", "nvvm": "nvvm"}
    links: dict[Path, Path] = {}
    for tree in trees:
        for file in sorted(path for path in tree.glob("nvidia/*/*/**/*") if not path.is_dir()):
            _, part, kind, *rest = file.relative_to(tree).parts
            if kind in names:
                where = home / names[kind] / Path(*rest)
                target = final / "nvidia" / part / kind / Path(*rest)
                links.setdefault(where, target)
                if ".so." in file.name:  # the linker's name, which the wheels leave out
                    links.setdefault(where.with_name(file.name.split(".so.")[0] + ".so"), target)
    return links


def beside_links(trees: Iterable[Path], final: Path, folder: Path) -> dict[Path, Path]:
    """Links, where to what: torch's libraries look for NVIDIA's in the folders beside torch's own."""
    names = {entry.name for tree in trees for entry in tree.iterdir() if not entry.name.endswith(".dist-info")}
    return {folder / name: final / name for name in sorted(names - {"bin"})}


def _command_split(args: argparse.Namespace) -> None:
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, text in split_lock(args.lock.read_text()).items():
        (args.folder / f"{name}.lock").write_text(text)


def _command_layers(args: argparse.Namespace) -> None:
    staging = Path("/staging")
    for folder in (staging, LAYERS, HEADERS):
        folder.mkdir()
    install(args.lock, args.index, "--python", "/opt/venv/bin/python", "--target", str(staging))
    trim(staging, read_trim(args.trim), HEADERS)
    separate(staging, LAYERS)
    for layer in sorted(LAYERS.iterdir()):
        if not layer.name.startswith("nvidia-"):
            compile_bytecode(layer, args.root)
        normalise(layer)
    normalise(HEADERS)
    shutil.rmtree(staging)


def _command_site(args: argparse.Namespace) -> None:
    install(args.lock, args.index, "--python", str(args.venv / "bin/python"))
    site = next((args.venv / "lib").glob("python3.*/site-packages"))
    trim(site, read_trim(args.trim), HEADERS)
    (site / "torchbake.pth").write_text("\n".join((*args.path, START.format(args.start), "")))
    compile_bytecode(site, site)
    normalise(args.venv)


def _command_links(args: argparse.Namespace) -> None:
    for where, target in args.links(args.tree, args.final, args.folder).items():
        where.parent.mkdir(parents=True, exist_ok=True)
        where.symlink_to(target)
    normalise(args.folder)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    split = commands.add_parser("split")
    split.set_defaults(run=_command_split)
    split.add_argument("lock", type=Path)
    split.add_argument("folder", type=Path)
    layers = commands.add_parser("layers")
    layers.set_defaults(run=_command_layers)
    layers.add_argument("lock", type=Path)
    layers.add_argument("root", type=Path)
    site = commands.add_parser("site")
    site.set_defaults(run=_command_site)
    site.add_argument("lock", type=Path)
    site.add_argument("venv", type=Path)
    site.add_argument("--path", action="append", default=[])
    site.add_argument("--start", required=True)
    for command in (layers, site):
        command.add_argument("--trim", type=Path)
        command.add_argument("--index", nargs="+", default=[])
    for name, links in (("beside", beside_links), ("cuda-home", cuda_links)):
        command = commands.add_parser(name)
        command.set_defaults(run=_command_links, links=links)
        command.add_argument("folder", type=Path)
        command.add_argument("final", type=Path)
        command.add_argument("tree", type=Path, nargs="+")
    args = parser.parse_args(argv)
    args.run(args)


if __name__ == "__main__":
    main(sys.argv[1:])
