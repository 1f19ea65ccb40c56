"""Targets of bake files that podman builds: its archive, its image, and the end of a build."""

import io
import json
import os
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests.unit.layouts import archive, file, put
from torchbake.build import podman_build
from torchbake.build.podman_build import PodmanBuilder
from torchbake.errors import EngineError
from torchbake.store.layout import Layout

ID, BASE_ID, DIGEST = "a" * 64, "sha256:" + "b" * 64, "sha256:" + "c" * 64
DOCKERFILE = """\
FROM debian:12 AS base
FROM scratch AS toolkit
COPY layers /layers
FROM base
RUN --mount=type=bind,from=toolkit,source=/layers/apt,target=/run/apt \\
    --mount=type=bind,source=own/lock,target=/l /run/apt
COPY own/program /program
ARG REVISION
LABEL revision="$REVISION"
"""


class Podman:
    """Podman's API: it keeps what it was sent, and hands out one image."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.sent, self.options = folder, list[dict[str, str]](), list[Mapping[str, str]]()
        self.modes: dict[str, int] = {}
        self.says: list[dict[str, Any]] = [{"stream": "STEP 1/2: FROM x\n"}, {"stream": f"{ID}\n"}]
        self.silent: threading.Event | None = None

    def build(self, context: IO[bytes], options: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        with tarfile.open(fileobj=io.BytesIO(context.read())) as read:
            members = [one for one in read if one.isfile()]
            assert {(one.uid, one.gid, one.uname) for one in read.getmembers()} == {(0, 0, "")}
            self.modes = {one.name: one.mode for one in members}
            self.sent.append({one.name: (read.extractfile(one) or io.BytesIO()).read().decode() for one in members})
        self.options.append(options)
        yield from self.says
        if self.silent:
            self.silent.wait(60)

    @contextmanager
    def saved(self, image: str) -> Iterator[Iterator[bytes]]:
        assert image == ID
        layout = Layout(folder=self.folder)
        steps = [{"created_by": "by podman"}, *({"created_by": "", "empty_layer": True} for _ in range(3))]
        config = {"architecture": "amd64", "os": "linux", "history": steps}
        yield layout.archive(put(layout, archive(file("python", b"3.11")), packing="tar", config=config))


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Podman:
    podman = Podman(tmp_path / "podman")
    monkeypatch.setattr(podman_build, "podman", podman)
    return podman


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project and a toolkit. Both also have files that no build takes."""
    own = ("root/own/lock", "root/own/program", "root/other")
    for name in (*own, "kit/layers/apt/run", "kit/layers/apt/__pycache__/x", "kit/other"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "kit/layers/apt/run").chmod(0o755)
    (tmp_path / "root/Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "ca").write_text("secret")
    if os.geteuid() == 0:  # any other user owns them anyway
        os.chown(tmp_path / "root/own/lock", 1234, 1234)
    return tmp_path / "root"


def bake(folder: Path, root: Path, **more: Any) -> Path:
    target = {
        "context": str(root), "dockerfile": "Dockerfile",
        "contexts": {"debian:12": f"oci-layout://{folder}/base@{DIGEST}", "toolkit": str(root.parent / "kit")},
        "args": {"REVISION": "$${not}", "SOURCE_DATE_EPOCH": "1735689600", "http_proxy": "${http_proxy}"},
        "secret": [f"id=ca,src={root.parent / 'ca'}"],
        "output": [f"type=oci,tar=false,compression=zstd,dest={folder / 'export'}"], **more,
    }  # fmt: skip
    asked = {
        "context": str(root.parent / "kit"), "contexts": {"inner": "target:image"}, "args": {},
        "dockerfile-inline": "FROM inner\nCOPY . /\n", "output": [f"type=local,dest={folder / 'files'}"],
    }  # fmt: skip
    path = folder / "image.bake.json"
    path.write_text(json.dumps({"target": {"image": target, "asked": asked}}))
    return path


def run(
    folder: Path, bake_file: Path, target: str = "image", steps: list[str] | None = None, *, cached: bool = True
) -> Any:  # fmt: skip
    brought: list[tuple[Path, str]] = []

    def bring(layout: Layout, digest: str) -> str:
        brought.append((layout.folder, digest))
        return BASE_ID

    builder = PodmanBuilder(bring, cached=cached)
    outcome = builder.build(
        bake_file, target, folder / "image.log",
        lambda progress, done: steps.extend(step.name for step in done) if steps is not None else None,
    )  # fmt: skip
    assert brought == [(folder / "base", DIGEST)]
    return outcome


def test_podman_is_sent_what_a_build_takes_and_no_more(
    podman: Podman, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy")
    assert run(tmp_path, bake(tmp_path, root)).ok
    (sent,), (options,) = podman.sent, podman.options
    dockerfile = sent.pop(".torchbake-build/Dockerfile")
    assert sent == {
        "own/lock": "root/own/lock", "own/program": "root/own/program",
        ".torchbake-build/context-0/layers/apt/run": "kit/layers/apt/run", "secret-0": "secret",
    }  # fmt: skip
    assert podman.modes[".torchbake-build/context-0/layers/apt/run"] == 0o755
    assert f"FROM {BASE_ID.removeprefix('sha256:')} AS context-0" in dockerfile
    assert 'LABEL revision="\\${not}"' in dockerfile
    assert json.loads(options["buildargs"]) == {"REVISION": "${not}", "http_proxy": "http://proxy"}
    assert json.loads(options["secrets"]) == ["id=ca,src=secret-0"]
    assert (options["nocache"], options["target"]) == ("false", "stage-2")


def test_an_image_is_exported_as_a_layout(podman: Podman, root: Path, tmp_path: Path) -> None:
    outcome = run(tmp_path, bake(tmp_path, root))
    manifest = Layout(folder=tmp_path / "export").find(outcome.digests[0])
    assert manifest
    assert outcome.digests == (manifest.digest, manifest.config.digest)
    config = json.loads(Layout(folder=tmp_path / "export").path(manifest.config.digest).read_bytes())
    assert config["history"][1]["created_by"] == "COPY own/program /program # buildkit"
    assert config["created"] == "2025-01-01T00:00:00+00:00"


def test_a_target_is_based_on_another_one(podman: Podman, root: Path, tmp_path: Path) -> None:
    outcome = run(tmp_path, bake(tmp_path, root, **{"no-cache": True}), "asked")
    assert outcome.ok, outcome
    assert (tmp_path / "files/python").read_bytes() == b"3.11"
    assert [options["nocache"] for options in podman.options] == ["true", "false"]
    assert f"FROM {ID} AS inner" in podman.sent[1][".torchbake-build/Dockerfile"]
    assert {"layers/apt/run", "other"} < podman.sent[1].keys()


def test_a_podman_that_compares_no_mounted_files_builds_all_anew(podman: Podman, root: Path, tmp_path: Path) -> None:
    assert run(tmp_path, bake(tmp_path, root), "asked", cached=False).ok
    assert {options["nocache"] for options in podman.options} == {"true"}


def test_steps_and_lines_are_shown_and_logged(podman: Podman, root: Path, tmp_path: Path) -> None:
    podman.says = [
        {"stream": "[1/2] STEP 1/2: FROM x AS y\n"}, {"stream": "[1/2] STEP 2/2: RUN make\n"}, {"stream": "made\n"},
        {"stream": "--> Using cache 12\n"}, {"stream": f"--> 12\n{ID}\n"},
    ]  # fmt: skip
    steps: list[str] = []
    assert run(tmp_path, bake(tmp_path, root), steps=steps).ok
    assert steps == ["[1/2] FROM x AS y", "[2/2] RUN make"]
    log = (tmp_path / "image.log").read_text().splitlines()
    assert log[1] == "  made"
    assert log[-1].endswith("RUN make: cached")


def test_a_failed_step_is_told_in_its_own_words(podman: Podman, root: Path, tmp_path: Path) -> None:
    podman.says = [
        {"stream": "STEP 1/1: RUN apt-get install x\n"}, {"stream": "E: Unable to locate package x\n"},
        {"error": "building at STEP: exit status 100"},
    ]  # fmt: skip
    outcome = run(tmp_path, bake(tmp_path, root))
    assert outcome.errors == ("E: Unable to locate package x",)
    assert "E: Unable to locate package x" in outcome.tail
    podman.says = []
    assert "without an image" in run(tmp_path, bake(tmp_path, root)).errors[0]


def test_an_engine_that_refuses_ends_the_build(
    podman: Podman, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(context: IO[bytes], options: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        raise EngineError("The engine refuses: no")
        yield {}

    monkeypatch.setattr(podman, "build", refuse)
    assert "The engine refuses" in run(tmp_path, bake(tmp_path, root)).errors[0]


def test_a_silent_build_ends_when_it_shall_stop(podman: Podman, root: Path, tmp_path: Path) -> None:
    podman.silent, podman.says = threading.Event(), [{"stream": "STEP 1/1: RUN sleep 1000\n"}]
    builder = PodmanBuilder(lambda layout, digest: BASE_ID, cached=True)

    def stop(progress: Any, done: Any) -> None:
        if progress.running:
            builder.stop()

    try:
        outcome = builder.build(bake(tmp_path, root), "image", tmp_path / "image.log", stop)
    finally:
        podman.silent.set()
    assert outcome.errors == ("stopped",)
    assert builder.stopped
