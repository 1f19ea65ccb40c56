"""The same files are the same bytes, wherever they lie and whenever they were written."""

import io
import os
import tarfile
from pathlib import Path

from torchbake.hosts.archive import archive_of


def fill(folder: Path) -> Path:
    (folder / "launch/__pycache__").mkdir(parents=True)
    (folder / "launch/__pycache__/x.pyc").write_text("")
    (folder / "launch/job.py").write_text("1\n")
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o775)
    return folder


def test_an_archive_is_reproducible_and_keeps_what_can_be_run(tmp_path: Path) -> None:
    first, second = fill(tmp_path / "a"), fill(tmp_path / "b")
    os.utime(second / "run", (1, 1))
    (second / "launch/job.py").chmod(0o600)
    assert archive_of(first) == archive_of(second)
    with tarfile.open(fileobj=io.BytesIO(archive_of(first))) as archive:
        assert [(entry.name, entry.mode) for entry in archive] == [("launch/job.py", 0o644), ("run", 0o755)]
