"""The layer of a folder of code: the same files are the same bytes, and links lead to files of the layer."""

import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.unit.code.folders import FILES, entries, layer_of, write
from torchbake.code.layer import code_layer, place_of
from torchbake.errors import UsageError
from torchbake.oci.gzip_layer import write_gzip_layer
from torchbake.oci.layer_order import Layer
from torchbake.oci.layer_stream import unpacked_digest


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_the_same_files_are_the_same_layer(tmp_path: Path, compression: str) -> None:
    first, second = write(tmp_path / "a"), write(tmp_path / "b", dict(reversed(FILES.items())))
    os.utime(second / "train.py", (1, 1))
    (second / "net").chmod(0o700)
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    one = layer_of(first, tmp_path / "1", compression)  # type: ignore[arg-type]
    two = layer_of(second, tmp_path / "2", compression)  # type: ignore[arg-type]
    assert one.layer == two.layer
    assert one.path.read_bytes() == two.path.read_bytes()
    assert unpacked_digest(one.path) == one.layer.diff_id
    assert one.layer.blob.media_type.endswith(compression)
    (second / "train.py").write_text("print('changed')\n")
    assert layer_of(second, tmp_path / "2", compression).layer != one.layer  # type: ignore[arg-type]


def test_a_layer_has_one_diff_id_in_both_compressions(tmp_path: Path) -> None:
    folder = write(tmp_path / "a")
    gzip, zstd = layer_of(folder, tmp_path).layer, layer_of(folder, tmp_path, "zstd").layer
    assert gzip.diff_id == zstd.diff_id
    data = (tmp_path / "code.tar").read_bytes()
    assert "job/train.py" in entries(zstandard.ZstdDecompressor().decompressobj().decompress(data))


def test_entries_belong_to_root_and_have_stated_modes(tmp_path: Path) -> None:
    layer = layer_of(write(tmp_path / "a"), tmp_path)
    infos = entries(layer.path.read_bytes())
    assert list(infos) == ["job", "job/net", "job/net/model.py", "job/run.sh", "job/train.py"]
    assert {name: info.mode for name, info in infos.items()} == {
        "job": 0o755, "job/net": 0o755, "job/net/model.py": 0o644, "job/run.sh": 0o755, "job/train.py": 0o644,
    }  # fmt: skip
    assert {(info.uid, info.gid, info.uname, info.gname, info.mtime) for info in infos.values()} == {
        (0, 0, "", "", 315532800)
    }
    assert (layer.files, layer.size) == (3, sum(map(len, FILES.values())))


def test_a_folder_below_others_has_all_its_parents(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", {"x.py": ""})
    layer = code_layer(folder, ["x.py"], at="/opt/team/code/", work=tmp_path)
    infos = entries(layer.path.read_bytes())
    assert list(infos) == ["opt", "opt/team", "opt/team/code", "opt/team/code/x.py"]


@pytest.mark.parametrize("text", ["", "print('a much longer text')\n" * 9, None])
def test_a_file_that_changes_meanwhile_asks_for_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    folder = write(tmp_path / "a")

    def change(*words: Any) -> Layer:
        (folder / "train.py").unlink()
        if text is not None:
            (folder / "train.py").write_text(text)
        return write_gzip_layer(*words)

    monkeypatch.setattr("torchbake.code.layer.write_gzip_layer", change)
    with pytest.raises(UsageError, match=r"train\.py") as caught:
        layer_of(folder, tmp_path)
    assert caught.value.hint == "Run again."


def test_links_within_the_folder_are_kept(tmp_path: Path) -> None:
    folder = write(tmp_path / "a")
    (folder / "main.py").symlink_to("train.py")
    (folder / "net/up").symlink_to("../train.py")
    (folder / "models").symlink_to("net")
    names = [*FILES, "main.py", "net/up", "models"]
    infos = entries(code_layer(folder, names, at="/job", work=tmp_path).path.read_bytes())
    links = {name: info.linkname for name, info in infos.items() if info.type == tarfile.SYMTYPE}
    assert links == {"job/main.py": "train.py", "job/net/up": "../train.py", "job/models": "net"}


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../outside.py", "net/../../outside.py", "nothing.py", "left-out.py"]
)
def test_links_that_a_job_cannot_follow_are_refused(tmp_path: Path, target: str) -> None:
    folder = write(tmp_path / "a", {**FILES, "left-out.py": ""})
    (tmp_path / "outside.py").write_text("")
    (folder / "link.py").symlink_to(target)
    with pytest.raises(UsageError, match=r"link\.py"):
        code_layer(folder, [*FILES, "link.py"], at="/job", work=tmp_path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "a")
    os.mkfifo(folder / "pipe")
    (folder / "a\nb.py").write_text("")
    for name in ("pipe", "a\nb.py"):
        with pytest.raises(UsageError):
            code_layer(folder, [name], at="/job", work=tmp_path)


def test_code_is_not_put_over_the_system() -> None:
    bad = ("job", "/", "", "/tmp/x", "/etc", "/usr", "/usr/bin/x", "/lib/x", "/home/ann", "/opt", "/../var", "/a\nb")
    for at in bad:
        with pytest.raises(UsageError):
            place_of(at)
    assert [str(place_of(at)) for at in ("/job", "/opt/code", "/usr/src/app/", "/library")] == [
        "job", "opt/code", "usr/src/app", "library",
    ]  # fmt: skip
