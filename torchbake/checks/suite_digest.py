"""Suite digest: a sha256 over everything that decides a verdict, except the image."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from torchbake.build.project_files import own_inputs
from torchbake.checks.verdict import Verdict
from torchbake.core.digest import PartialDigest, digest
from torchbake.core.paths import PACKAGE, TOOLKIT
from torchbake.lock.image_lock import lock_text
from torchbake.lock.project_content import project_sources
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec, Spec

CHECKS = TOOLKIT / "tests/images"

# The checks, the payloads they start, and the whole toolkit: the modules that a check uses are not known beforehand.
# A needless test is better than a pass that a changed check would not have given.
_PARTS = ("tests/images", "entrypoints", "torchbake", "pyproject.toml")


def suite_digest(project: Project, spec: Spec | None, options: Iterable[str], *, toolkit: Path = TOOLKIT) -> str:
    """Return ``sha256:…`` over the suite's files, the promises of an image's row, and the options of the checks.

    Without a row (``spec`` is None) the matrix promises nothing, and is not part of the digest.
    """
    return _suite(toolkit).digest((*_promises(project, spec), *options))


def promise_digest(project: Project, spec: Spec) -> str:
    """Return ``sha256:…`` over the matrix's promises for an image, including its waivers."""
    return digest(_promises(project, spec))


def outdated(project: Project, spec: Spec, verdict: Verdict) -> str:
    """Return why the suite or the matrix has changed since a verdict, or an empty text."""
    if verdict.promise != promise_digest(project, spec):
        return "the matrix promises something else of it, or waives other checks, than when it was tested"
    if verdict.suite != suite_digest(project, spec, verdict.how):
        return "it was tested by other checks than today's: they or the toolkit have changed since"
    return ""


def _promises(project: Project, spec: Spec | None) -> Iterator[str]:
    if spec is None:
        return
    yield repr(replace(spec, line=0))  # the line in the matrix is no promise
    yield from project.tags[spec.id]
    yield lock_text(project.root, spec)
    of_project = project_sources(spec.project) if isinstance(spec, ImageSpec) and spec.project else {}
    sources = (*spec.own.certificates, *(file.source for file in spec.own.files), *of_project.values())
    yield from own_inputs(project.root, dict.fromkeys(sources, False))
    for template in sorted(project.templates.rglob("*.j2")) if project.templates else ():
        yield f"{template.name}\n{_content(template)}"


@cache
def _suite(root: Path) -> PartialDigest:
    """Hash the files of the suite once for all images: they have some megabytes."""
    return PartialDigest(suite_files(root))


def suite_files(root: Path) -> Iterator[str]:
    """Yield the name and content of each file of the suite, sorted by name."""
    return (f"{name}\n{_content(path)}" for name, path in sorted(_walk(root)))


def _walk(root: Path) -> Iterator[tuple[str, Path]]:
    for name in _PARTS:
        part = root / name
        if name == PACKAGE.name and not part.exists():
            part = PACKAGE  # an installed package is in another folder
        found_paths = part.rglob("*") if part.is_dir() else iter([part])
        for path in found_paths:
            # A build writes `_version.py`, so it can differ between two machines with the same commit.
            if path.is_file() and "__pycache__" not in path.parts and path.name != "_version.py":
                yield (Path(name) / path.relative_to(part)).as_posix(), path


def _content(path: Path) -> str:
    return path.read_bytes().decode("latin-1")  # keeps every byte of files that are not text
