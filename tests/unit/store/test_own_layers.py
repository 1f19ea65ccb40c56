"""Images that builders export, in torchbake's form: one image of the same files, whoever built them."""

import copy
import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pytest
import zstandard

from tests.unit.layouts import Entry, archive, blobs_of, file, put, sha256
from torchbake.errors import BuildError
from torchbake.oci.layer_archive import compress_layer, write_layer
from torchbake.oci.layer_order import Layer
from torchbake.oci.manifest import Manifest
from torchbake.oci.tree import FORM, HistoryStep
from torchbake.store import own_layers
from torchbake.store.layers import LayerStore
from torchbake.store.layout import Layout
from torchbake.store.own_layers import OwnLayers

CREATED, EPOCH = "2025-01-01T00:00:00+00:00", 1735689600
LATER = EPOCH + 5_000_000  # when a builder ran
CAPABILITY = {"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x20\x00\x00"}
STEPS = (
    HistoryStep("RUN /bin/sh -c apt # buildkit", ("run/secrets/token", "etc/ssl/ca.crt", "mnt/cache/apt")),
    HistoryStep("COPY program /program # buildkit"),
    HistoryStep("LABEL a=b"),
    HistoryStep("RUN /bin/sh -c true # buildkit", ("run/secrets/token",)),
)


def folder(name: str, **changes: Any) -> Entry:
    return file(name, **{"type": tarfile.DIRTYPE, "mode": 0o755, **changes})


BASE = archive(
    folder("etc"), file("etc/passwd", b"root"), folder("etc/ssl"), file("etc/ssl/ca.crt", b"of the base"),
    folder("opt/old"), file("opt/old/a", b"1"), folder("opt/old/b"), file("opt/old/b/c", b"2"), folder("proc"),
    folder("var/cache"), file("var/cache/old", b"3"), file("var/cache/kept", b"4"), folder("tmp", mode=0o1777),
)  # fmt: skip
# The first step as BuildKit exports it: sorted, each removed file by itself, and with an empty file for a secret.
BY_BUILDKIT = archive(
    folder("etc"), folder("etc/ssl"), file("etc/ssl/ca.crt"), folder("opt"), folder("opt/old"), file("opt/old/.wh.a"),
    file("opt/old/.wh.b"), file("opt/old/new", b"5", uid=7, gid=8, mtime=9), folder("tmp", mode=0o1777, mtime=LATER),
    folder("usr"), file("usr/a.so", b"6" * 5000, mtime=LATER),
    file("usr/b.so", type=tarfile.LNKTYPE, linkname="usr/a.so"),
    file("usr/ping", b"7", mode=0o755, pax_headers=CAPABILITY), folder("var"), folder("var/cache"),
    file("var/cache/.wh.old"),
)  # fmt: skip
ROOT = {"uname": "root", "gname": "root"}
# The same as buildah does: unsorted, with traces of the container, and an opaque folder.
BY_BUILDAH = archive(
    folder("var/cache", mtime=LATER + 0.25, **ROOT), file("var/cache/.wh.old"), folder("proc", mode=0o555, **ROOT),
    folder("run/secrets", mtime=LATER, **ROOT), file("run/secrets/token", mode=0o700), file("run/.containerenv"),
    folder("mnt/cache/apt"), file("etc/ssl/.wh.ca.crt"), file("etc/resolv.conf", mtime=LATER),
    file("etc/passwd", b"root", mtime=LATER, **ROOT), folder("usr", mtime=LATER, **ROOT),
    file("usr/ping", b"7", mode=0o100755, pax_headers={**CAPABILITY, "SCHILY.xattr.user.overlay": "y"}, **ROOT),
    file("usr/b.so", b"6" * 5000, mtime=LATER + 1.5, **ROOT),
    file("usr/a.so", type=tarfile.LNKTYPE, linkname="usr/b.so"), file("opt/old/.wh..wh..opq"),
    file("opt/old/new", b"5", uid=7, gid=8, mtime=9.75), folder("opt/old", mtime=LATER),
)  # fmt: skip
COPIES = archive(file("program", b"8", mode=0o755)), archive(file("./program", b"8", mode=0o755, **ROOT))
NOTHING = archive(), archive(folder("run"), folder("run/secrets"), file("etc/resolv.conf"), file("etc/hosts"))
SETTINGS: dict[str, Any] = {"Cmd": ["sh"], "User": "0:0", "WorkingDir": "/", "Labels": {"a": "b", "c": "d"}}
BUILDKITS = {
    "architecture": "amd64", "os": "linux", "created": "2026-02-03T04:05:06Z",
    "config": {**SETTINGS, "Env": ["PATH=/bin", "A=1=2"], "ArgsEscaped": True, "OnBuild": None},
    "history": [
        {"created": "2026-01-01T00:00:00Z", "created_by": "base  "},
        *(
            {"created_by": step.text, "comment": "buildkit.dockerfile.v0", "empty_layer": step.text[0] == "L"}
            for step in STEPS
        ),
    ],
}  # fmt: skip
BUILDAHS = {
    "os": "linux", "architecture": "amd64", "author": "somebody", "docker_version": "1",
    "config": {
        **SETTINGS, "Env": ["A=1=2", "PATH=/bin"], "Labels": {"io.buildah.version": "1.28.2", "c": "d", "a": "b"},
        "WorkingDir": "",
    },
    "history": [
        {"created_by": "base"},
        *({"created_by": f"/bin/sh -c #(nop) {step.text}"} | ({"empty_layer": True} if step.text[0] == "L" else {})
          for step in STEPS),
    ],
}  # fmt: skip
BUILDKIT = ((BASE, BY_BUILDKIT, COPIES[0], NOTHING[0]), BUILDKITS)
BUILDAH = ((BASE, BY_BUILDAH, COPIES[1], NOTHING[1]), BUILDAHS)


