"""Make an image's lock from a project's lock, or for a row without a project from the row."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.agreement import check_agreement
from torchbake.lock.image_lock import check_online as check_row_online
from torchbake.lock.image_lock import (
    differences_of,
    inputs_of,
    make_lock,
    unhashed,
    with_more_indexes,
    without_cpu_wheels,
)
from torchbake.lock.lockfile import Lock, Pin, assign_layers, format_lock, parse_pins
from torchbake.lock.project_inputs import kind_of, project_digest
from torchbake.lock.wheel_tags import glibc_for, glibc_of
from torchbake.matrix.spec import ImageSpec, ProjectSpec
from torchbake.projects.build_requirements import SECTION, pins_of_build
from torchbake.projects.own_wheels import pins_of_own_wheels
from torchbake.projects.packages import Folder, ProjectLock, WheelSource
from torchbake.projects.read import read_project
from torchbake.projects.wheels_folder import fitting_wheel
from torchbake.ui.command import Command

# Bytes of a wheel's archive; a larger wheel has a layer, if it is one of the largest. The others share a layer, which
# every change of the project's lock makes again. A wheel has two layers at most, with its bytecode, and engines allow
# 127 layers: https://docs.docker.com/engine/storage/drivers/overlayfs-driver/
HEAVY = 8 * 10**6
MOST_HEAVY = 25


def lock_image(root: Path, spec: ImageSpec, config: PipConfig, *, previous: str = "", upgrade: bool = False) -> Lock:
    """Make an image's lock: of its project's lock, unchanged, or by resolving the row. ``previous`` is the old text.

    ``root`` is the matrix's folder. Raises LockError if there are no such wheels, or if they do not fit the row.
    """
    if spec.project is None:
        return make_lock(spec, config, previous=previous, upgrade=upgrade)
    project, own = spec.project, config.for_image(spec)

    def make(sources: PipConfig) -> Lock:
        return _lock_project(root, spec, project, sources, "" if upgrade else previous)

    try:  # a uv.lock needs no index, except for the wheels that build the project
        return make(own) if kind_of(project.lock) == "uv" else with_more_indexes(spec, own, make)
    except LockError as error:
        place = "" if error.message.startswith("matrix.yaml:") else f"matrix.yaml:{spec.line}: {spec.id}: "
        raise LockError(f"{place}{error.message}", hint=error.hint) from None


def _lock_project(root: Path, spec: ImageSpec, project: ProjectSpec, config: PipConfig, previous: str) -> Lock:
    python, before = spec.base.python, unhashed(parse_pins(previous.partition(SECTION)[0])).splitlines()

    def read(exclude: Sequence[str]) -> ProjectLock:
        return read_project(root, project, python, config, previous=before, exclude=exclude)

    resolved = kind_of(project.lock) == "pyproject"
    locked = without_cpu_wheels(spec, read, lambda lock: lock.packages if resolved else ())
    pins = [
        Pin(name=each.name, version=each.version, hashes=each.hashes, via=each.via)
        for each in locked.packages
        if isinstance(each.source, WheelSource)
    ]
    _check_glibc(spec, locked)
    others = [each for each in locked.packages if not isinstance(each.source, WheelSource | Folder)]
    own = pins_of_own_wheels(others, locked, root, python, config)
    pins += own.values()
    names = {pin.name for pin in pins}
    complete = [replace(pin, via=tuple(sorted(names & {*pin.via}))) for pin in pins]
    lock = Lock(
        inputs=inputs_of(spec, project_digest(root, project, locked.folders)),
        layers=assign_layers(complete, _heavy(complete, {each.name: each.size for each in locked.packages})),
        packages=locked.folders,
        wheels=tuple(sorted(own)),
    )
    check_agreement(spec, lock, _places(locked))
    return replace(lock, build=pins_of_build(root, project, locked.folders, python, config, previous=previous))


def _heavy(pins: Sequence[Pin], sizes: Mapping[str, int]) -> set[str]:
    """Return the largest wheels of the layer of other wheels, which have layers of their own."""
    large = [pin.name for pin in assign_layers(pins)["site"] if sizes.get(pin.name, 0) > HEAVY]
    return {*sorted(large, key=lambda name: (-sizes[name], name))[:MOST_HEAVY]}


def _check_glibc(spec: ImageSpec, locked: ProjectLock) -> None:
    """Raise LockError if a wheel needs a newer C library than the base has."""
    base = glibc_of(spec.base.suite)
    for each in locked.packages:
        filename = fitting_wheel(each, spec.base.python)
        minimum = glibc_for(filename, spec.base.python) if filename else 0
        if minimum > base:
            raise LockError(
                f"matrix.yaml:{spec.line}: {spec.id}: {spec.base.name} has glibc 2.{base}, "
                f"but {locked.place(each.name)} locks {each.name} {each.version}, whose wheel needs glibc 2.{minimum}.",
                hint="Give the row a newer base, or lock another version.",
            )


def _places(locked: ProjectLock) -> dict[str, str]:
    return {"": locked.path, **{each.name: locked.place(each.name) for each in locked.packages}}


def check_online(root: Path, spec: ImageSpec, lock: Lock, config: PipConfig) -> None:
    """Make an image's lock again from the same inputs. Raises LockError if the result is another lock."""
    if spec.project is None:
        check_row_online(spec, lock, config)
        return
    # Without hashes, so that the build requirements are resolved too.
    previous = re.sub(r" \\\n {4}--hash=\S+", "", format_lock(lock))
    new = lock_image(root, spec, config, previous=previous)
    differences = [*differences_of(lock, new), *differences_of(_of_build(lock), _of_build(new))]
    if differences:
        raise LockError(
            "\n  ".join((f"{spec.id}: the lock does not follow from {spec.project.lock_path}:", *differences)),
            hint=f"Make it again: {Command('lock', spec.id)}",
        )


def _of_build(lock: Lock) -> Lock:
    """Return the wheels that build the project as a lock of their own."""
    return Lock(inputs=lock.inputs, layers=assign_layers(lock.build))
