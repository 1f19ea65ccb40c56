"""Print the rooms of the end-to-end tests as a matrix for CI: python -m tests.rooms [--since REV]

A room is a folder of `torchbake/`, `entrypoints` (the programs inside images), or `doors` (nox, pip and pipelines).
Each file `tests/e2e/test_*.py` has the mark of one room. With `--since REV` only the rooms are printed whose code or
tests have changed since a commit. A change of code that several rooms use selects all rooms.
"""

import argparse
import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {path.parent.name for path in (ROOT / "torchbake").glob("*/__init__.py")}
PLACES = {  # rooms of code outside their folders; None if no end-to-end test depends on it
    "entrypoints/": "entrypoints",
    "templates/": "render",
    "layers/": "build",
    "tests/images/": "checks",
    "charts/": "charts",
    "ansible/": "hosts",
    "examples/": "jobs",
    "ci/": "doors",
    ".github/": "doors",
    "noxfile.py": "doors",
    "README.md": "doors",
    "docs/tutorial.md": "doors",
    "docs/": None,
    "benchmarks/": None,
    "tests/unit/": None,
    "tests/clusters/": None,
    "tests/engines/": None,
    "tests/kills/": None,
    "CHANGELOG.md": None,
    "CONTRIBUTING.md": None,
    "SECURITY.md": None,
    ".pre-commit-config.yaml": None,
}


def rooms_of_tests() -> dict[str, set[str]]:
    """Return the rooms in the marks of each file of end-to-end tests, by the file's path."""
    matches = {}
    for path in sorted((ROOT / "tests/e2e").glob("test_*.py")):
        marks = re.findall(r"^pytestmark = .*?(?=^\S|\Z)", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        names = re.findall(r"pytest\.mark\.(\w+)", " ".join(marks))
        matches[f"tests/e2e/{path.name}"] = (FOLDERS | {"entrypoints", "doors"}) & set(names)
    return matches


def touched(changed: Iterable[str]) -> list[str]:
    """Return the rooms that changed files touch, sorted."""
    tests = rooms_of_tests()
    every = set().union(*tests.values())
    rooms: set[str] = set()
    for path in changed:
        place = next((place for place in PLACES if path.startswith(place)), "")
        if place:
            rooms.add(PLACES[place] or "")
        else:
            folder = re.match(r"torchbake/(\w+)/", path)
            rooms |= tests.get(path) or ({folder[1]} & every if folder else set()) or every
    return sorted(rooms & every)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", metavar="REV", help="only rooms that changed since this commit")
    since = parser.parse_args(words).since
    rooms = sorted(set().union(*rooms_of_tests().values()))
    if since:
        command = ["git", "diff", "--name-only", "--no-renames", "--end-of-options", since, "--"]
        process = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        rooms = touched(process.stdout.splitlines())
    print(json.dumps({"include": [{"room": room} for room in rooms]}))


if __name__ == "__main__":
    main()
