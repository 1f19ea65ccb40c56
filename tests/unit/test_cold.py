"""Cold builds side by side: what the Dockerfile tuned by hand is given, one more package, and the figures."""

import gzip
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
import zstandard

from benchmarks.cold import GOALS, MORE, OURS, TUNED, Size, in_turn, rows, tuned_target, warm_rows, with_package
from benchmarks.matrix import Cost
from benchmarks.matrix import rows as matrix_rows
from benchmarks.measure import read_archive
from torchbake.core.paths import TOOLKIT
from torchbake.matrix.project import load_project
from torchbake.matrix.spec import ImageSpec

DOCKERFILE = (TOOLKIT / "benchmarks/tuned.Dockerfile").read_text()


def devel() -> ImageSpec:
    specs = load_project(TOOLKIT / "matrix.yaml").expansion.specs
    value = next(spec for spec in specs if spec.id == "2.13.0-cpu-devel-debian12")
    assert isinstance(value, ImageSpec)
    return value


def test_the_tuned_way_has_the_images_base_lock_and_packing() -> None:
    args = {"INPUTS": "1", "HTTP_PROXY": "${HTTP_PROXY}"}
    ours = {"context": "/x", "dockerfile": "y", "args": args, "contexts": {"a": "b"}, "output": ["zstd"]}
    target = tuned_target(ours, devel(), Path("/project"), ["https://a.example/cpu", "https://b.example/cpu"])
    assert target == {
        "context": "/project/images/2.13.0-cpu-devel-debian12",
        "dockerfile": str(TOOLKIT / "benchmarks/tuned.Dockerfile"),
        "args": {
            "BASE": "debian:bookworm-slim",
            "APT": "ca-certificates python3 python3-pip-whl tini g++ libpython3-dev git make python3-dev",
            "INDEXES": "https://a.example/cpu https://b.example/cpu",
            "HTTP_PROXY": "${HTTP_PROXY}",
        },
        "contexts": {"a": "b"},
        "output": ["zstd"],
    }


def test_the_tuned_dockerfile_uses_its_arguments_and_our_uv() -> None:
    target = tuned_target({"args": {}}, devel(), Path("/project"), [])
    assert set(re.findall(r"(?m)^ARG (\w+)", DOCKERFILE)) == set(target["args"])
    locked = re.search(r"(?m)^uv==(\S+)", (TOOLKIT / "images/builder.lock").read_text())
    assert locked
    assert f"/uv:{locked[1]} AS uv" in DOCKERFILE


def test_the_tuned_dockerfile_says_why_of_each_choice() -> None:
    output = "\n".join(line for line in DOCKERFILE.splitlines() if line.startswith("#"))
    state = "\n".join(line for line in DOCKERFILE.splitlines() if not line.startswith("#"))
    for choice in ("UV_LINK_MODE=copy", "UV_COMPILE_BYTECODE=1", "--require-hashes", "--no-deps"):
        assert choice in output
        assert choice in state
    assert "\nUSER 1001\n" in DOCKERFILE


def test_one_more_package_is_in_every_image_with_own_tags() -> None:
    text = (TOOLKIT / "matrix.yaml").read_text()
    before, after = yaml.safe_load(text), yaml.safe_load(with_package(text, "einops"))
    assert after.pop("repository") != before.pop("repository")
    assert after["defaults"]["packages"].pop("pip") == [*before["defaults"]["packages"].pop("pip"), "einops"]
    assert after == before


def test_the_matrix_with_one_more_package_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(with_package((TOOLKIT / "matrix.yaml").read_text(), "einops"))
    specs = [spec for spec in load_project(path).expansion.specs if isinstance(spec, ImageSpec)]
    assert specs
    assert all("einops" in spec.pip for spec in specs)


def test_figures_stand_beside_their_ratio_to_the_tuned_way() -> None:
    times = {OURS: [9.0, 8.0, 30.0], TUNED: [10.0], f"{OURS}, again": [1.0]}
    sizes = {
        OURS: Size(compressed=240_000_000, uncompressed=900_000_000, files=15_000),
        TUNED: Size(compressed=300_000_000, uncompressed=1_200_000_000, files=30_000),
    }
    assert rows(times, sizes) == [
        (OURS, "9.0 s", "0.90", "240 MB", "0.80", "900 MB", "0.75", "15,000", "0.50"),
        (TUNED, "10.0 s", "1.00", "300 MB", "1.00", "1.20 GB", "1.00", "30,000", "1.00"),
        GOALS,
    ]


def test_one_more_package_is_held_against_the_tuned_ways() -> None:
    times = {OURS: [9.0], TUNED: [10.0], OURS + MORE: [2.0], TUNED + MORE: [8.0], f"{OURS}, again": [1.0]}
    assert [row[2] for row in warm_rows(times)] == ["0.25", "1.00", "0.50", ""]


def test_every_second_round_is_the_other_way_round() -> None:
    ways = {"a": 1, "b": 2}
    assert [in_turn(ways, number) for number in range(3)] == [
        [("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", 1), ("b", 2)],
    ]  # fmt: skip


def packed(entries: dict[str, bytes | None]) -> bytes:
    """A tar archive; what has no bytes is a folder."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in entries.items():
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            member.size = len(content or b"")
            archive.addfile(member, io.BytesIO(content or b""))
    return data.getvalue()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["tar", "gzip", "zstd"])
def test_files_of_an_image_are_counted_in_its_archive(pack: Any) -> None:
    lower = pack(packed({"usr": None, "usr/a.py": b"a", "usr/b.py": b"b"}))
    upper = pack(packed({"usr": None, "usr/.wh.b.py": b"", "usr/c.py": b"c" * 200_000}))
    manifest = {"layers": [{"digest": "sha256:1"}, {"digest": "sha256:2"}]}
    blobs = {"2": upper, "0": json.dumps({"config": {}}).encode(), "3": json.dumps(manifest).encode(), "1": lower}
    archive = packed({f"blobs/sha256/{name}": data for name, data in blobs.items()} | {"oci-layout": b"{}"})
    low, high = read_archive(io.BytesIO(archive), files=True)
    assert (low.compressed, low.files) == (len(lower), ("usr/a.py", "usr/b.py"))
    assert (high.compressed, high.files) == (len(upper), ("usr/c.py",))
    assert [layer.files for layer in read_archive(io.BytesIO(archive), files=False)] == [(), ()]


def test_a_matrix_stands_beside_the_sum_of_its_tuned_builds() -> None:
    tuned = [Cost(seconds=100.0, sectors=20 * 10**9), Cost(seconds=60.0, sectors=12 * 10**9)]
    ours, theirs, goal = matrix_rows(Cost(seconds=80.0, sectors=8 * 10**9), tuned)
    assert ours[1:] == ("80.0 s", "0.50", "8.00 GB", "0.25")
    assert theirs == ("tuned Dockerfile, 2 builds", "160.0 s", "1.00", "32.00 GB", "1.00")
    assert goal[2] == goal[4] == "0.40"
