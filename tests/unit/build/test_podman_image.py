"""Images that podman hands out, as they get into a layout: equal for all of its versions."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.unit.layouts import Entry, archive, file, put, sha256
from torchbake.build.podman_image import put_files, put_image
from torchbake.errors import BuildError
from torchbake.store.layout import Layout

CREATED = "2025-01-01T00:00:00+00:00"
BASE = archive(file("etc/base", b"base"))


def handed_out(folder: Path, *layers: bytes, **config: Any) -> Layout:
    """A layout as buildah and podman write one."""
    layout = Layout(folder=folder)
    told = {"architecture": "amd64", "os": "linux", "created": "2026-11-27T22:14:46.68686784Z", **config}
    digest = put(layout, *layers, packing="tar", config=told)
    (folder / "index.json").write_text(json.dumps({"manifests": [{"digest": digest}]}))
    return layout


def content_of(layout: Layout, digest: str) -> list[tuple[str, int, str]]:
    with tarfile.open(
        fileobj=io.BytesIO(zstandard.ZstdDecompressor().stream_reader(layout.path(digest).open("rb")).read())
    ) as read:
        return [(one.name, one.mode, one.uname) for one in read]


def of_version(number: int) -> tuple[list[Entry], dict[str, Any]]:
    """The same layer and config, as one or another version of podman would write them."""
    mode = 0o100755 if number == 4 else 0o755
    entry = file("program", b"x" * 5000, mode=mode, uname="root" if number == 4 else "", mtime=1735689600.25 * 1)
    step = {"created": f"2026-11-2{number}T00:00:00Z", "created_by": "COPY /program" + " " * number}
    label = {"id": "a", "io.buildah.version": f"1.{number}"}
    more = {"history": [step, {**step, "empty_layer": True}], "config": {"Labels": label, "User": "0:0"}}
    return [entry], more | {"created": step["created"]}


def test_versions_of_podman_give_the_same_image(tmp_path: Path) -> None:
    made = []
    for number in (4, 5):
        entries, config = of_version(number)
        layout = Layout(folder=tmp_path / f"export-{number}")
        saved = handed_out(tmp_path / f"podman-{number}", archive(*entries), **config)
        made.append(put_image(saved, layout, bases=(), steps=(), created=CREATED))
        assert layout.find(made[-1].digest) == made[-1]
        assert [path.name for path in layout.folder.iterdir()] == ["blobs"]
    assert made[0] == made[1]
    found = json.loads(layout.path(made[0].config.digest).read_bytes())
    assert content_of(layout, made[0].layers[0].digest) == [("program", 0o755, "")]
    assert found["config"] == {"Labels": {"id": "a"}, "User": "0:0"}
    assert found["history"] == [
        {"created": CREATED, "created_by": "COPY /program"},
        {"created": CREATED, "created_by": "COPY /program", "empty_layer": True},
    ]


def test_steps_have_the_words_of_buildkit(tmp_path: Path) -> None:
    """`compose` knows the layers of wheels by these. A step too few would name another layer."""
    told = [{"created_by": f"/bin/sh -c #(nop) {number}"} for number in range(3)]
    layers = [archive(file(name)) for name in "abc"]
    for steps, expected in (
        (("COPY b", "COPY c"), ["/bin/sh -c #(nop) 0", "COPY b", "COPY c"]),
        ((), [step["created_by"] for step in told]),
        (("a", "b", "c", "d"), None),
    ):
        layout = Layout(folder=tmp_path / f"export-{len(steps)}")
        saved = handed_out(tmp_path / f"podman-{len(steps)}", *layers, history=told)
        if expected is None:
            with pytest.raises(BuildError, match="3 steps of 4"):
                put_image(saved, layout, bases=(), steps=steps, created=CREATED)
            continue
        made = put_image(saved, layout, bases=(), steps=steps, created=CREATED)
        config = json.loads(layout.path(made.config.digest).read_bytes())
        assert [step["created_by"] for step in config["history"]] == expected


def test_a_layer_of_the_base_stays_as_it_is_packed(tmp_path: Path) -> None:
    base, layout = Layout(folder=tmp_path / "base"), Layout(folder=tmp_path / "export")
    digest = put(base, BASE)
    found = base.find(digest)
    assert found
    (tmp_path / "base/index.json").write_text(json.dumps({"manifests": [{"digest": digest}]}))
    saved = handed_out(tmp_path / "podman", BASE, archive(file("new")))
    made = put_image(saved, layout, bases=(base,), steps=(), created=CREATED)
    assert made.layers[0] == found.layers[0]
    assert made.layers[1].media_type.endswith("zstd")
    config = json.loads(layout.path(made.config.digest).read_bytes())
    assert config["rootfs"]["diff_ids"][0] == sha256(BASE)


def test_an_image_that_is_not_whole_is_an_error(tmp_path: Path) -> None:
    whole = handed_out(tmp_path / "podman", BASE)
    whole.path(sha256(BASE)).unlink()
    for broken in (whole, Layout(folder=tmp_path / "nothing")):
        with pytest.raises(BuildError, match="did not hand out"):
            put_image(broken, Layout(folder=tmp_path / "export"), bases=(), steps=(), created=CREATED)


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