class Site:
    """A store of layers, and the exports of builders."""

    def __init__(self, path: Path) -> None:
        self.path, self.exports = path, list[Layout]()
        self.store = LayerStore(folder=path / "layers")

    def export(self, layers: Sequence[bytes], config: Mapping[str, Any], packing: Any = "tar") -> tuple[Layout, str]:
        self.exports.append(Layout(folder=self.path / f"export-{len(self.exports)}"))
        return self.exports[-1], put(self.exports[-1], *layers, config=config, packing=packing)

    def write(
        self, image: tuple[Sequence[bytes], Mapping[str, Any]], packing: Any = "tar", *,
        steps: Sequence[HistoryStep] = STEPS, **settings: Any,
    ) -> Manifest:  # fmt: skip
        """Export an image, and write it again; there is nothing else in the export then."""
        own = OwnLayers(**{"store": self.store, "epoch": EPOCH, **settings})
        layout, digest = self.export(*image, packing)
        manifest = own.write(layout, digest, steps=steps, created=CREATED)
        assert layout.find(manifest.digest) == manifest
        assert {layout.path(manifest.digest), *blobs_of(layout, manifest.digest)} == {*layout.blobs.iterdir()}
        assert [path.name for path in layout.folder.iterdir()] == ["blobs"]
        return manifest

    def config(self, manifest: Manifest) -> dict[str, Any]:
        return dict(json.loads(self.exports[-1].path(manifest.config.digest).read_text()))

    def entries(self, manifest: Manifest, number: int) -> list[tarfile.TarInfo]:
        with self.exports[-1].path(manifest.layers[number].digest).open("rb") as packed:
            data = zstandard.ZstdDecompressor().stream_reader(packed).read()
        with tarfile.open(fileobj=io.BytesIO(data)) as read:
            return read.getmembers()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_exports_of_the_same_files_are_one_image(site: Site, tmp_path: Path) -> None:
    images = [
        site.write(image, store=LayerStore(folder=tmp_path / f"layers-{number}"))
        for number, image in enumerate((BUILDKIT, BUILDAH))
    ]
    assert images[0].digest == images[1].digest
    names = [entry.name for entry in site.entries(images[1], 1)]
    assert names == [
        "opt", "opt/old", "opt/old/.wh.a", "opt/old/.wh.b", "opt/old/new", "usr", "usr/a.so", "usr/b.so", "usr/ping",
        "var", "var/cache", "var/cache/.wh.old",
    ]  # fmt: skip
    times = {entry.name: entry.mtime for entry in site.entries(images[1], 1)}
    assert times.pop("opt/old/new") == 9
    assert {*times.values()} == {EPOCH}
    assert [entry.name for entry in site.entries(images[1], 2)] == ["program"]
    assert len(images[1].layers) == 3


