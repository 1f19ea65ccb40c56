"""Drops, sets aside or strips files that an image does not need, by the rules of trim.toml, and updates RECORDs."""

import re
import shutil
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .records import record_row, records, sorted_rows
from .strip import strip


@dataclass(frozen=True, kw_only=True)
class Drop:
    """One rule of trim.toml. ``to`` is ``headers`` or ``strip`` for files that are not dropped."""

    name: str
    pattern: re.Pattern[str]
    to: str = ""


# It has the time of a wheel from a folder, which would change the layer of the same wheel.
UV_CACHE = Drop(name="uv's cache", pattern=re.compile(r"[^/]+\.dist-info/uv_cache\.json"))


def read_trim(path: Path | None) -> tuple[Drop, ...]:
    """Return the rules in the file's order, after the rule that always applies."""
    drops = [UV_CACHE]
    for rule in tomllib.loads(path.read_text())["drop"] if path else []:
        pattern = re.compile("|".join(map(glob_pattern, rule["paths"])))
        drops.append(Drop(name=rule["name"], pattern=pattern, to=rule.get("to", "")))
    return tuple(drops)


def glob_pattern(glob: str) -> str:
    """Return a glob as a regular expression: ``*`` stays in a folder, ``**`` crosses folders."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    names = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "(?:" + "".join(names.get(part, re.escape(part)) for part in parts) + r")\Z"


def trim_rows(rows: list[list[str]], rules: Iterable[Drop]) -> tuple[list[list[str]], list[tuple[str, Drop]]]:
    """Return the remaining rows of a RECORD, and the dropped files with their rules."""
    stay, go = [], []
    for row in rows:
        rule = next((rule for rule in rules if rule.pattern.match(row[0])), None)
        if rule is None:
            stay.append(row)
        else:
            go.append((row[0], rule))
    return stay, go


def trim(root: Path, rules: tuple[Drop, ...], aside: Path) -> None:
    """Trim the files below ``root``, and update their RECORDs; ``aside`` is the folder for headers."""
    saved: dict[str, list[int]] = {}
    for record, rows in records(root):
        stay, go = trim_rows(rows, rules)
        # A RECORD may name a file twice, and a file of two wheels is removed with the first wheel.
        there = [(name, rule) for name, rule in dict.fromkeys(go) if (root / name).exists()]
        sizes = [(root / name).stat().st_size for name, _ in there]
        stay += [_strip(root, name) for name, rule in there if rule.to == "strip"]
        for (name, rule), size in zip(there, sizes, strict=True):
            if rule.to != "strip":
                _remove(root, name, aside if rule.to == "headers" else None)
            count = saved.setdefault(rule.name, [0, 0])
            count[0] += size - ((root / name).stat().st_size if rule.to == "strip" else 0)
            count[1] += 1
        if go:
            record.write_text(sorted_rows(stay), newline="")
    for rule_name, (size, files) in saved.items():
        print(f"trim: {rule_name}: {size / 1e6:.1f} MB in {files} files")


def _strip(root: Path, library: str) -> list[str]:
    """Strip a library, and return its new row of the RECORD. Hard links to the old file, as in a cache, stay."""
    path = root / library
    new = path.with_name(f".{path.name}")
    new.write_bytes(strip(path.read_bytes()))
    shutil.copymode(path, new)
    new.replace(path)
    return record_row(root, library)


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
        except OSError:  # not empty; to list thousands of headers would take long
            break
