"""Builds images that are broken, runs every image check on them, and removes them."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.broken import Broken, context_of, dockerfile_of
from tests.e2e.broken.everything import BROKEN
from tests.e2e.forked import run_forked
from torchbake.checks.verdict import CheckResult, Outcome, read_results
from torchbake.core.paths import TOOLKIT

SOURCE = TOOLKIT / "entrypoints/init/volume-permissions.c"
# A copy for child processes: pytest changes its environment at each test. A process that a thread starts at that moment
# would read memory that is already freed (EFAULT).
_ENV = dict(os.environ)
REPOSITORY = "torchbake-test"  # its remaining images are removed when the tests end


@dataclass(frozen=True, kw_only=True)
class Base:
    """An image to break: its reference and its row."""

    ref: str
    row: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """The results of an image's checks; ``log`` is the end of their output."""

    checks: tuple[CheckResult, ...]
    log: str

    @property
    def failed(self) -> dict[str, str]:
        """The reasons of the failed checks, by check id."""
        return {check.id: check.summary for check in self.checks if check.outcome is Outcome.FAILED}

    @property
    def not_run(self) -> set[str]:
        return {check.id for check in self.checks if check.outcome is Outcome.NOT_RUN}


def judge(ref: str, row: str, only: Sequence[str] = (), matrix: Path = TOOLKIT / "matrix.yaml") -> Report:
    """Run an image's checks as `nox -s test` does: the checks ``only``, or all except the smoke tests."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.json")
        words = ["tests/images", "-q", "--tb=short", "-p", "no:cacheprovider"]
        words += ["-p", "no:hypothesispytest", "--assert=plain"]  # a second for each image
        words += ["--image", ref, "--row", row, "--results", str(results), "--matrix", str(matrix)]
        words += [word for glob in only for word in ("--only", glob)]
        words += ["--nodes", "1"] if only else ["--skip", "smoke.*"]
        process = run_forked("pytest", *words, cwd=TOOLKIT, env=_ENV, timeout=900)
        checks = read_results(results.read_text()) if results.exists() else ()
    return Report(checks=checks, log=(process.stdout + process.stderr)[-3000:])


def break_and_judge(names: Sequence[str], base: Base, *, is_whole: bool) -> Report:
    """Build an image with these defects, judge it by all checks or by those of the same families, and remove it."""
    ones = [BROKEN[name] for name in names]
    tags = [f"{REPOSITORY}/broken:{names[0]}", *(f"{REPOSITORY}/{one.tag}" for one in ones if one.tag)]
    try:
        _build(ones, base.ref, tags)
        with tempfile.TemporaryDirectory() as folder:
            families = sorted({f"{name.partition('.')[0]}.*" for name in names})
            only = [ones[0].only] if ones[0].only else [] if is_whole else families
            return judge(tags[0], base.row, only, _matrix(ones, base.row, Path(folder)))
    finally:
        _ran(["docker", "rmi", "-f", *tags])


def _ran(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=_ENV, capture_output=True, text=True, check=False, **options)


def _matrix(ones: Sequence[Broken], row: str, folder: Path) -> Path:
    """Return the path of the image's matrix: the repository's, or an extended copy in ``folder``."""
    more = ", ".join(one.row for one in ones if one.row)
    if not more:
        return TOOLKIT / "matrix.yaml"
    text = (TOOLKIT / "matrix.yaml").read_text()
    assert "\nimages:" not in text, "matrix.yaml has `images:` already; put what is added here below that"
    (folder / "images").symlink_to(TOOLKIT / "images")
    for name, content in (item for one in ones for item in one.beside.items()):
        (folder / name).write_text(content)
    path = folder / "matrix.yaml"
    path.write_text(f'{text}\nimages:\n  "{row}": {{{more}}}\n')
    return path


def _build(ones: Sequence[Broken], base: str, tags: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in context_of(ones).items():
            Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, name).write_text(text)
        if program := {before: after for one in ones for before, after in one.program.items()}:
            _compile(program, Path(folder, "volume-permissions"))
        command = ["docker", "build", "-q", "--provenance=false", *(word for tag in tags for word in ("-t", tag))]
        dockerfile = f"FROM {base}\n{dockerfile_of(ones)}"
        process = _ran([*command, "-f", "-", folder], input=dockerfile)
    assert process.returncode == 0, process.stderr


def _compile(program: Mapping[str, str], target: Path) -> None:
    """The init image's program with its mistake; every text that is replaced must be there once."""
    compiler = shutil.which("musl-gcc") or shutil.which("gcc")
    assert compiler, "no C compiler; install musl-tools (or gcc)"
    text = SOURCE.read_text()
    for before, after in program.items():
        times = text.count(before)
        assert times == 1, f"{json.dumps(before)} stands {times} times in {SOURCE.name}"
        text = text.replace(before, after)
    process = _ran([compiler, "-std=c11", "-O1", "-s", "-static", "-o", str(target), "-x", "c", "-"], input=text)
    assert process.returncode == 0, process.stderr
