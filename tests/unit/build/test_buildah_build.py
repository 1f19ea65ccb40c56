"""Targets of bake files that buildah builds: its context, its image, its words, and the end of a build."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import START
from tests.unit.layouts import archive, file, put
from torchbake.build.buildah import Buildah
from torchbake.build.buildah_build import BuildahBuilder
from torchbake.build.executor import buildah_of, check_options, executor_of
from torchbake.errors import EngineError, UsageError
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
# A program that records its words and its context, prints a text of the test, and writes one image.
PROGRAM = """\
#!{python} -IS
import json, os, sys
folder, words = {folder!r}, sys.argv[1:]
def text(name):
    with open(os.path.join(folder, name)) as file:
        return file.read()
if words == ["--version"]:
    print("buildah version " + text("version"))
    sys.exit()
context = words[-1]
found = {{}}
if "build" in words:
    paths = [os.path.join(parent, name) for parent, _, names in os.walk(context) for name in names]
    found = {{os.path.relpath(path, context): text(os.path.abspath(path)) for path in paths if os.path.isfile(path)}}
    print(text("says"), flush=True)
    import time
    time.sleep(float(text("sleeps")))
    if text("says").endswith("failed"):
        sys.exit(125)
elif "push" in words:
    import shutil
    shutil.copytree(os.path.join(folder, "image"), words[-1].removeprefix("oci:"))
with open(os.path.join(folder, "calls"), "a") as calls:
    calls.write(json.dumps([words, found, os.environ.get("http_proxy")]) + "\\n")
