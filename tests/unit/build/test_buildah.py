"""Images that buildah and podman hand out as layouts."""

import json
import tarfile
from pathlib import Path

import pytest

from tests.unit.layouts import archive, file, put, sha256
from torchbake.build.buildah import Buildah, manifest_in, put_files
from torchbake.errors import BuildError, EngineError
from torchbake.store.layout import Layout

BASE = archive(file("etc/base", b"base"))


def handed_out(folder: Path, *layers: bytes) -> Layout:
    """A layout as buildah and podman write one."""
    layout = Layout(folder=folder)
    digest = put(layout, *layers, packing="tar")
    (folder / "index.json").write_text(json.dumps({"manifests": [{"digest": digest}]}))
    return layout


@pytest.mark.usefixtures("own_processes")
def test_a_buildah_that_does_not_start_has_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "buildah"
    program.write_text("#!/bin/sh\necho 'error while loading shared libraries: libgpgme.so.11' >&2\nexit 127\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(EngineError, match=r"buildah --version fails: .*libgpgme") as caught:
        Buildah(program="buildah").check()
    assert str(program) in str(caught.value.hint)


def test_an_image_that_is_not_whole_is_an_error(tmp_path: Path) -> None:
    whole = handed_out(tmp_path / "podman", BASE)
    whole.path(sha256(BASE)).unlink()
    for broken in (whole, Layout(folder=tmp_path / "nothing")):
        with pytest.raises(BuildError, match="did not save"):
            manifest_in(broken)


def test_files_of_all_layers_are_written_into_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    lower, upper = archive(file("a/b", b"1"), file("c", b"2")), archive(file("c", b"3", mode=0o755))
    put_files(handed_out(tmp_path / "podman", lower, upper), folder)
    assert {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()} == {
        "a/b": b"1",
        "c": b"3",
    }
    assert (folder / "c").stat().st_mode & 0o777 == 0o755
    for bad in (file("../out", b""), file("link", type=tarfile.SYMTYPE, linkname="/etc")):
        with pytest.raises(BuildError, match="not a file or a folder"):
            put_files(handed_out(tmp_path / f"podman-{bad[0].type!r}", archive(bad)), folder)
    assert not (tmp_path / "out").exists()
