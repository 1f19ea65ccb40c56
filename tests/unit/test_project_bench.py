"""The table of a project's images against uv's guide, and the file that the benchmark edits."""

from pathlib import Path

from benchmarks.project import EDIT, FIRST, GUIDE, OURS, Build, rows, source_file

MATRIX = """\
repository: own
bases: {b: {image: "b:1", suite: s, python: "3.11"}}
rows:
  - {torch: 2.10.0, accelerator: cuda12.8, base: b, project: {folder: ., files: [pyproject.toml, README.md, src/]}}
flavors: {runtime: {}}
tags: {defaults: {base: b}, rolling: [latest]}
"""


def test_layers_count_as_new_if_the_state_before_lacks_them() -> None:
    results = {
        FIRST: {
            OURS: [Build(seconds=10, layers={"torch": 3_000_000, "app": 1_000_000})],
            GUIDE: [Build(seconds=40, layers={"all": 4_000_000, "app": 4_000_000})],
        },
        EDIT: {
            OURS: [Build(seconds=1, layers={"torch": 3_000_000, "app2": 1_000_000})],
            GUIDE: [Build(seconds=4, layers={"all": 4_000_000, "app2": 2_000_000})],
        },
    }
    assert [row[:6] for row in rows(results)[:4]] == [
        (FIRST, OURS, "10.0 s", "0.25", "4 MB", "0.500"),
        (FIRST, GUIDE, "40.0 s", "1.00", "8 MB", "1.000"),
        (EDIT, OURS, "1.0 s", "0.25", "1 MB", "0.500"),
        (EDIT, GUIDE, "4.0 s", "1.00", "2 MB", "1.000"),
    ]


def test_an_edit_is_in_a_file_that_the_image_has(tmp_path: Path) -> None:
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    for path, text in {"tests/a.py": "1", "src/app/a.py": "", "src/app/b.py": "1", "src/app/c.py": "1"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert source_file(tmp_path) == "src/app/b.py"
