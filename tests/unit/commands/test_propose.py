"""`propose`: what it shows, what it writes, and that a dry run writes nothing."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from tests.unit.conftest import SMALL
from tests.unit.test_cli import out
from torchbake.commands import propose
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.matrix.accelerator import parse_accelerator
from torchbake.matrix.proposals import TorchRelease

Streams = pytest.CaptureFixture[str]
RELEASES = [
    TorchRelease(version=Version("2.8.0"), pythons=("3.11", "3.13")),
    TorchRelease(version=Version("2.9.2"), pythons=("3.11", "3.13")),
    TorchRelease(version=Version("2.10.0"), pythons=("3.11", "3.13")),
    TorchRelease(version=Version("2.11.0"), pythons=("3.11", "3.13")),
    TorchRelease(version=Version("2.11.0"), accelerator=parse_accelerator("cuda12.6"), pythons=("3.11",)),
    TorchRelease(version=Version("2.12.0rc1"), pythons=("3.11",)),
]


@pytest.fixture
def matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A matrix, and indexes with these releases; the wheels of 2.11.0 are for CUDA 13.0, all others for 12.8."""

    def with_cuda(release: TorchRelease, _: object) -> TorchRelease:
        name = "cuda13.0" if release.version == Version("2.11.0") else "cuda12.8"
        return TorchRelease(version=release.version, accelerator=parse_accelerator(name), pythons=release.pythons)

    monkeypatch.setattr(propose, "read_releases", lambda *_: ([*RELEASES], ["https://cpu.example does not answer"]))
    monkeypatch.setattr(propose, "with_cuda", with_cuda)
    path = tmp_path / "matrix.yaml"
    path.write_text(SMALL)
    return path


def test_a_dry_run_shows_the_change_and_writes_nothing(matrix: Path, capsys: Streams) -> None:
    output = out(capsys, "propose", "--dry-run", "--matrix", str(matrix))
    assert matrix.read_text() == SMALL
    assert "-  - torch: [2.10.0, 2.9.1]" in output
    assert "+  - torch: [2.10.0, 2.9.2]" in output
    assert "+    accelerator: cuda13.0" in output
    assert "2.8.0" not in output, "a release that is older than all is counted alone"
    assert "2.12.0rc1" in output


def test_json_has_each_release_with_its_reason(matrix: Path, capsys: Streams) -> None:
    report = json.loads(out(capsys, "propose", "--dry-run", "--format", "json", "--matrix", str(matrix)))
    assert [(each["torch"], each["accelerator"], each["replaces"]) for each in report["proposals"]] == [
        ("2.9.2", "cuda12.8", "2.9.1"),
        ("2.11.0", "cuda13.0", ""),
    ]
    assert [each["release"] for each in report["not_proposed"]] == ["2.8.0", "2.10.0", "2.11.0 cuda12.6", "2.12.0rc1"]
    assert all(each["reason"] for each in report["not_proposed"])
    assert report["problems"] == ["https://cpu.example does not answer"]
    assert report["diff"].startswith("--- matrix.yaml")


def test_a_patch_that_does_not_resolve_leaves_the_one_before(
    matrix: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_cuda(release: TorchRelease, _: PipConfig) -> TorchRelease:
        if release.version == Version("2.11.1"):
            return replace(release, problem="its wheels do not resolve")
        name = "cuda13.0" if release.version == Version("2.11.0") else "cuda12.8"
        return replace(release, accelerator=parse_accelerator(name))

    newest = TorchRelease(version=Version("2.11.1"), pythons=("3.11",))
    monkeypatch.setattr(propose, "read_releases", lambda *_: ([*RELEASES, newest], []))
    monkeypatch.setattr(propose, "with_cuda", with_cuda)
    report = json.loads(out(capsys, "propose", "--dry-run", "--format", "json", "--matrix", str(matrix)))
    assert [each["torch"] for each in report["proposals"]] == ["2.9.2", "2.11.0"]
    assert {"release": "2.11.1", "reason": "its wheels do not resolve"} in report["not_proposed"]


def test_a_written_release_is_not_proposed_again(matrix: Path, capsys: Streams) -> None:
    out(capsys, "propose", "--matrix", str(matrix))
    text = matrix.read_text()
    assert "2.9.2]" in text
    assert "  - torch: 2.11.0\n" in text
    report = json.loads(out(capsys, "propose", "--format", "json", "--matrix", str(matrix)))
    assert (report["proposals"], report["diff"]) == ([], "")
    assert matrix.read_text() == text
