"""Layers below those of an image: what it then says of itself; and names of layers with those below them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.layouts import archive, blobs_of, file, put, sha256
from torchbake.oci.layer_order import Layer, chain_ids, image_of, json_bytes, with_layers_below
from torchbake.oci.manifest import CONFIG, MANIFEST, Blob, Manifest, UnsoundError
from torchbake.store.layout import Layout

STEPS = ("FROM", "RUN python", "COPY a", "COPY b", "COPY site")
ARCHIVES = [archive(file(step, step.encode())) for step in STEPS]
HISTORY: list[dict[str, Any]] = [
    {"created_by": "FROM"},
    {"created_by": "ARG X", "empty_layer": True},
    *({"created_by": step} for step in STEPS[1:]),
    {"created_by": "CMD", "empty_layer": True},
]
OTHER = Layer(
    blob=Blob(digest=sha256(b"other"), size=5, media_type="application/vnd.oci.image.layer.v1.tar+zstd"),
    diff_id=sha256(b"other, uncompressed"),
)


def image(folder: Path, **changes: Any) -> tuple[Manifest, bytes]:
    layout = Layout(folder=folder)
    digest = put(layout, *ARCHIVES, config={"history": HISTORY, "config": {"Cmd": ["python"]}, **changes})
    manifest = layout.find(digest)
    assert manifest
    return manifest, blobs_of(layout, digest)[-1].read_bytes()


def report(manifest: Manifest, config: bytes) -> list[tuple[str, str, str]]:
    """Each layer's step, the digest of its blob and that of its archive, the lowest first."""
    content = json.loads(config)
    steps = [entry["created_by"] for entry in content["history"] if not entry.get("empty_layer")]
    digests = [blob.digest for blob in manifest.layers]
    return list(zip(steps, digests, content["rootfs"]["diff_ids"], strict=True))


BELOW = [("COPY w", OTHER), ("COPY v", replace(OTHER, diff_id=sha256(b"another")))]


def test_new_layers_are_below_the_unchanged_layers_of_an_image(tmp_path: Path) -> None:
    after = report(*with_layers_below(*image(tmp_path), BELOW))
    assert after == [*((text, one.blob.digest, one.diff_id) for text, one in BELOW), *report(*image(tmp_path))]


def test_steps_without_a_layer_and_all_else_of_the_config_stay(tmp_path: Path) -> None:
    manifest, before = image(tmp_path, created="2026-01-01T00:00:00Z")
    _, after = with_layers_below(manifest, before, BELOW)
    one, other = json.loads(before), json.loads(after)
    assert other["history"][len(BELOW) :] == one["history"]
    assert {step["created"] for step in other["history"][: len(BELOW)]} == {one["created"]}
    assert {**one, "history": 0, "rootfs": 0} == {**other, "history": 0, "rootfs": 0}


def test_the_manifest_names_the_new_config_and_is_reproducible(tmp_path: Path) -> None:
    manifest, config = with_layers_below(*image(tmp_path), BELOW)
    assert (manifest.config.digest, manifest.config.size) == (sha256(config), len(config))
    assert manifest.digest == with_layers_below(*image(tmp_path), BELOW)[0].digest


@pytest.mark.parametrize("changes", [{"rootfs": None}, {"rootfs": {"diff_ids": 5}}, {"history": 5}])
def test_a_config_that_does_not_tell_its_layers_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    manifest, config = image(tmp_path)
    with pytest.raises(UnsoundError, match="does not list"):
        with_layers_below(manifest, json.dumps({**json.loads(config), **changes}).encode(), BELOW)


@pytest.mark.parametrize("data", [b"", b"no json", b"[]", b"\xff"])
def test_a_config_that_is_no_json_object_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UnsoundError, match="cannot be read"):
        with_layers_below(image(tmp_path)[0], data, BELOW)


def test_a_config_without_time_and_history_gets_our_steps(tmp_path: Path) -> None:
    manifest, config = image(tmp_path)
    content = {name: value for name, value in json.loads(config).items() if name not in ("created", "history")}
    _, after = with_layers_below(manifest, json_bytes(content), BELOW)
    assert json.loads(after)["history"] == [{"created_by": command} for command, _ in BELOW]


def test_all_else_of_the_manifest_stays(tmp_path: Path) -> None:
    manifest, config = image(tmp_path)
    content = {**manifest.content, "annotations": {"a": "b"}, "config": {**manifest.content["config"], "x": 1}}
    manifest = Manifest(data=json_bytes(content), media_type="application/vnd.docker.distribution.manifest.v2+json")
    after, _ = with_layers_below(manifest, config, BELOW)
    assert after.media_type == manifest.media_type
    assert {**after.content, "config": 0, "layers": 0} == {**content, "config": 0, "layers": 0}
    assert after.content["config"].keys() == content["config"].keys()
    assert after.content["layers"] == [*(layer.blob.descriptor for _, layer in BELOW), *content["layers"]]


def test_layers_alone_are_an_image() -> None:
    """The fields that the image specification requires, without spaces and in UTF-8, as digests are of bytes."""
    manifest, config = image_of([("RUN ü", OTHER), BELOW[1]])
    assert json.loads(config) == {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [OTHER.diff_id, BELOW[1][1].diff_id]},
        "history": [{"created_by": "RUN ü"}, {"created_by": "COPY v"}],
    }
    assert "ü".encode() in config
    assert config.count(b" ") == 2  # those of the commands
    assert manifest.media_type == MANIFEST
    assert manifest.data == json_bytes(manifest.content)
    assert manifest.content == {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": sha256(config), "size": len(config)},
        "layers": [OTHER.blob.descriptor, BELOW[1][1].blob.descriptor],
    }


def test_a_chain_tells_the_same_layer_on_other_layers_apart() -> None:
    # The example of the image specification's own reference implementation: sha256("<chain> <diff id>").
    one, other = chain_ids(["sha256:a", "sha256:c"]), chain_ids(["sha256:b", "sha256:c"])
    assert one[0] == "sha256:a"
    assert one[1] != other[1]
    assert chain_ids([]) == ()


def test_a_layer_is_named_with_those_below_it() -> None:
    """As in the specification: the lowest by its own digest, each other by the name below and its digest."""
    a, b = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    first, second = chain_ids([a, b])
    assert first == a
    assert second == "sha256:ccd722928bd92476ba1745586fed6e45a102504185ad88cd89e01ff116fd146c"
    assert chain_ids([b, a])[1] != second
