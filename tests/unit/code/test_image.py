"""An image with code: what changes in its manifest and its config, and what does not."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.code.folders import ZSTD, image, layer_of, write
from torchbake.code.image import MOST_LAYERS, labels_of, with_layer
from torchbake.errors import UsageError
from torchbake.oci.labels import BASE_DIGEST, BASE_NAME, CODE
from torchbake.oci.layer_order import Layer
from torchbake.oci.manifest import Manifest, UnsoundError, sha256
from torchbake.oci.reference import Reference, Repository

BASE = Reference(repository=Repository(host="r.example.com", path="team/pytorch"), tag="cpu", digest=sha256(b"base"))
LABELS = labels_of(BASE, "/job")


@pytest.fixture
def layer(tmp_path: Path) -> Layer:
    return layer_of(write(tmp_path / "a"), tmp_path).layer


def test_only_the_layer_is_added(layer: Layer) -> None:
    base, data = image(3, kind=ZSTD)
    config: dict[str, Any] = {**json.loads(data), "created": "2026-01-01T00:00:00Z", "variant": "v8"}
    config["config"] = {"Cmd": ["python"], "Labels": {"a": "b"}}
    manifest, new = with_layer(base, config, layer, labels=LABELS)
    assert manifest.layers == (*base.layers, layer.blob)
    assert (manifest.config.digest, manifest.config.size) == (sha256(new), len(new))
    result = json.loads(new)
    assert result.pop("rootfs") == {"type": "layers", "diff_ids": [*config["rootfs"]["diff_ids"], layer.diff_id]}
    *before, step = result.pop("history")
    assert before == config["history"]
    assert step["created_by"] == "torchbake code push --at /job"
    assert step["created"] == config["created"]
    assert result.pop("config") == {"Cmd": ["python"], "Labels": {"a": "b", **LABELS}}
    assert result == {key: value for key, value in config.items() if key not in ("rootfs", "history", "config")}
    assert manifest.content["annotations"] == {
        BASE_NAME: f"r.example.com/team/pytorch@{BASE.digest}", BASE_DIGEST: BASE.digest,
    }  # fmt: skip
    assert LABELS[CODE] == "/job"


def test_the_same_code_on_the_same_image_is_the_same_image(layer: Layer) -> None:
    base, data = image()
    one, two = (with_layer(base, json.loads(data), layer, labels=LABELS) for _ in range(2))
    assert one == two


def test_a_manifest_of_docker_stays_one(layer: Layer) -> None:
    base, data = image(docker=True)
    manifest, _ = with_layer(base, json.loads(data), layer, labels=LABELS)
    assert manifest.media_type == manifest.content["mediaType"] == base.media_type
    assert manifest.layers[-1].media_type == "application/vnd.docker.image.rootfs.diff.tar.gzip"
    assert "annotations" not in manifest.content
    assert manifest.config.media_type == base.config.media_type


def test_annotations_of_the_image_stay(layer: Layer) -> None:
    base, data = image()
    annotated = Manifest(
        data=json.dumps({**base.content, "annotations": {"x": "y", BASE_NAME: "debian"}}).encode(),
        media_type=base.media_type,
    )
    manifest, _ = with_layer(annotated, json.loads(data), layer, labels=LABELS)
    assert manifest.content["annotations"] == {"x": "y", BASE_NAME: LABELS[BASE_NAME], BASE_DIGEST: BASE.digest}


def test_an_image_without_history_gets_none(layer: Layer) -> None:
    base, data = image()
    config = json.loads(data)
    del config["history"]
    assert "history" not in json.loads(with_layer(base, config, layer, labels=LABELS)[1])


def test_an_image_with_too_many_layers_gets_no_more(layer: Layer) -> None:
    base, data = image(MOST_LAYERS - 1)
    manifest, _ = with_layer(base, json.loads(data), layer, labels=LABELS)
    assert len(manifest.layers) == MOST_LAYERS
    base, data = image(MOST_LAYERS)
    with pytest.raises(UsageError, match=f"{MOST_LAYERS} layers"):
        with_layer(base, json.loads(data), layer, labels=LABELS)


def test_code_is_not_put_on_code(layer: Layer) -> None:
    manifest, data = with_layer(*_parsed(image()), layer, labels=LABELS)
    with pytest.raises(UsageError) as error:
        with_layer(manifest, json.loads(data), layer, labels=LABELS)
    assert LABELS[BASE_NAME] in error.value.sentence
    other = {**LABELS, CODE: "/opt/data"}
    assert len(with_layer(manifest, json.loads(data), layer, labels=other)[0].layers) == 4


@pytest.mark.parametrize(
    "config", [{}, {"rootfs": 1}, {"rootfs": {"diff_ids": None}}, {"rootfs": {"diff_ids": []}, "config": 1}]
)
def test_a_malformed_config_is_an_error(layer: Layer, config: dict[str, Any]) -> None:
    with pytest.raises(UnsoundError):
        with_layer(image()[0], config, layer, labels=LABELS)


def _parsed(pair: tuple[Manifest, bytes]) -> tuple[Manifest, dict[str, Any]]:
    return pair[0], json.loads(pair[1])
