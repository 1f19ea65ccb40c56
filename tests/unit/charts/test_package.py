"""A package is the chart with a release's images, which Helm takes; the same chart makes the same bytes."""

import io
import os
import shutil
import tarfile
from pathlib import Path

import helm_python
import pytest
import yaml

from tests.unit.charts.helm import CHART
from torchbake.charts.judge import IMAGES
from torchbake.charts.package import package, with_texts
from torchbake.errors import PublishError
from torchbake.oci.reference import parse_reference

TAG = "2.13.0-cpu-runtime-debian12-r3"
IMAGE = parse_reference(f"ghcr.io/acme/pytorch:{TAG}@sha256:{'a' * 64}")
INIT = parse_reference(f"ghcr.io/acme/volume-permissions:1.0.0-r0@sha256:{'b' * 64}")
RELEASED = dict(zip(IMAGES, (IMAGE, INIT), strict=True))


def test_helm_installs_the_released_images() -> None:
    product = package(CHART, RELEASED)
    with helm_python.Chart.load_archive(product.data) as chart:
        assert chart.metadata == {**product.metadata}
        assert (chart.version, chart.metadata["appVersion"]) == (f"0.1.0+{TAG}", TAG)
        texts = chart.render({"volumePermissions": {"enabled": True}, "entrypoint": {"file": "a.py"}}, name="demo")
    (job,) = [yaml.safe_load(text) for name, text in texts.items() if name.endswith("/job.yaml")]
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == str(IMAGE)
    assert pod["initContainers"][0]["image"] == str(INIT)
    assert job["metadata"]["labels"]["helm.sh/chart"] == f"pytorch-0.1.0_{TAG}"


def test_it_holds_what_helms_own_package_does(tmp_path: Path) -> None:
    with tarfile.open(helm_python.package(CHART, destination=tmp_path)) as theirs:
        names = {*theirs.getnames()} - {"pytorch/.helmignore"}
    with tarfile.open(fileobj=io.BytesIO(package(CHART, RELEASED).data)) as ours:
        assert {*ours.getnames()} == names
        assert {entry.mtime for entry in ours} == {0}


def test_the_same_chart_makes_the_same_bytes(tmp_path: Path) -> None:
    copy = tmp_path / "pytorch"
    shutil.copytree(CHART, copy)
    for path in copy.rglob("*"):
        os.utime(path, (1, 1))
    assert package(copy, RELEASED) == package(CHART, RELEASED)
    (copy / "files/train.py").write_text("print(1)\n")
    assert package(copy, RELEASED) != package(CHART, RELEASED)


def test_a_version_of_ones_own_is_semver() -> None:
    assert package(CHART, RELEASED, "1.2.3").file == "pytorch-1.2.3.tgz"
    with pytest.raises(PublishError, match="is not a version of a chart"):
        package(CHART, RELEASED, "v1")


def test_comments_and_all_else_stay() -> None:
    assert with_texts("# a\na: {b: old} # c\nd: |\n  x\n", {("a", "b"): "new"}) == '# a\na: {b: "new"} # c\nd: |\n  x\n'
    with pytest.raises(PublishError, match=r"no value a\.c"):
        with_texts("a: {b: 1}", {("a", "c"): "x"})


def test_a_folder_that_is_no_chart_is_told(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match=r"Chart\.yaml cannot be read"):
        package(tmp_path, RELEASED)