def test_another_form_of_layers_has_another_number(site: Site) -> None:
    """If the written bytes change, FORM must be raised, so that all images are built again."""
    outputs = site.config(site.write(BUILDKIT))
    assert (FORM, sha256(json.dumps(outputs, sort_keys=True).encode())) == (
        1, "sha256:e905fa20b9ffc64edabbcbacb38b7a0b09135a5bd33b0a91dacfc50a197f6e0b",
    )  # fmt: skip


def test_the_config_has_nothing_of_the_builder(site: Site) -> None:
    for image in (BUILDKIT, BUILDAH):
        matches = site.config(site.write(image))
        assert len(matches.pop("rootfs")["diff_ids"]) == 3
        assert matches == {
            "architecture": "amd64", "os": "linux", "created": CREATED,
            "config": {**SETTINGS, "Env": ["A=1=2", "PATH=/bin"]},
            "history": [
                {"created": CREATED, "created_by": "base"},
                {"created": CREATED, "created_by": STEPS[0].text},
                {"created": CREATED, "created_by": STEPS[1].text},
                {"created": CREATED, "created_by": STEPS[2].text, "empty_layer": True},
                {"created": CREATED, "created_by": STEPS[3].text, "empty_layer": True},  # changed nothing
            ],
        }  # fmt: skip


def test_files_at_mount_points_stay_if_a_step_wrote_them(site: Site) -> None:
    """A name server of the image's own is none of a container, and a folder of mounts stays if it has other files."""
    layer = archive(
        file("etc/resolv.conf", b"nameserver 1.1.1.1"), folder("run/secrets", mode=0o700), file("run/secrets/token"),
        file("run/secrets/own", b"1"), file("etc/hostname"),
    )  # fmt: skip
    history = [{"created_by": "base"}, {"created_by": "run"}]
    manifest = site.write(((BASE, layer), {"history": history}), steps=STEPS[:1])
    assert [entry.name for entry in site.entries(manifest, 1)] == [
        "etc", "etc/resolv.conf", "run", "run/secrets", "run/secrets/own"
    ]  # fmt: skip


def test_layers_of_the_base_stay_and_are_compressed_by_zstd(site: Site, tmp_path: Path) -> None:
    layout = Layout(folder=tmp_path / "base")
    (tmp_path / "made").mkdir()
    digest = put(Layout(folder=tmp_path / "made"), BASE)
    layout.take(tmp_path / "made", digest)
    (blob,) = layout.get(digest).layers
    manifest = site.write(BUILDAH, base=layout)
    assert manifest.layers[0] == blob
    assert site.exports[-1].path(blob.digest).samefile(layout.path(blob.digest))
    assert layout.find(digest)

    others = [site.write(BUILDKIT, (packing, "tar", "tar", "tar")) for packing in ("zstd", "gzip", "tar")]
    assert len({actual.digest for actual in others}) == 1
    for actual in (manifest, *others):
        assert {layer.media_type.rpartition("+")[2] for layer in actual.layers} == {"zstd"}
        assert site.config(actual)["rootfs"]["diff_ids"][0] == sha256(BASE)


