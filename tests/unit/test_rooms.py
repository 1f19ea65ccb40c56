"""The rooms of the toolkit: the map in docs/internals/architecture.md is complete, and imports go up in it alone."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.unit.syntax import outline_of
from torchbake.core.paths import TOOLKIT

TORCHBAKE = TOOLKIT / "torchbake"
# `_version.py` is written by a build, from git's tags.
_NO_MODULES = {TORCHBAKE / "__init__.py", TORCHBAKE / "_version.py"}
MODULES = sorted(path for path in TORCHBAKE.rglob("*.py") if path not in _NO_MODULES)
_TEXT = (TOOLKIT / "docs/internals/architecture.md").read_text().partition("\n## The rooms\n")[2].partition("\n## ")[0]
# The first column of the first table: one room a row, or several that stand side by side.
_ROWS = re.findall(r"^\| (`[^|]+`) \|", _TEXT.partition("\nNext to them")[0], flags=re.MULTILINE)
FLOOR = {name.rstrip("/"): floor for floor, row in enumerate(_ROWS) for name in re.findall(r"`([^`]+)`", row)}


def room_of(path: Path) -> str:
    """Return the folder below ``torchbake/``, or the module's name if it is in no folder."""
    return path.relative_to(TORCHBAKE).parts[0]


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Find the imports of the toolkit in a module, also inside functions: the line and the room."""
    for line, name in outline_of(path).imports:
        assert not name.startswith("."), f"{path}:{line}: a relative import"
        parts = name.split(".")
        room = parts[1] if parts[0] == "torchbake" and len(parts) > 1 else ""
        if (TORCHBAKE / room).is_dir() and room:
            yield line, room
        elif (TORCHBAKE / f"{room}.py").exists() and room:
            yield line, f"{room}.py"


def test_the_map_has_every_room_and_no_other() -> None:
    assert set(FLOOR) == {room_of(path) for path in MODULES}


def test_nothing_is_imported_from_a_room_further_down() -> None:
    assert [
        f"{path.relative_to(TOOLKIT)}:{line} imports {room}"
        for path in MODULES
        for line, room in imports_of(path)
        if FLOOR[room] > FLOOR[room_of(path)]
    ] == []


def test_commands_call_rooms_and_not_each_other() -> None:
    """A module that two commands share has a name that begins with an underscore."""
    pattern = r"^ *from torchbake\.commands(?:\.| import )(\w+)"
    assert [
        f"{path.name} imports {name}"
        for path in MODULES
        if room_of(path) == "commands"
        for name in re.findall(pattern, path.read_text(), re.MULTILINE)
        if not name.startswith("_") and name != "COMMANDS"
    ] == []


def test_the_unit_tests_stand_where_the_modules_do() -> None:
    """A folder of unit tests is a room's, and each of its files is named after what it tests there."""
    strangers = {
        str(path.relative_to(TOOLKIT))
        for path in (TOOLKIT / "tests/unit").glob("*/test_*.py")
        if not (TORCHBAKE / path.parent.name / f"{path.stem.removeprefix('test_')}.py").exists()
    }
    assert strangers == {"tests/unit/registry/test_foreign.py"}  # answers of foreign registries, for several rooms