"""


class Program:
    """A buildah in PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.set(says=f"STEP 1/2: FROM x\n{ID}", sleeps="0", version="1.28.2 (image-spec 1)")
        layout = Layout(folder=folder / "image")
        digest = put(layout, archive(file("python", b"3.11")), packing="tar")
        (layout.folder / "index.json").write_text(json.dumps({"manifests": [{"digest": digest}]}))
        path = folder / "buildah"
        path.write_text(PROGRAM.format(python=sys.executable, folder=str(folder)))
        path.chmod(0o755)

    def set(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def calls(self, verb: str) -> list[tuple[list[str], dict[str, str], str | None]]:
        calls = map(json.loads, (self.folder / "calls").read_text().splitlines())
        return [(words, value, proxy) for words, value, proxy in calls if words[0] == verb]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    program = Program(tmp_path / "bin")
    monkeypatch.setattr(subprocess.Popen, "__init__", START)  # the only process is this program
    monkeypatch.setenv("PATH", f"{program.folder}:{os.environ['PATH']}")
    return program


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project and a toolkit. Both also have files that no build takes."""
    own = ("root/own/lock", "root/own/program", "root/other")
    for name in (*own, "kit/layers/apt/run", "kit/layers/apt/__pycache__/x", "kit/other"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "root/Dockerfile").write_text(DOCKERFILE)
    return tmp_path / "root"


def bake(folder: Path, root: Path, **more: Any) -> Path:
    target = {
        "context": str(root), "dockerfile": "Dockerfile",
        "contexts": {"debian:12": f"oci-layout://{folder}/base@{DIGEST}", "toolkit": str(root.parent / "kit")},
        "args": {"REVISION": "$${not}", "http_proxy": "${http_proxy}"},
        "secret": ["id=ca,src=/ca"],
        "output": [f"type=oci,tar=false,compression=uncompressed,dest={folder / 'export'}"], **more,
    }  # fmt: skip
    queries = {
        "context": str(root.parent / "kit"), "contexts": {"inner": "target:image"}, "args": {},
        "dockerfile-inline": "FROM inner\nCOPY . /\n", "output": [f"type=local,dest={folder / 'files'}"],
    }  # fmt: skip
    path = folder / "image.bake.json"
    path.write_text(json.dumps({"target": {"image": target, "asked": queries}}))
    return path


def builder() -> BuildahBuilder:
    buildah = Buildah(program="buildah")
    return BuildahBuilder(buildah, lambda layout, digest: BASE_ID, cached=buildah.cached)


def run(folder: Path, bake_file: Path, target: str = "image", steps: list[str] | None = None) -> Any:
    return builder().build(
        bake_file, target, folder / "image.log",
        lambda progress, final_state: steps.extend(step.name for step in final_state) if steps is not None else None,
    )  # fmt: skip


def test_buildah_gets_what_a_build_takes_and_no_more(
    program: Program, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://user:secret@proxy")
    outcome = run(tmp_path, bake(tmp_path, root))
    assert outcome.ok, outcome
    ((words, matches, proxy),) = program.calls("build")
    dockerfile = matches.pop(".torchbake-build/Dockerfile")
    assert matches == {
        "own/lock": "root/own/lock", "own/program": "root/own/program",
        ".torchbake-build/context-0/layers/apt/run": "kit/layers/apt/run",
    }  # fmt: skip
    assert f"FROM {BASE_ID.removeprefix('sha256:')} AS context-0" in dockerfile
    assert 'LABEL revision="\\${not}"' in dockerfile
    assert {"REVISION=${not}", "http_proxy", "--secret=id=ca,src=/ca", "--target=stage-2"} < {*words}
    assert proxy == "http://user:secret@proxy"
    assert not any("secret@proxy" in word for word in words)
    assert not [*tmp_path.glob(".context-*")]


def test_an_image_is_exported_as_a_layout(program: Program, root: Path, tmp_path: Path) -> None:
    outcome = run(tmp_path, bake(tmp_path, root))
    manifest = Layout(folder=tmp_path / "export").find(outcome.digests[0])
    assert manifest
    assert outcome.digests == (manifest.digest, manifest.config.digest)


def test_a_target_is_built_once_for_those_based_on_it(program: Program, root: Path, tmp_path: Path) -> None:
    building, bake_file = builder(), bake(tmp_path, root)
    for _ in range(2):
        outcome = building.build(bake_file, "asked", tmp_path / "image.log", lambda progress, state: None)
        assert outcome.ok, outcome
    assert (tmp_path / "files/python").read_bytes() == b"3.11"
    calls = program.calls("build")
    assert len(calls) == 3
    assert f"FROM {ID} AS inner" in calls[1][1][".torchbake-build/Dockerfile"]
    assert {"layers/apt/run", "other"} < calls[1][1].keys()


def test_the_cache_is_used_if_it_compares_mounted_files(program: Program, root: Path, tmp_path: Path) -> None:
    """Without the cache the images of a run are removed, the last one first."""
    program.set(says=f"STEP 1/2: FROM x\n--> 123456789ab\n{ID}")
    for version, target, cached in (
        ("1.28.2", {}, False), ("1.37.5", {}, False), ("1.38.0", {}, True), ("1.39.3", {"no-cache": True}, False),
    ):  # fmt: skip
        (program.folder / "calls").write_text("")
        shutil.rmtree(tmp_path / "export", ignore_errors=True)
        program.set(version=version)
        building = builder()
        assert building.build(bake(tmp_path, root, **target), "image", tmp_path / "log", lambda *_: None).ok
        building.close()
        assert ("--no-cache" not in program.calls("build")[0][0]) == cached
        removed = [words[1] for words, *_ in program.calls("rmi")]
        assert removed == ([ID, "123456789ab"] if version < "1.38" else [])


def test_an_image_below_a_template_is_removed_with_the_others(program: Program, root: Path, tmp_path: Path) -> None:
    (root / "Dockerfile").write_text("FROM debian:12 AS whole\nRUN one\nFROM whole\nRUN two\n")
    building = builder()
    contexts = {"whole": f"oci-layout://{tmp_path}/whole@{DIGEST}"}
    path = bake(tmp_path, root, contexts=contexts)
    assert building.build(path, "image", tmp_path / "image.log", lambda *_: None).ok
    ((_, matches, _),) = program.calls("build")
    dockerfile = matches[".torchbake-build/Dockerfile"]
    assert dockerfile.startswith(f"FROM {BASE_ID.removeprefix('sha256:')} AS whole\nFROM whole AS stage-1\nRUN two")
    assert "RUN one" not in dockerfile
    building.close()
    assert [words[1] for words, *_ in program.calls("rmi")] == [ID, BASE_ID.removeprefix("sha256:")]


def test_steps_and_lines_are_shown_and_logged(program: Program, root: Path, tmp_path: Path) -> None:
    program.set(
        says=f"[1/2] STEP 1/2: FROM x AS y\n[1/2] STEP 2/2: RUN make\nmade\n--> Using cache 12\n--> 12\n{ID}"
    )  # fmt: skip
    steps: list[str] = []
    assert run(tmp_path, bake(tmp_path, root), steps=steps).ok
    assert steps == ["[1/2] FROM x AS y", "[2/2] RUN make"]
    log = (tmp_path / "image.log").read_text().splitlines()
    assert log[1] == "  made"
    assert log[-1].endswith("RUN make: cached")


def test_a_failed_step_is_told_in_its_own_words(program: Program, root: Path, tmp_path: Path) -> None:
    program.set(
        says="STEP 1/1: RUN apt-get install x\nE: Unable to locate package x\nError: building at STEP: failed"
    )  # fmt: skip
    outcome = run(tmp_path, bake(tmp_path, root))
    assert outcome.errors == ("E: Unable to locate package x",)
    assert "E: Unable to locate package x" in outcome.tail
    program.set(says="no ID")
    assert "no ID" in run(tmp_path, bake(tmp_path, root)).errors[0]


def test_a_silent_build_ends_when_it_shall_stop(program: Program, root: Path, tmp_path: Path) -> None:
    program.set(says="STEP 1/1: RUN sleep 1000", sleeps="1000")
    building = builder()

    def stop(progress: Any, state: Any) -> None:
        if progress.running:
            threading.Thread(target=building.stop).start()

    outcome = building.build(bake(tmp_path, root), "image", tmp_path / "image.log", stop)
    assert not outcome.ok
    assert outcome.seconds < 100
    assert building.stopped
    assert not building.build(bake(tmp_path, root), "image", tmp_path / "image.log", stop).ok


def test_a_machine_without_buildah_is_told_how_to_get_it(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert executor_of("auto", None) == "buildah"
    with pytest.raises(UsageError, match="--no-engine"):
        executor_of("buildx", None)
    program.set(version="1.23.1")
    with pytest.raises(EngineError, match="too old"):
        buildah_of("buildah", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError) as caught:
        buildah_of("buildah", None)
    assert "apt-get install buildah" in str(caught.value.hint)


def test_a_user_without_namespaces_is_told(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    buildah_of("buildah", None)
    path = program.folder / "buildah"
    refusal = 'if words[0] == "unshare":\n    sys.exit("Operation not permitted")\n'
    path.write_text(path.read_text().replace("context =", f"{refusal}context ="))
    with pytest.raises(EngineError, match=r"user namespace.*Operation not permitted"):
        buildah_of("buildah", None)


def test_options_of_buildkit_are_refused() -> None:
    for option in ("--builder", "--cache-to", "--prune"):
        check_options("buildx", {option: "given"})
        check_options("buildah", {option: ""})
        with pytest.raises(UsageError, match=option):
            check_options("buildah", {option: "given"})
