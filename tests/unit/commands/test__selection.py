"""Selections of a large matrix: twice the images take twice the work, which is counted in calls of functions."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from torchbake import cli
from torchbake.matrix.project import load_project

MATRIX = """\
repository: acme/pytorch
bases:
  debian12: {image: "debian:bookworm-slim", suite: bookworm, python: "3.11"}
flavors: {runtime: {}}
tags: {defaults: {accelerator: cpu, base: debian12}, rolling: [latest]}
rows:
"""
ROW = "  - {{torch: 2.10.{}, accelerator: cpu, base: debian12, platforms: [linux/amd64, linux/arm64]}}\n"


def matrix(folder: Path, rows: int) -> Path:
    """Write a matrix with two images in each row, a file with their ids, and one that excludes all but the first."""
    folder.mkdir()
    path = folder / "matrix.yaml"
    path.write_text(MATRIX + "".join(map(ROW.format, range(rows))))
    ids = [spec.id for spec in load_project(path).expansion.specs]
    (folder / "ids.txt").write_text("\n".join(ids))
    (folder / "not.txt").write_text("\n".join(f"!{name}" for name in ids[1:]))
    return path


def calls_of(work: Callable[[], object]) -> int:
    """Return the number of calls of Python's functions in some work."""
    count = 0

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(
    "words", ["list all --size small --format json", "list @ids.txt --format ids", "list all @not.txt"]
)
def test_work_grows_with_the_images_alone(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = list[int]()
    for rows in (100, 100, 200):  # the first run imports modules
        path = matrix(tmp_path / f"{len(counts)}", rows)
        monkeypatch.chdir(path.parent)
        command = [*words.split(), "--matrix", str(path)]
        counts.append(calls_of(partial(cli.main, command)))
        assert capsys.readouterr().out
    assert counts[2] < 2.2 * counts[1], counts


def test_platforms_of_each_image_are_looked_up(tmp_path: Path) -> None:
    def calls(rows: int) -> int:
        expansion = load_project(matrix(tmp_path / f"{rows}", rows)).expansion
        return calls_of(lambda: [expansion.groups.of(spec) for spec in expansion.specs])

    assert calls(200) < 2.2 * calls(100)
