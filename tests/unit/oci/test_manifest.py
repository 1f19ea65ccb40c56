"""Manifests of images and of indexes, and their media types."""

import json

from torchbake.oci.manifest import DOCKER, DOCKER_LIST, INDEX, MANIFEST, Manifest, type_of

CONFIG, LAYER, EMPTY = (
    {"mediaType": f"x/{name}", "digest": f"sha256:{name * 64}", "size": 1} for name in ("a", "b", "c")
)


def test_an_index_has_one_of_two_media_types() -> None:
    for kind, is_index in ((INDEX, True), (DOCKER_LIST, True), (MANIFEST, False), (DOCKER, False)):
        assert Manifest(data=b"{}", media_type=kind).is_index is is_index, kind


def test_the_media_type_is_the_manifests_own() -> None:
    headers = {"Content-Type": f"{INDEX}; charset=utf-8"}
    assert type_of(headers, b"{}") == type_of(headers, b"no JSON") == INDEX
    assert type_of(headers, json.dumps({"mediaType": DOCKER}).encode()) == DOCKER
    assert type_of({}, b"{}") == MANIFEST


def test_a_blob_of_several_layers_is_there_once() -> None:
    content = {"config": CONFIG, "layers": [LAYER, EMPTY, LAYER]}
    manifest = Manifest(data=json.dumps(content).encode(), media_type=MANIFEST)
    assert [layer.descriptor for layer in manifest.layers] == [LAYER, EMPTY, LAYER]
    assert [blob.descriptor for blob in manifest.blobs] == [LAYER, EMPTY, CONFIG]
