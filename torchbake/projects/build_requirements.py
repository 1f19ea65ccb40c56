"""The wheels that build a project's own packages: ``[build-system] requires``, resolved when locking."""

import posixpath
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Pin, needed_by, parse_pins
from torchbake.lock.project_inputs import PYPROJECT, read_project_file, read_toml
from torchbake.lock.uv import UvRequest, resolve
from torchbake.matrix.spec import ProjectSpec

# Of a package without [build-system]: https://peps.python.org/pep-0517/#source-trees, in pip's version.
_DEFAULT = "setuptools>=40.8.0"
SECTION = "# --- layer build\n"


def pins_of_build(
    root: Path, project: ProjectSpec, folders: Sequence[str], python: str, config: PipConfig, *, previous: str = ""
) -> tuple[Pin, ...]:
    """Return pins of the build requirements of packages in ``folders``, relative to the project's folder.

    ``root`` is the matrix's folder. ``previous`` is the image's old lock. If all its pins fit, they are kept, and no
    index is asked. Pins without hashes are resolved again, and versions that fit are kept. Raises LockError if a
    requirement is not valid, or has no wheel.
    """
    paths = (posixpath.normpath(f"{project.folder}/{folder}/{PYPROJECT}") for folder in folders)
    places = {text: path for path in paths for text in _requires(root, path)}
    if not places:
        return ()
    before = parse_pins(previous.partition(SECTION)[2])
    same_python = f"; python {python};" in previous.partition("\n#")[2].partition("\n")[0]
    if same_python and all(pin.hashes for pin in before) and are_enough(map(Requirement, places), before):
        return before
    versions = "".join(f"{pin.name}=={pin.version}\n" for pin in before)
    try:
        return resolve(UvRequest(requirements=tuple(sorted(places)), python=python, preferred=versions), config)
    except LockError as error:
        names = ", ".join(dict.fromkeys(places.values()))
        raise LockError(
            f"{names}: the build requirements have no wheels: {error.message}",
            hint=config.refusal_hint(error.message) or "Correct [build-system] requires, or the index.",
        ) from None


def are_enough(requirements: Iterable[Requirement], pins: Collection[Pin]) -> bool:
    """Return whether requirements need exactly these pins.

    A requirement with an extra or a marker, which pins do not have, counts as not known.
    """
    versions, required = {pin.name: pin.version for pin in pins}, set[str]()
    for requirement in requirements:
        name = canonicalize_name(requirement.name)
        version = versions.get(name)
        if requirement.extras or requirement.marker or version is None:
            return False
        if not requirement.specifier.contains(version, prereleases=True):
            return False
        required.add(name)
    return needed_by(required, pins) == versions.keys()


def _requires(root: Path, path: str) -> tuple[str, ...]:
    """Return ``[build-system] requires`` of a package. Raises LockError with the line."""
    table = read_toml(root, path).get("build-system") if (root / path).exists() else None
    if table is None:
        return (_DEFAULT,)
    requires = table.get("requires") if isinstance(table, dict) else None
    if not isinstance(requires, list):
        _refuse(root, path, "[build-system] has no list `requires`")
    for text in requires:
        try:
            requirement = Requirement(text)
        except (InvalidRequirement, TypeError):
            _refuse(root, path, f"{text!r} is not a requirement")
        if requirement.url:
            _refuse(root, path, f"the build requirement {requirement.name} is not from an index")
    return tuple(requires)


def _refuse(root: Path, path: str, problem: str) -> NoReturn:
    text = read_project_file(root, path)
    start = re.search(r"^\[build-system\]", text, flags=re.MULTILINE)
    match = re.compile(r"^requires\b", flags=re.MULTILINE).search(text, start.start()) if start else None
    place = match or start
    line = f":{text.count(chr(10), 0, place.start()) + 1}" if place else ""
    raise LockError(f"{path}{line}: {problem}.", hint='List requirements of an index: requires = ["hatchling>=1.27"]')
