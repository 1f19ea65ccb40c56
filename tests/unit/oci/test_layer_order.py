"""Layers in another order, or others in their place: what an image then says of itself."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.layouts import archive, blobs_of, file, put, sha256
from torchbake.oci.layer_order import Layer, chain_ids, ordered
from torchbake.oci.layout import Layout
from torchbake.oci.manifest import Blob, Manifest, UnsoundError

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


def told(manifest: Manifest, config: bytes) -> list[tuple[str, str, str]]:
    """Each layer's step, the digest of its blob and that of its archive, the lowest first."""
    content = json.loads(config)
    steps = [entry["created_by"] for entry in content["history"] if not entry.get("empty_layer")]
    digests = [blob.digest for blob in manifest.layers]
    return list(zip(steps, digests, content["rootfs"]["diff_ids"], strict=True))


def first(*steps: str) -> Any:
    return lambda step: steps.index(step) if step in steps else None


def test_what_has_a_rank_comes_first_by_rank_and_the_rest_as_it_stood(tmp_path: Path) -> None:
    before = {step: rest for step, *rest in told(*image(tmp_path))}
    after = told(*ordered(*image(tmp_path), first("COPY b", "COPY a"), {}))
    assert [step for step, *_ in after] == ["COPY b", "COPY a", "FROM", "RUN python", "COPY site"]
    assert {step: rest for step, *rest in after} == before


def test_steps_without_a_layer_stay_where_they_were_among_the_rest(tmp_path: Path) -> None:
    _, config = ordered(*image(tmp_path), first("COPY a"), {})
    steps = [entry["created_by"] for entry in json.loads(config)["history"]]
    assert steps == ["COPY a", "FROM", "ARG X", "RUN python", "COPY b", "COPY site", "CMD"]


def test_all_else_of_the_config_stays(tmp_path: Path) -> None:
    _, before = image(tmp_path)
    _, after = ordered(*image(tmp_path), first("COPY a"), {})
    changed = ("history", "rootfs")
    assert {key: value for key, value in json.loads(after).items() if key not in changed} == {
        key: value for key, value in json.loads(before).items() if key not in changed
    }


def test_the_manifest_is_of_the_new_config(tmp_path: Path) -> None:
    manifest, config = ordered(*image(tmp_path), first("COPY a"), {})
    assert (manifest.config.digest, manifest.config.size) == (sha256(config), len(config))


def test_another_layer_takes_ones_place_in_manifest_and_config(tmp_path: Path) -> None:
    after = told(*ordered(*image(tmp_path), first("COPY b"), {"COPY b": [("COPY b", OTHER)]}))
    assert after[0] == ("COPY b", OTHER.blob.digest, OTHER.diff_id)
    assert after[1:] == [row for row in told(*image(tmp_path)) if row[0] != "COPY b"]


def test_several_layers_in_ones_place_stand_in_their_order(tmp_path: Path) -> None:
    upper = Layer(blob=replace(OTHER.blob, digest=sha256(b"upper")), diff_id=sha256(b"upper archive"))
    after = told(*ordered(*image(tmp_path), first("COPY b"), {"COPY b": [("COPY c", OTHER), ("COPY d", upper)]}))
    assert after[:2] == [(made, one.blob.digest, one.diff_id) for made, one in (("COPY c", OTHER), ("COPY d", upper))]
    assert after[2:] == [row for row in told(*image(tmp_path)) if row[0] != "COPY b"]


@given(st.permutations(STEPS), st.integers(min_value=0, max_value=len(STEPS)))
def test_no_layer_is_lost_or_doubled(order: list[str], ranked: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        before = told(*image(Path(folder)))
        after = told(*ordered(*image(Path(folder)), first(*order[:ranked]), {}))
    assert sorted(after) == sorted(before)
    assert [step for step, *_ in after][:ranked] == order[:ranked]


def test_the_same_image_is_the_same_bytes(tmp_path: Path) -> None:
    assert len({ordered(*image(tmp_path), first("COPY a"), {})[0].digest for _ in range(3)}) == 1


@pytest.mark.parametrize(
    "changes",
    [{"history": HISTORY[:-2]}, {"history": "none"}, {"history": ["COPY"] * 5}],
    ids=["a step too few", "no list", "no objects"],
)
def test_a_config_that_does_not_tell_what_made_its_layers_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(UnsoundError, match="what made each"):
        ordered(*image(tmp_path, **changes), first(), {})


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
