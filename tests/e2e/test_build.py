"""How `build` behaves: what it skips, what a failure ends, and what an interrupted run leaves."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.e2e.conftest import CPU, INIT, ROOT, images_of, tags_of, torchbake
from tests.e2e.containers import output_of
from tests.e2e.waiting import until
from torchbake.errors import BaseError

pytestmark = pytest.mark.build

Built = dict[str, dict[str, Any]]
Project = Callable[..., Path]

INIT_ROW = "init:\n  volume-permissions: {version: 1.0.0, base: debian12}\n"
CPU_ROW = "rows:\n  - {torch: 2.13.0, accelerator: cpu, base: debian12%s}\n"


def test_a_second_build_does_nothing_and_says_so(built: Built) -> None:
    again = images_of(torchbake("build", *built, "--format", "json"))
    assert {image["status"] for image in again.values()} == {"up-to-date"}
    assert all("unchanged" in image["reason"] for image in again.values())
    assert {name: image["digest"] for name, image in again.items()} == {
        name: image["digest"] for name, image in built.items()
    }


def test_rolling_tags_point_at_the_image(engine: docker.DockerClient, built: Built) -> None:
    listed = json.loads(torchbake("list", CPU, INIT, "--format", "json").stdout)["images"]
    for image in listed:
        for tag in image["tags"]:
            assert engine.images.get(f"{image['repository']}:{tag}").id == built[image["id"]]["digest"]


def test_a_lost_tag_is_put_back(engine: docker.DockerClient, built: Built) -> None:
    tag = built[INIT]["tags"][-1]
    engine.images.remove(tag, noprune=True)
    image = images_of(torchbake("build", INIT, "--format", "json"))[INIT]
    assert image["status"] == "up-to-date"
    assert "1 tags corrected" in image["reason"]
    assert engine.images.get(tag).id == built[INIT]["digest"]


def test_dry_run_shows_the_plan_and_builds_nothing(project: Project, engine: docker.DockerClient) -> None:
    path = project(CPU_ROW % "" + INIT_ROW, repository="torchbake-test/dry/pytorch")
    process = torchbake("build", "all", "--matrix", str(path), "--dry-run", "--format", "json")
    assert process.returncode == 0, process.stderr
    assert {image["status"] for image in images_of(process).values()} == {"planned"}
    assert '"dockerfile"' in process.stderr
    assert not tags_of(engine, "torchbake-test/dry")
    assert not (path.parent / "images" / INIT).exists()


def test_one_failing_image_does_not_stop_the_others(project: Project, built: Built) -> None:
    row = CPU_ROW % ", packages: {apt: [no-such-package-at-all]}"
    path = project(row + INIT_ROW)
    shutil.copytree(ROOT / "images" / CPU, path.parent / "images" / CPU)
    shutil.copy(ROOT / "images/builder.lock", path.parent / "images/builder.lock")
    process = torchbake("build", "all", "--matrix", str(path), "--format", "json")
    images = images_of(process)
    assert process.returncode == 9
    assert images[INIT]["status"] == "built"
    assert images[CPU]["status"] == "failed"
    assert "no-such-package-at-all" in process.stderr
    logs = list((path.parent / ".torchbake/runs").glob(f"*/{CPU}.log"))
    assert "Unable to locate package no-such-package-at-all" in logs[0].read_text()
    assert str(logs[0]) in process.stderr
    assert "Traceback" not in process.stderr


def test_a_failing_base_skips_only_its_images(project: Project) -> None:
    path = project("""\
        rows:
          - {torch: 2.13.0, accelerator: cpu, base: nowhere}
        init:
          volume-permissions: {version: 1.0.0, base: debian12}
        """)
    text = path.read_text().replace(
        "bases:\n", 'bases:\n  nowhere: {image: "127.0.0.1:1/no:base", suite: nosuchsuite, python: "3.11"}\n'
    )
    path.write_text(text)
    process = torchbake("build", "all", "--matrix", str(path), "--format", "json")
    images = images_of(process)
    assert process.returncode == BaseError.exit_code  # what was not built failed alike
    assert images[INIT]["status"] in ("built", "up-to-date")
    skipped = images["2.13.0-cpu-runtime-nowhere"]
    assert skipped["status"] == "skipped"
    assert "its base failed" in skipped["reason"]


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_an_interrupted_build_tags_nothing(project: Project, engine: docker.DockerClient, number: int) -> None:
    path = project(INIT_ROW + CPU_ROW % "", repository="torchbake-test/killed/pytorch")
    process = subprocess.Popen(
        [sys.executable, "-m", "torchbake", "build", INIT, "--no-cache", "--matrix", str(path)],
        cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr
    for line in process.stderr:
        if "building" in line:
            break
    time.sleep(1.5)
    process.send_signal(number)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert not tags_of(engine, "torchbake-test/killed")
    until(lambda: not _running(f"{path.parent}/.torchbake"), 10)


def test_no_engine_is_a_clear_error() -> None:
    process = torchbake("build", INIT, env={"DOCKER_HOST": "unix:///nonexistent/docker.sock"})
    assert process.returncode == 7
    assert "No container engine answers" in process.stderr
    assert "nox -s setup" in process.stderr


def test_an_engine_without_buildx_is_a_clear_error(project: Project, tmp_path: Path) -> None:
    fake = tmp_path / "bin"
    fake.mkdir()
    rename = """sed 's/"Name":"buildx"/"Name":"none"/'"""
    (fake / "docker").write_text(f'#!/bin/sh\n{shutil.which("docker")} "$@" | {rename}\n')
    (fake / "docker").chmod(0o755)
    path = project(INIT_ROW + CPU_ROW % "", repository="torchbake-test/nobuildx/pytorch")
    process = torchbake("build", INIT, "--matrix", str(path), env={"PATH": f"{fake}:{os.environ['PATH']}"})
    assert process.returncode == 7
    assert "buildx" in process.stderr


def test_an_unknown_builder_is_a_clear_error(built: Built) -> None:
    process = torchbake("build", INIT, "--no-cache", "--builder", "nobody")
    assert process.returncode == 7
    assert "nobody" in process.stderr


def test_a_named_builder_builds(project: Project) -> None:
    path = project(INIT_ROW + CPU_ROW % "", repository="torchbake-test/other/pytorch")
    process = torchbake("build", INIT, "--matrix", str(path), "--builder", "default", "--format", "json")
    assert images_of(process)[INIT]["status"] == "built", process.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="not-run: mounting a full disk needs root")
def test_a_full_disk_is_a_clear_error_and_leaves_nothing(project: Project) -> None:
    path = project(INIT_ROW + CPU_ROW % "")
    images = path.parent / "images"
    images.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=8", "tmpfs", str(images)], check=True)
    try:
        (images / "filler").write_bytes(b"x" * 4096)
        process = torchbake("render", INIT, "--matrix", str(path))
        assert process.returncode == 11
        assert "No space left on device" in process.stderr
        assert not [file for file in images.rglob("*") if file.is_file() and file.name != "filler"]
    finally:
        subprocess.run(["umount", str(images)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="not-run: a read-only mount needs root")
def test_a_read_only_folder_is_a_clear_error(project: Project) -> None:
    path = project(INIT_ROW + CPU_ROW % "")
    images = path.parent / "images"
    images.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(images)], check=True)
    try:
        process = torchbake("render", INIT, "--matrix", str(path))
        assert process.returncode == 11
        assert "Read-only file system" in process.stderr
    finally:
        subprocess.run(["umount", str(images)], check=True)


def test_a_rendered_folder_builds_by_hand(engine: docker.DockerClient, built: Built) -> None:
    base = json.loads((ROOT / ".torchbake/bases/debian12.json").read_text())
    context = f"debian:bookworm-slim=oci-layout://{ROOT}/.torchbake/bases/debian12@{base['digest']}"
    by_registry = base["source"] == "registry"
    command = ["docker", "build", *([] if by_registry else ["--build-context", context])]
    command += ["-f", f"images/{INIT}/Dockerfile", "-t", "torchbake-test/by-hand", "."]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert output_of(engine, "torchbake-test/by-hand", ["--version"]).strip() == "volume-permissions 1.0.0"


def _running(word: str) -> list[str]:
    """Processes that name ``word`` on their command line."""
    matches = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line:
            matches.append(line)
    return matches
