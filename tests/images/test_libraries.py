"""Shared libraries: what the loader finds for every ELF file, and whether CUDA's load from inside the image."""

import fnmatch
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.images.checks import check
from tests.images.subject import Subject
from tests.images.tell import some
from torchbake.oci.labels import LABEL

OPTIONAL = tomllib.loads(Path(__file__).with_name("optional_libraries.toml").read_text())["optional"]
_PARTS = {"cuda": "libcudart", "cudnn": "libcudnn", "nccl": "libnccl"}


def wrong_in(answers: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the missing libraries by file, without the optional ones."""
    needs = {path: [name for name in names if not optional(path, name)] for path, names in answers.items()}
    return {path: names for path, names in needs.items() if names}


def optional(path: str, name: str) -> bool:
    return any(
        any(fnmatch.fnmatchcase(name, glob) for glob in rule["needs"])
        and any(fnmatch.fnmatchcase(path, glob) for glob in rule["paths"])
        for rule in OPTIONAL
    )


def found_by_import(path: str, name: str, linking: dict[str, Any]) -> bool:
    """Return True if the missing library of an extension module is loaded by its package: torch's, or its own.

    Python loads such a library by its path, and the loader then uses the loaded one. A program that is executed has
    no such help.
    """
    top = next((folder for folder in linking["path"] if path.startswith(f"{folder}/")), None)
    if top is None or ".so" not in path:
        return False
    package = path[len(top) + 1 :].partition("/")[0]
    providers = (f"{top}/{package}/", "/torch/lib/", "/nvidia/")
    return any(one.rsplit("/", 1)[-1] == name and any(part in one for part in providers) for one in linking["paths"])


def render(answers: dict[str, list[str]]) -> str:
    return some([f"{path} misses {some(names)}" for path, names in sorted(answers.items())])


def missing(linking: dict[str, Any]) -> dict[str, list[str]]:
    """Return the missing libraries by file, without LD_LIBRARY_PATH, which the image does not set."""
    left = {
        path: [name for name in names if not found_by_import(path, name, linking)]
        for path, names in wrong_in(linking["without"]).items()
    }
    return {path: names for path, names in left.items() if names}


@check("libraries.ldd", "ldd misses nothing for any ELF file; modules may count on what their package loads first")
def test_ldd(linking: dict[str, Any], figures: dict[str, Any]) -> None:
    figures["files"] = len(linking["paths"])
    assert not missing(linking), render(missing(linking))


@check("libraries.ldd-path", "nor with LD_LIBRARY_PATH over all library folders: nothing there hides a system library")
def test_ldd_path(linking: dict[str, Any]) -> None:
    before = missing(linking)
    wrong = {path: names for path, names in wrong_in(linking["with"]).items() if names != before.get(path)}
    assert not wrong, render(wrong)


@check("libraries.cuda", "cudart, NCCL and every part of cuDNN load from inside the image", families=("cuda",))
def test_cuda(subject: Subject, imports: dict[str, Any], packages: dict[str, Any], figures: dict[str, Any]) -> None:
    cuda = imports["cuda"]
    if not cuda["loaded"] and not cuda["errors"]:
        pytest.skip("the image holds no library of CUDA beside torch")
    figures.update(cuda["versions"])
    assert not cuda["errors"], some(f"{path}: {reason}" for path, reason in cuda["errors"].items())
    lost = [name for key, name in _PARTS.items() if f"{LABEL}.{key}" in subject.labels and name not in cuda["versions"]]
    assert not lost, f"not there, though a label names it: {some(lost)}"
    outside = [path for path in cuda["loaded"] if not path.startswith(tuple(f"{top}/" for top in packages["path"]))]
    assert not outside, f"loaded from elsewhere: {some(outside)}"
