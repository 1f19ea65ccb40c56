"""The benchmark of an edit: its folder, and its figures."""

import zlib
from pathlib import Path

from benchmarks.code import DOCKER, GOAL, OURS, CodeBench, code_rows


def test_the_folder_has_five_megabytes_like_code(tmp_path: Path) -> None:
    bench = CodeBench(folder=tmp_path, image="registry.example.com/bench/0:base", node="unix:///x")
    bench.write()
    texts = [path.read_bytes() for path in sorted(bench.code.rglob("*.py"))]
    size = sum(map(len, texts))
    assert 5_000_000 <= size < 5_100_000
    assert 2 < size / len(zlib.compress(b"".join(texts))) < 6
    bench.edit("other")
    assert (bench.code / "train.py").read_text() == "print('other', flush=True)\n"


def test_the_figures_are_medians_and_a_ratio() -> None:
    first, second, last = code_rows({OURS: [3.0, 1.0, 2.0], DOCKER: [8.0, 7.0, 9.0]})
    assert first == (OURS, "2.00 s", "1.00 s", "3.00 s", "0.25")
    assert second == (DOCKER, "8.00 s", "7.00 s", "9.00 s", "1.00")
    assert last == GOAL
