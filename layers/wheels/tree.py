"""Installed files as layers: one folder a wheel, bytecode, and the same times, owners and modes for the same wheels."""

import compileall
import os
import shutil
from pathlib import Path
from py_compile import PycInvalidationMode

from .records import record_row, records, write_rows

INTERPRETER = "/opt/venv/bin/python"
EPOCH = 315532800  # 1980-01-01, the oldest time that a zip file can say


def separate(root: Path, layers: Path) -> None:
    """Move each wheel's files into a folder of its own. A file of two wheels goes to both."""
    for name, _, rows in records(root):
        for row in rows:
            source, target = root / row[0], layers / name / row[0]
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_file():
                shutil.copy2(source, target) if source.name == "__init__.py" else source.rename(target)


def set_interpreter(root: Path, before: str) -> None:
    """Let programs that were installed for the interpreter ``before`` be run by the image's own."""
    for _, record, rows in records(root):
        programs = [row[0] for row in rows if row[0].startswith("bin/") and _set_interpreter(root / row[0], before)]
        stay = [row for row in rows if row[0] not in programs]
        write_rows(record, [*stay, *(record_row(root, name) for name in programs)])


def _set_interpreter(program: Path, before: str) -> bool:
    """Whether it is a script of that interpreter. uv writes a path that is too long for the kernel as the shell's."""
    text = program.read_bytes()
    for head in (f"#!{before}\n", f"#!/bin/sh\n'''exec' '{before}' \"$0\" \"$@\"\n' '''\n"):
        if text.startswith(head.encode()):
            program.write_bytes(f"#!{INTERPRETER}\n".encode() + text[len(head.encode()) :])
            return True
    return False


def compile_bytecode(root: Path, final: Path) -> None:
    """Bytecode as it will stand below ``final``; not checked against times, so the same on every build."""
    compileall.compile_dir(
        root, stripdir=str(root), prependdir=str(final), quiet=2, workers=0,
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )  # fmt: skip


def bytecode_alone(sources: Path, folder: Path, final: Path) -> None:
    """The bytecode of a folder's modules, as it will stand below ``final``, in another folder, which is made."""
    shutil.copytree(sources, folder)
    compile_bytecode(folder, final)
    for source in folder.rglob("*.py"):
        source.unlink()


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