def without_rootfs(config: dict[str, Any], layout: Layout) -> None:
    del config["rootfs"]


def of_fewer_steps(config: dict[str, Any], layout: Layout) -> None:
    del config["history"][2:]


def of_another_number_of_layers(config: dict[str, Any], layout: Layout) -> None:
    config["rootfs"]["diff_ids"].append(sha256(b""))


def of_no_words(config: dict[str, Any], layout: Layout) -> None:
    config["history"] = [1, 2, 3, 4, 5]


def of_a_lost_layer(config: dict[str, Any], layout: Layout) -> None:
    layout.path(sha256(BY_BUILDKIT)).unlink()


@pytest.mark.parametrize(
    "damage", [without_rootfs, of_fewer_steps, of_another_number_of_layers, of_no_words, of_a_lost_layer]
)
def test_a_damaged_export_is_an_error(site: Site, damage: Callable[[dict[str, Any], Layout], None]) -> None:
    layout, digest = site.export(*copy.deepcopy(BUILDKIT))
    manifest = json.loads(layout.path(digest).read_text())
    config = json.loads(layout.path(manifest["config"]["digest"]).read_text())
    damage(config, layout)
    data = json.dumps(config).encode()
    manifest["config"] |= {"digest": sha256(data), "size": len(data)}
    text = json.dumps(manifest).encode()
    for content in (data, text):
        layout.path(sha256(content)).write_bytes(content)
    with pytest.raises(BuildError):
        OwnLayers(store=site.store, epoch=EPOCH).write(layout, sha256(text), steps=STEPS, created=CREATED)


def test_a_layer_that_is_no_archive_is_an_error_and_not_kept(site: Site) -> None:
    lost = archive(file("usr/b.so", type=tarfile.LNKTYPE, linkname="usr/lost.so"))
    for bad in (BY_BUILDAH[:1000], b"no archive" * 999, lost, b"\x28\xb5\x2f\xfd broken", b"\x1f\x8b\x08 broken"):
        with pytest.raises(BuildError, match="cannot be read"):
            site.write(((BASE, bad, *BUILDAH[0][2:]), BUILDAHS))
    assert [entry.name for entry in site.store.entries()] == ["a step of a Dockerfile"]  # the base's
    assert not [*site.store.folder.glob(".work-*")]


def test_a_store_that_is_read_only_still_gives_the_layers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = site.write(BUILDKIT)
    store = LayerStore(folder=site.path / "read-only")
    monkeypatch.setattr(LayerStore, "is_writable", False)
    assert site.write(BUILDAH, store=store) == expected
    assert not store.folder.exists()


def test_a_layer_is_written_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = list[Path]()

    def count_written(target: Path, members: Any, *, threads: int) -> Layer:
        paths.append(target)
        return write_layer(target, members, threads=threads)

    def count_compressed(target: Path, archive: IO[bytes], *, threads: int) -> Layer:
        paths.append(target)
        return compress_layer(target, archive, threads=threads)

    monkeypatch.setattr(own_layers, "write_layer", count_written)
    monkeypatch.setattr(own_layers, "compress_layer", count_compressed)
    first = site.write(BUILDKIT, "gzip")
    assert len(paths) == 4
    assert site.write(BUILDKIT) == first
    assert len(paths) == 4
    for blob in first.layers:
        assert site.exports[-1].path(blob.digest).samefile(site.store.path(blob.digest))

    # Other bytes of a layer, other mount points, and another time make other layers.
    assert site.write(BUILDAH) == first
    assert len(paths) == 4 + 3
    other = (HistoryStep(STEPS[0].text, (*STEPS[0].mounts, "usr/ping")), *STEPS[1:])
    assert "usr/ping" not in [entry.name for entry in site.entries(site.write(BUILDKIT, steps=other), 1)]
    earlier = site.write(BUILDKIT, epoch=EPOCH - 1)
    assert max(entry.mtime for entry in site.entries(earlier, 1)) == EPOCH - 1
